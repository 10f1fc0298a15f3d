//! When a snapshot ended, as retention counts it.
//!
//! **Promises.** The clock of a node that is wrong neither makes a snapshot the newest for ever nor the oldest at once:
//! what a mover says lies between the making of its object and the moment at which its result was recorded, and no
//! snapshot ends in the future.
//!
//! **Assumes.** The two bounds are told by the API server and by our own clock. An object that was made after its
//! snapshot (adopted, discovered, brought back from a backup of the cluster) has no lower bound.

use jiff::Timestamp;

/// The end of a snapshot that a mover took for an object made at `created`, recorded at `recorded`.
#[must_use]
pub fn taken(told: Timestamp, created: Option<Timestamp>, recorded: Timestamp) -> Timestamp {
    let known = known(told, recorded);
    created.map_or(known, |created| known.max(created))
}

/// The end of a snapshot that was recorded some time before `now`.
#[must_use]
pub fn known(told: Timestamp, now: Timestamp) -> Timestamp {
    told.min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    #[test]
    fn an_end_lies_between_the_object_and_its_record() {
        let (created, recorded) = (Some(at(100)), at(200));
        for (told, ended) in [
            (0, 100),
            (99, 100),
            (100, 100),
            (150, 150),
            (200, 200),
            (201, 200),
            (9_999, 200),
        ] {
            assert_eq!(taken(at(told), created, recorded), at(ended), "{told}");
        }
        assert_eq!(taken(at(0), None, recorded), at(0), "no bound is known");
        assert_eq!(
            taken(at(150), Some(at(300)), recorded),
            at(300),
            "the API server's clock is ahead of ours"
        );
    }

    #[test]
    fn nothing_ends_in_the_future() {
        assert_eq!(known(at(5), at(10)), at(5));
        assert_eq!(known(at(50), at(10)), at(10));
    }
}
