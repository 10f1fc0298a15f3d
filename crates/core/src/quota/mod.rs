//! How storage is counted and how its limit is kept (`docs/design.md` section 4).
//!
//! **Promises.** What is used never falls because an object was deleted, only because bytes are proven gone, measured
//! to be fewer, or written off. It is never negative, and equals a count from scratch after any history. The gate
//! never admits more than the limit leaves, as long as it is asked by one leader with a complete ledger.
//!
//! **Assumes.** The caller writes every [`Change`] to the API server in the order it is given, and applies it to the
//! [`Ledger`] only then. After a death between two of them it builds the ledger from what was written and shows it
//! every object again.
//!
//! Where to look: [`record`] is what is remembered, [`transitions`] what objects do to it, [`enumerate`] what a
//! listing does to it, [`driver`] what a driver's own objects prove, [`figures`] what it adds up to, [`gate`] who is let in, [`publish`] what people see.

pub mod amount;
pub mod capability;
pub mod driver;
pub mod enumerate;
pub mod figures;
pub mod gate;
pub mod identity;
pub mod ledger;
pub mod pace;
pub mod publish;
pub mod record;
pub mod reservations;
pub mod runs;
pub mod tenancy;
pub mod transitions;
pub mod unaccounted;
pub mod watches;

pub use capability::{Capabilities, DeclaredBy, Deletion, InForce};
pub use figures::Figures;
pub use identity::{Identity, Location, StrategyKind, Thing};
pub use ledger::{Change, Ledger};
pub use record::{
    Application, BackupEntry, JobEntry, ListingEntry, Reason, Record, RemoveReason, Size, SizeSource, State,
    Subject, Times,
};

/// The names of the two quota dimensions, as the caller's contract has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions<'a> {
    /// Bytes.
    pub size: &'a str,
    /// Things in storage.
    pub count: &'a str,
}

/// Gives each variant of an enum its one word.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, for tests and the docs.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its one word, the same in records, events, metrics and the docs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The variant of a word, if it is one.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.as_str() == word)
            }
        }
    };
}
pub(crate) use words;
