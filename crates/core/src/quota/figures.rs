//! What the records of one namespace add up to (`docs/design.md` 4.1).
//!
//! **Promises.** Adding and removing records one by one gives the same as counting them from scratch, in any order;
//! nothing is negative, and what is told saturates.
//!
//! **Assumes.** A record is removed as it was added.

use super::amount::clamp;
use super::record::{Record, State};

/// Sums over records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    // Wider than what is told: a sum that saturates could not be taken back.
    attributed: i128,
    retained: i128,
    pending_purge: i128,
    written_off: i128,
    count: i64,
    in_flight: i64,
    unreported: i64,
    shared: i64,
}

impl Figures {
    /// Of these records, from scratch.
    pub fn count_all<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut all = Self::default();
        for record in records {
            all.add(record);
        }
        all
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        self.change(record, 1);
    }

    /// Takes a record away that was added before.
    pub fn remove(&mut self, record: &Record) {
        self.change(record, -1);
    }

    fn change(&mut self, record: &Record, by: i64) {
        let bytes = i128::from(record.size.bytes.unwrap_or(0).max(0)) * i128::from(by);
        match record.state {
            State::InFlight => self.in_flight += by,
            State::Attributed => self.attributed += bytes,
            State::PendingPurge => {
                self.retained += bytes;
                self.pending_purge += bytes;
            }
            State::Retained | State::Unknown => self.retained += bytes,
            State::Released => {}
            State::WrittenOff => self.written_off += bytes,
        }
        if record.state.is_charged() {
            self.count += by;
            self.unreported += if record.size.bytes.is_none() { by } else { 0 };
            self.shared += if record.shared_across_namespaces { by } else { 0 };
        }
    }

    /// Bytes charged: attributed and retained, before clamping to what a quota can hold.
    #[must_use]
    pub fn used_size(&self) -> i64 {
        told(self.attributed + self.retained)
    }

    /// Bytes charged, as they are published.
    #[must_use]
    pub fn published_size(&self) -> i64 {
        clamp(self.used_size())
    }

    /// Things charged.
    #[must_use]
    pub fn used_count(&self) -> i64 {
        self.count.max(0)
    }

    /// Bytes to which Backups refer.
    #[must_use]
    pub fn attributed(&self) -> i64 {
        told(self.attributed)
    }

    /// Bytes to which no Backup refers any more, pending purge included.
    #[must_use]
    pub fn retained(&self) -> i64 {
        told(self.retained)
    }

    /// Bytes whose deletion was asked for and is not proven.
    #[must_use]
    pub fn pending_purge(&self) -> i64 {
        told(self.pending_purge)
    }

    /// Bytes that an administrator wrote off. Not charged.
    #[must_use]
    pub fn written_off(&self) -> i64 {
        told(self.written_off)
    }

    /// Charged things whose size nobody knows.
    #[must_use]
    pub fn unreported(&self) -> i64 {
        self.unreported.max(0)
    }

    /// Runs under way, by their records.
    #[must_use]
    pub fn in_flight(&self) -> i64 {
        self.in_flight.max(0)
    }

    /// Charged things that another namespace has a record of too.
    #[must_use]
    pub fn shared(&self) -> i64 {
        self.shared.max(0)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            attributed: self.attributed + other.attributed,
            retained: self.retained + other.retained,
            pending_purge: self.pending_purge + other.pending_purge,
            written_off: self.written_off + other.written_off,
            count: self.count + other.count,
            in_flight: self.in_flight + other.in_flight,
            unreported: self.unreported + other.unreported,
            shared: self.shared + other.shared,
        }
    }

    /// Nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn told(sum: i128) -> i64 {
    i64::try_from(sum.max(0)).unwrap_or(i64::MAX)
}
