//! The words for how a store stands, in its condition `Ready`, in metrics and in the docs.

/// How a store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreReason {
    /// The last listing reached the end, and what it led to is written.
    Listed,
    /// The same, and a large release waits for an administrator.
    ReleaseWaits,
    /// `spec.suspend`.
    Suspended,
    /// The store cannot be used as it is described.
    BadSpec,
    /// The Secret with the credentials or the certificates cannot be used.
    SecretUnusable,
    /// A listing did not reach the end.
    ListingFailed,
}

impl StoreReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Listed,
        Self::ReleaseWaits,
        Self::Suspended,
        Self::BadSpec,
        Self::SecretUnusable,
        Self::ListingFailed,
    ];

    /// Its one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "Listed",
            Self::ReleaseWaits => "ReleaseWaits",
            Self::Suspended => "Suspended",
            Self::BadSpec => "BadSpec",
            Self::SecretUnusable => "SecretUnusable",
            Self::ListingFailed => "ListingFailed",
        }
    }
}

/// Why a listing did not come about, or did not reach the end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// The word.
    pub reason: StoreReason,
    /// The sentence.
    pub message: String,
}

impl Trouble {
    /// Both.
    #[must_use]
    pub fn new(reason: StoreReason, message: String) -> Self {
        Self { reason, message }
    }
}
