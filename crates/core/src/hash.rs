//! FNV-1a, 64 bit: small, and the same in every process and release.
//!
//! **Promises.** The offsets it spreads schedules by never change for an object.
//!
//! **Assumes.** Nobody needs it to resist anybody.

/// FNV-1a over all bytes.
#[must_use]
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
