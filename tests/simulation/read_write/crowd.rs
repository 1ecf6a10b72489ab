//! A continuous sequence of readers, and a writer that waits for a reader with a long hold (RW6).

use std::time::Duration;

use tokio::time::Instant;

use crate::owner::Owner;
use crate::read_write_lock::ReadWriteLock;
use crate::simulation::chance::Chance;

/// A reader with a hold of its own length, and after it readers at a fixed interval, half of them in
/// the writer's client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Crowd {
    long_ms: u64,
    every_ms: u64,
    each_ms: u64,
}

impl Crowd {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let every_ms = chance.within(100, 400);
        Self {
            long_ms: chance.within(100, 16_000),
            every_ms,
            // The holds overlap: without the writer, one of the readers would hold the lock at each
            // moment.
            each_ms: every_ms + chance.within(50, 1_000),
        }
    }

    /// Runs the readers and the writer, and returns an error if the writer waits too long.
    pub(super) async fn come(
        self,
        [here, there]: [ReadWriteLock; 2],
        poll_cap_ms: u64,
    ) -> Option<String> {
        let ms = Duration::from_millis;
        let long = there.read().lock().owner(&Owner::new()).await.ok()?;
        let began = Instant::now();
        let write = here.write().try_lock().owner(&Owner::new());
        let writing = tokio::spawn(write.wait(ms(120_000)).into_future());
        let mut readers = Vec::new();
        let mut long = Some(long);
        let mut n = 0;
        while !writing.is_finished() {
            tokio::time::sleep(ms(self.every_ms)).await;
            if began.elapsed() >= ms(self.long_ms) {
                drop(long.take());
            }
            let read = [&here, &there][n % 2].read();
            readers.push(tokio::spawn(async move {
                let guard = read.lock().owner(&Owner::new()).await;
                tokio::time::sleep(ms(self.each_ms)).await;
                drop(guard);
            }));
            n += 1;
        }
        let took = began.elapsed();
        let written = writing.await.ok()?;
        let is_in = matches!(written, Ok(Some(_)));
        drop(written);
        for reader in readers {
            reader.await.ok()?;
        }
        // The loop checks the writer once per reader, and the watchdog releases dropped holds.
        let slack = self.every_ms + SLACK_MS;
        let from = (self.long_ms + self.every_ms).max(6_000);
        let bound = ms(from + 2_000 + self.each_ms + poll_cap_ms + slack);
        (!is_in || took > bound).then(|| format!("the writer waited {took:?}, not {bound:?}"))
    }
}

/// Some round trips, and the gaps before the commands of the watchdog.
const SLACK_MS: u64 = 500;
