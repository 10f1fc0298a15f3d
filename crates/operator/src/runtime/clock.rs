//! What time it is.
//!
//! **Promises.** Everything that a decision calls *now* is asked here, so that a test can let an hour pass in a
//! moment. The system's clock in every process that is no test.

use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// A clock; cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// One that is asked.
    #[must_use]
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
