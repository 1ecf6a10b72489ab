//! Set-ups of many processes that many tests use, one after the other.
//!
//! A static is never dropped, so it is not this process that ends them: another one sees it go.

use std::io::Write;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Up to a fixed number of them, each started when it is needed.
pub(crate) struct Pool<T: 'static> {
    idle: Mutex<Vec<T>>,
    room: Semaphore,
}

/// One of them, for as long as it is kept.
pub(crate) struct Lent<T: 'static> {
    pool: &'static Pool<T>,
    /// The set-up is returned before its permit.
    value: Option<T>,
    _room: SemaphorePermit<'static>,
}

impl<T> Pool<T> {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            room: Semaphore::const_new(most),
        }
    }

    /// Waits until there is one, or room for another. `start` returns which processes belong to it, and
    /// where they write.
    pub(crate) async fn take(
        &'static self,
        start: impl AsyncFnOnce() -> (T, Vec<(u32, PathBuf)>),
    ) -> Lent<T> {
        let room = self.room.acquire().await.expect("it is never closed");
        let idle = self.idle.lock().unwrap().pop();
        let value = match idle {
            Some(value) => value,
            None => {
                let (value, processes) = start().await;
                end_with_this_process(&processes);
                value
            }
        };
        Lent {
            pool: self,
            value: Some(value),
            _room: room,
        }
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until the drop")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        // Taken out of a poisoned list, too: a test that failed must not fail others.
        let mut idle = self
            .pool
            .idle
            .lock()
            .unwrap_or_else(|lost| lost.into_inner());
        idle.extend(self.value.take());
    }
}

/// Starts a process that kills these processes and removes their folders when this process ends.
fn end_with_this_process(processes: &[(u32, PathBuf)]) {
    static LAST: OnceLock<Mutex<Child>> = OnceLock::new();
    let last = LAST.get_or_init(|| Mutex::new(start_last()));
    let last = last.lock().unwrap();
    let mut input = last.stdin.as_ref().expect("it is piped");
    for (pid, folder) in processes {
        let line = format!("{pid} {}\n", folder.display());
        input.write_all(line.as_bytes()).expect("it reads");
    }
}

/// The pipe to it is open for as long as this process lives, and no other process has it.
fn start_last() -> Child {
    let text = "trap '' HUP INT TERM
        pids= folders=
        while read -r pid folder; do pids=\"$pids $pid\" folders=\"$folders $folder\"; done
        kill -9 $pids
        sleep 0.1
        rm -rf $folders";
    Command::new("sh")
        .args(["-c", text])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("there is a shell")
}
