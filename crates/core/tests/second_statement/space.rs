//! Which combinations are gone through.
//!
//! **Promises.** A [`Block`] is the whole product of the values it names. Facts that one part of the rules reads
//! together are in one block, and the blocks overlap; a sample of the product of *all* axes looks for what
//! depends on facts of different blocks.
//!
//! **Assumes** [`super::axes`].

use super::axes::{AXES, Axis, Point, SIZES};

/// Every value of an axis.
pub const ALL: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// A product of axes; those not named stay at their plain value.
pub struct Block {
    /// What it is about.
    pub name: &'static str,
    /// The axes and their values.
    pub axes: &'static [(Axis, &'static [u8])],
}

/// The blocks.
pub const BLOCKS: &[Block] = &[
    Block {
        name: "rules 4 to 9: who asked, and who keeps",
        axes: &[
            (Axis::Namespace, ALL),
            (Axis::OnNamespaceDelete, ALL),
            (Axis::Place, ALL),
            (Axis::Stamp, ALL),
            (Axis::Policy, ALL),
            (Axis::Cascade, ALL),
            (Axis::Owner, ALL),
            (Axis::Sharing, ALL),
            (Axis::Resolution, ALL),
            (Axis::Held, &[0, 1]),
        ],
    },
    Block {
        name: "in flight, and rules 1 to 5",
        axes: &[
            (Axis::Skip, ALL),
            (Axis::Uninstall, ALL),
            (Axis::Live, ALL),
            (Axis::Snapshot, ALL),
            (Axis::Mover, ALL),
            (Axis::Stamp, ALL),
            (Axis::Policy, ALL),
            (Axis::Namespace, ALL),
            (Axis::OnNamespaceDelete, ALL),
            (Axis::Place, ALL),
            (Axis::Others, &[1, 2]),
        ],
    },
    Block {
        name: "what a stamp counts for, and what is latched",
        axes: &[
            (Axis::Stamp, ALL),
            (Axis::StampTime, ALL),
            (Axis::Held, ALL),
            (Axis::HeldThrough, ALL),
            (Axis::Namespace, ALL),
            (Axis::OnNamespaceDelete, &[0, 1]),
            (Axis::Policy, &[0, 1]),
            (Axis::Owner, &[0, 2]),
            (Axis::Resolution, &[0, 8]),
            (Axis::Second, &[0, 2]),
            (Axis::Others, &[0, 2]),
            (Axis::Live, &[0, 2]),
        ],
    },
    Block {
        name: "rule 9: threshold, count, latch, acknowledgement",
        axes: &[
            (Axis::Threshold, ALL),
            (Axis::Second, ALL),
            (Axis::Others, ALL),
            (Axis::Acknowledgement, ALL),
            (Axis::OtherAcknowledgement, ALL),
            (Axis::Held, &[0, 1]),
            (Axis::HeldThrough, ALL),
            (Axis::Stamp, &[0, 2]),
            (Axis::Resolution, &[0, 1, 5, 6, 8]),
            (Axis::Unplaced, ALL),
        ],
    },
    Block {
        name: "rule 9: what the lane remembers, and the sliding window",
        axes: &[
            (Axis::Memory, ALL),
            (Axis::Window, ALL),
            (Axis::Threshold, ALL),
            (Axis::Second, ALL),
            (Axis::Others, ALL),
            (Axis::Acknowledgement, &[0, 1]),
            (Axis::Held, &[0, 1]),
            (Axis::HeldThrough, &[0, 1, 2]),
            (Axis::Stamp, &[0, 2]),
            (Axis::StampTime, &[0, 2]),
            (Axis::Resolution, &[0, 1, 8]),
        ],
    },
    Block {
        name: "what keeps a deletion from firing now",
        axes: &[
            (Axis::Suspend, &[0, 1]),
            (Axis::Connected, ALL),
            (Axis::RepositoryBackoff, ALL),
            (Axis::Tries, ALL),
            (Axis::FirstSeen, ALL),
            (Axis::Paused, ALL),
            (Axis::Cap, ALL),
            (Axis::Bytes, ALL),
            (Axis::Snapshot, &[0, 2]),
            (Axis::Mover, &[0, 1]),
            (Axis::Namespace, &[0, 2]),
            (Axis::Owner, &[0, 5]),
            (Axis::Live, ALL),
            (Axis::Stamp, &[0, 2]),
            (Axis::Acknowledgement, &[0, 1]),
        ],
    },
    Block {
        name: "what stops the whole lane",
        axes: &[
            (Axis::Lane, ALL),
            (Axis::Skip, ALL),
            (Axis::Uninstall, ALL),
            (Axis::Live, ALL),
            (Axis::Stamp, ALL),
            (Axis::Policy, ALL),
            (Axis::Resolution, ALL),
            (Axis::Second, ALL),
            (Axis::Suspend, ALL),
        ],
    },
    Block {
        name: "two members of one snapshot",
        axes: &[
            (Axis::Twin, ALL),
            (Axis::Snapshot, ALL),
            (Axis::Stamp, ALL),
            (Axis::Policy, ALL),
            (Axis::Owner, ALL),
            (Axis::Cascade, ALL),
            (Axis::Namespace, ALL),
            (Axis::Acknowledgement, &[0, 1]),
            (Axis::Others, ALL),
        ],
    },
];

impl Block {
    fn values(&self) -> impl Iterator<Item = (usize, Vec<u8>)> {
        self.axes.iter().map(|(axis, values)| {
            let size = SIZES[*axis as usize];
            let values = values.iter().copied().filter(|value| *value < size).collect();
            (*axis as usize, values)
        })
    }

    /// How many points it has.
    pub fn len(&self) -> u64 {
        self.values().map(|(_, values)| values.len() as u64).product()
    }

    /// Point number `index`.
    pub fn point(&self, mut index: u64) -> Point {
        let mut point = [0; AXES];
        for (axis, values) in self.values() {
            let size = values.len() as u64;
            point[axis] = values[usize::try_from(index % size).unwrap()];
            index /= size;
        }
        point
    }
}

/// How many combinations all axes have together.
pub fn everything() -> f64 {
    SIZES.iter().map(|size| f64::from(*size)).product()
}

/// Point number `index` of a sample of everything: the same in each run. Axes are left at their plain value now
/// and then, or hardly any point would get as far as the later rules.
pub fn sample(index: u64) -> Point {
    let mut state = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let plain = next() % 10;
    let mut point = [0; AXES];
    for (axis, value) in point.iter_mut().enumerate() {
        let (keep, pick) = (next() % 10, next());
        if keep >= plain {
            *value = u8::try_from(pick % u64::from(SIZES[axis])).unwrap();
        }
    }
    point
}
