//! Who maintains a repository, where its format has a record of that (Kopia's `owner`).
//!
//! **Promises.** What somebody was named for on purpose is written over only with [`Takeover::Force`].

/// `spec.ownership.takeoverPolicy`: what is done where another is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// Leave it to them.
    Never,
    /// Leave it to them, and ask a person.
    Prompt,
    /// Take it over.
    Force,
}

/// What the repository says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// Its format has no such record: nobody can be asked.
    NotKept,
    /// Nobody was ever named on purpose.
    Nobody,
    /// This one.
    Somebody(&'a str),
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// It is ours: run.
    Ours,
    /// Record our name, then run.
    Claim,
    /// It is another's: do nothing.
    Yield,
}

/// Decides for the one who is called `own`.
#[must_use]
pub fn lease(found: Found<'_>, own: &str, takeover: Takeover) -> Lease {
    match found {
        Found::NotKept => Lease::Ours,
        Found::Nobody => Lease::Claim,
        Found::Somebody(name) if name == own => Lease::Ours,
        Found::Somebody(_) => match takeover {
            Takeover::Force => Lease::Claim,
            Takeover::Never | Takeover::Prompt => Lease::Yield,
        },
    }
}
