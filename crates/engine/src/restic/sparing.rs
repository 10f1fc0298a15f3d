//! How much of a repository a restore holds in memory.
//!
//! **Promises.** Of what was read of packs and is not known to be written, no more is held than [`ROOM`], or one pack
//! where that is larger. The library reads twenty packs at once, whole, and writes them when it gets round to it: with
//! large packs that is more than a mover is given.
//!
//! **Assumes.** The library drops what it read when it has decoded it, and tells each byte that it has written. Bytes count
//! as they are stored: what compresses well takes more, decoded, than is counted, and so does a target that takes nothing
//! for longer than [`STILL`].

use bytes::Bytes;
use rustic_core::{BytesList, FileType, Id, ReadBackend, RusticResult, WriteBackend};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes.
const ROOM: u64 = 96 << 20;
/// When nothing moved for so long, what seems unwritten is what nobody wants: a pack is read with its gaps.
const STILL: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Held {
    /// Read, and not decoded.
    read: u64,
    /// Decoded, and not written as far as it is known.
    unwritten: u64,
}

/// The room that a restore takes.
#[derive(Debug, Default)]
pub(super) struct Room {
    held: Mutex<Held>,
    moved: Condvar,
}

impl Room {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: u64) {
        let mut held = self.held();
        while held.read + held.unwritten > 0 && held.read + held.unwritten + bytes > ROOM {
            let (after, waited) = self
                .moved
                .wait_timeout(held, STILL)
                .unwrap_or_else(PoisonError::into_inner);
            held = after;
            if waited.timed_out() {
                held.unwritten = 0;
            }
        }
        held.read += bytes;
    }

    fn decoded(&self, bytes: u64) {
        let mut held = self.held();
        held.read = held.read.saturating_sub(bytes);
        held.unwritten += bytes;
        self.moved.notify_all();
    }

    /// Bytes of files were written.
    pub(super) fn written(&self, bytes: u64) {
        let mut held = self.held();
        held.unwritten = held.unwritten.saturating_sub(bytes);
        self.moved.notify_all();
    }
}

/// What was read of a pack, as long as it is needed.
struct Part {
    bytes: Bytes,
    room: Arc<Room>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.room.decoded(self.bytes.len() as u64);
    }
}

/// A repository's storage, read sparingly.
#[derive(Debug)]
pub(super) struct Sparing {
    pub(super) inner: Arc<dyn WriteBackend>,
    pub(super) room: Arc<Room>,
}

impl ReadBackend for Sparing {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn list_with_size(&self, tpe: FileType) -> RusticResult<Vec<(Id, u32)>> {
        self.inner.list_with_size(tpe)
    }

    fn read_full(&self, tpe: FileType, id: &Id) -> RusticResult<Bytes> {
        self.inner.read_full(tpe, id)
    }

    fn read_partial(
        &self,
        tpe: FileType,
        id: &Id,
        cacheable: bool,
        offset: u32,
        length: u32,
    ) -> RusticResult<Bytes> {
        // Folders' contents are read before any file's, and are what the library may cache.
        if tpe != FileType::Pack || cacheable {
            return self.inner.read_partial(tpe, id, cacheable, offset, length);
        }
        self.room.take(length.into());
        match self.inner.read_partial(tpe, id, cacheable, offset, length) {
            Ok(bytes) if bytes.len() as u64 == u64::from(length) => Ok(Bytes::from_owner(Part {
                bytes,
                room: Arc::clone(&self.room),
            })),
            other => {
                self.room.decoded(length.into());
                self.room.written(length.into());
                other
            }
        }
    }

    fn warmup_path(&self, tpe: FileType, id: &Id) -> String {
        self.inner.warmup_path(tpe, id)
    }
}

impl WriteBackend for Sparing {
    fn create(&self) -> RusticResult<()> {
        self.inner.create()
    }

    fn write_bytes(&self, tpe: FileType, id: &Id, cacheable: bool, content: BytesList) -> RusticResult<()> {
        self.inner.write_bytes(tpe, id, cacheable, content)
    }

    fn remove(&self, tpe: FileType, id: &Id, cacheable: bool) -> RusticResult<()> {
        self.inner.remove(tpe, id, cacheable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    /// Twenty readers of 32 MiB each, as the library has them, and a target that takes its time.
    #[test]
    fn what_is_read_and_not_written_stays_within_the_room() {
        const PACK: u64 = 32 << 20;
        let (room, now, most) = (Room::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        room.take(PACK);
                        let held = now.fetch_add(PACK, Ordering::SeqCst) + PACK;
                        most.fetch_max(held, Ordering::SeqCst);
                        room.decoded(PACK);
                        for _ in 0..8 {
                            std::thread::sleep(Duration::from_millis(1));
                            now.fetch_sub(PACK / 8, Ordering::SeqCst);
                            room.written(PACK / 8);
                        }
                    }
                });
            }
        });
        let most = most.load(Ordering::SeqCst);
        assert!((2 * PACK..=ROOM).contains(&most), "{most}");
        let held = room.held();
        assert_eq!((held.read, held.unwritten), (0, 0));
    }

    #[test]
    fn a_pack_larger_than_the_room_is_read_alone_and_gaps_stop_nothing() {
        let room = Room::default();
        room.take(ROOM * 2);
        room.decoded(ROOM * 2);
        // A byte of it was wanted.
        room.written(1);
        let begun = Instant::now();
        room.take(ROOM);
        assert!(begun.elapsed() >= STILL);
        let held = room.held();
        assert_eq!((held.read, held.unwritten), (ROOM, 0));
    }
}
