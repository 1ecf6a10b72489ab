//! Readers of one client that wait for a writer of another client. They poll at once, and hold the lock
//! at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Result;
use crate::owner::Owner;
use crate::read_write_lock::ReadWriteLock;
use crate::simulation::chance::Chance;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Together {
    readers: u64,
    apart_ms: u64,
    /// From the last reader's call to the end of the write.
    held_ms: u64,
}

impl Together {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        Self {
            readers: chance.within(2, 8),
            apart_ms: chance.within(0, 20),
            held_ms: chance.within(0, 200),
        }
    }

    /// Runs the readers, and returns an error if their waits take too long after the end of the write.
    pub(super) async fn wait(self, locks: [ReadWriteLock; 2]) -> Option<String> {
        match self.took(locks).await {
            Ok(took) if took > ASKED => Some(format!("the readers were in after {took:?}")),
            Ok(_) => None,
            Err(error) => Some(format!("a reader or the writer fails: {error}")),
        }
    }

    async fn took(self, [here, there]: [ReadWriteLock; 2]) -> Result<Duration> {
        let write = there.write().lock().owner(&Owner::new());
        let write = write.lease(LONG).await?;
        let mut readers = Vec::new();
        for _ in 0..self.readers {
            let read = here.read().lock().owner(&Owner::new()).lease(LONG);
            readers.push(tokio::spawn(read.into_future()));
            tokio::time::sleep(Duration::from_millis(self.apart_ms)).await;
        }
        tokio::time::sleep(Duration::from_millis(self.held_ms)).await;
        let began = Instant::now();
        write.unlock().await?;
        // No reader unlocks before the last one has the lock, so no release wakes another.
        let mut guards = Vec::new();
        for reader in readers {
            guards.push(reader.await.expect("a reader does not panic")?);
        }
        Ok(began.elapsed())
    }
}

/// While they wait, no timer may wake them.
pub(super) const POLL_CAP_MS: u64 = 5_000;
const LONG: Duration = Duration::from_secs(60);
/// Some round trips, and far less than the poll cap.
const ASKED: Duration = Duration::from_millis(500);
