//! The faults that a test can inject.

use std::time::Duration;

use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::commands::{knows, publish};
use crate::database::text;
use crate::keyspace::StoredValue;
use crate::server::Server;

/// The data that a server has after a restart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Data {
    /// All keys, as on a server that wrote everything to disk.
    Kept,
    /// No keys.
    Lost,
}

/// A lock that another client holds, for as long as this value lives; see [`Server::steal`].
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct Stolen {
    server: Server,
    lock: String,
    field: String,
    renewing: JoinHandle<()>,
}

impl Server {
    /// Deletes a lock's key, as an eviction or another client's `DEL` does. No client is notified: the
    /// holder finds out at its next renewal, waiters at their next poll.
    ///
    /// # Panics
    ///
    /// If there is no such key. The message lists the existing keys.
    #[track_caller]
    pub fn lose(&self, lock: &str) {
        let was = self.with(|database| database.keys().remove(lock.as_bytes()));
        assert!(
            was,
            "there is no lock {lock:?}; the keys are {:?}",
            self.keys()
        );
    }

    /// Gives a lock to another client, whether it is held or free. That client renews it. When the
    /// returned value is dropped, that client releases the lock and publishes a message to waiters. The
    /// previous holder is not notified, as with [`Server::lose`]. A key of another type is replaced, and deleted at
    /// the end.
    ///
    /// That client takes and releases a plain lock. So waiters whose messages have other channels, those of fair
    /// and read/write locks, notice the release at their next poll. Most calls for a group lock, a semaphore or a
    /// latch of this name fail with `WRONGTYPE` meanwhile. The client has no connection, so it also renews and
    /// releases the lock while the server is frozen.
    pub fn steal(&self, lock: &str) -> Stolen {
        let field = format!("{}:thief.1", Uuid::new_v4());
        let hash = vec![(field.clone().into_bytes(), b"1".to_vec())];
        self.with(|database| {
            let keys = database.keys();
            let until = keys.now() + millis(STOLEN_LEASE);
            keys.put(lock.as_bytes(), StoredValue::Hash(hash), Some(until));
        });
        let (core, name, own) = (self.core().clone(), lock.to_owned(), field.clone());
        let renewing = self.core().runtime().spawn(async move {
            loop {
                tokio::time::sleep(STOLEN_LEASE / 3).await;
                let mut database = core.database.lock();
                database.begin(0);
                let keys = database.keys();
                let until = keys.now() + millis(STOLEN_LEASE);
                if let Some(entry) = keys.entry(name.as_bytes())
                    && has(&entry.value, &own)
                {
                    entry.until = Some(until);
                }
            }
        });
        Stolen {
            server: self.clone(),
            lock: lock.to_owned(),
            field,
            renewing,
        }
    }

    /// Stops the server, as `SIGSTOP` does: connections stay open and new ones are accepted, but no
    /// command runs before [`Server::thaw`]. Time continues, and leases expire.
    pub fn freeze(&self) {
        self.core().set_frozen(true);
    }

    /// Lets a frozen server continue. It executes the commands that were sent meanwhile.
    pub fn thaw(&self) {
        self.core().set_frozen(false);
    }

    /// Breaks every existing connection; new ones are served. Commands that were sent but not executed
    /// are lost, and so are replies that [`Server::delay`] holds back.
    pub fn cut(&self) {
        self.core().database.lock().close_all();
    }

    /// Delays everything that the server sends from now on, replies and messages, in order. Zero, the
    /// default, for no delay.
    pub fn delay(&self, delay: Duration) {
        // A moment that no clock can represent would be a panic of the server.
        self.core().database.lock().faults.delay = delay.min(LONGEST_DELAY);
    }

    /// The next `count` scripts run, but their connections break instead of a reply, so the callers
    /// cannot know whether they ran. A script that is refused or unknown to the server does not run, and does not
    /// count. Replies that were not sent before on such a connection are lost too, and commands after the script
    /// do not run.
    pub fn lose_replies(&self, count: u32) {
        self.core().database.lock().faults.lost_replies = count;
    }

    /// Whether published messages are lost from now on. Waiters then get no message that a lock is
    /// free, and detect it at their next poll.
    pub fn lose_messages(&self, lost: bool) {
        self.core().database.lock().faults.loses_messages = lost;
    }

    /// The next `times` times that a client sends this command, or a script calls it, it gets this
    /// error instead of running: `refuse("evalsha", "OOM command not allowed when used memory >
    /// 'maxmemory'.", 3)`. Zero times cancels this.
    ///
    /// # Panics
    ///
    /// If the server has no such command, or if the error is empty or has more than one line.
    #[track_caller]
    pub fn refuse(&self, command: &str, error: &str, times: u32) {
        assert!(
            knows(command),
            "the test server has no command {command:?} to refuse; pass only its first word"
        );
        assert!(
            !error.is_empty() && !error.contains(['\r', '\n']),
            "an error is one line and not empty: {error:?}"
        );
        let mut database = self.core().database.lock();
        database.faults.refuse(command, error, times);
    }

    /// Stops the server and starts it again: every connection breaks, scripts are lost, and the server
    /// has a new run id, by which clients see that it may have lost data. A frozen server continues.
    /// Active faults stay active, and a required password stays. Settings by `CONFIG SET` return to their defaults.
    pub fn restart(&self, data: Data) {
        self.with(|database| {
            database.close_all();
            database.be_born();
            if data == Data::Lost {
                for keyspace in database.keyspaces() {
                    keyspace.clear();
                }
            }
        });
        self.thaw();
    }
}

impl Stolen {
    /// Whether the key still has this holder. It may have been released by force, or lost.
    pub fn is_held(&self) -> bool {
        let found = self.server.holder(&self.lock);
        found.is_some_and(|holder| holder.field == self.field)
    }
}

impl Drop for Stolen {
    fn drop(&mut self) {
        self.renewing.abort();
        self.server.with(|database| {
            let keys = database.keys();
            let entry = keys.entry(self.lock.as_bytes());
            if !entry.is_some_and(|entry| has(&entry.value, &self.field)) {
                return;
            }
            keys.remove(self.lock.as_bytes());
            let channel = channel_of(&self.lock);
            for sharded in [false, true] {
                publish(database, channel.as_bytes(), b"0", sharded);
            }
        });
    }
}

fn has(value: &StoredValue, field: &str) -> bool {
    matches!(value, StoredValue::Hash(fields) if fields.iter().any(|(name, _)| text(name) == field))
}

/// The channel on which Redisson and lockdog publish that a lock is free.
fn channel_of(lock: &str) -> String {
    if lock.contains('{') {
        format!("redisson_lock__channel:{lock}")
    } else {
        format!("redisson_lock__channel:{{{lock}}}")
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// Longer than any test.
const LONGEST_DELAY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Redisson's default.
const STOLEN_LEASE: Duration = Duration::from_secs(30);
