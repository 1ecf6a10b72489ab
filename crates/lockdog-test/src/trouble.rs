//! The faults that a test can ask for.

use std::time::Duration;

use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::commands::{knows, publish};
use crate::database::text;
use crate::keyspace::Value;
use crate::server::Server;

/// What a server still has after a restart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Data {
    /// All keys, as a server that wrote everything to disk.
    Kept,
    /// Nothing.
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
    /// Deletes a lock's key, as an eviction or a stranger's `DEL` does. Nobody is told: the holder
    /// learns it at its next renewal, waiters when they look again.
    ///
    /// # Panics
    ///
    /// If there is no such key; it lists those that there are.
    #[track_caller]
    pub fn lose(&self, lock: &str) {
        let was = self.with(|database| database.keys().remove(lock.as_bytes()));
        assert!(
            was,
            "there is no lock {lock:?}; the keys are {:?}",
            self.keys()
        );
    }

    /// Gives a lock to another client, whoever has it, and also if it is free. That client renews it
    /// and releases it, with a message to those who wait, when the returned value is dropped. Whoever
    /// had the lock is told nothing, as with [`Server::lose`].
    pub fn steal(&self, lock: &str) -> Stolen {
        let field = format!("{}:thief.1", Uuid::new_v4());
        let hash = vec![(field.clone().into_bytes(), b"1".to_vec())];
        self.with(|database| {
            let keys = database.keys();
            let until = keys.now() + millis(STOLEN_LEASE);
            keys.put(lock.as_bytes(), Value::Hash(hash), Some(until));
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

    /// Stops the server where it is, as `SIGSTOP` does: connections stay open and new ones are taken,
    /// and no command runs before [`Server::thaw`]. Time goes on, and leases with it.
    pub fn freeze(&self) {
        self.core().set_frozen(true);
    }

    /// Lets a frozen server go on: it executes what was sent to it meanwhile.
    pub fn thaw(&self) {
        self.core().set_frozen(false);
    }

    /// Breaks every connection that there is; new ones are served. What was sent and not yet executed
    /// is lost, and so are replies that [`Server::delay`] holds back.
    pub fn cut(&self) {
        self.core().database.lock().close_all();
    }

    /// How much later from now on everything arrives that the server sends, replies and messages, in
    /// its order. Zero, as in the beginning, for none.
    pub fn delay(&self, delay: Duration) {
        self.core().database.lock().faults.delay = delay;
    }

    /// The next `count` scripts run, and their connections break in place of the reply: their callers
    /// cannot know whether they ran. A script that the server does not know did not run, and does not
    /// count.
    pub fn lose_replies(&self, count: usize) {
        self.core().database.lock().faults.lost_replies = count;
    }

    /// Whether published messages are lost from now on: waiters are not told that a lock is free, and
    /// see it when they look again.
    pub fn lose_messages(&self, lost: bool) {
        self.core().database.lock().faults.loses_messages = lost;
    }

    /// The next `times` times somebody sends this command, or a script calls it, it gets this error
    /// in place of running: `refuse("evalsha", "OOM command not allowed when used memory >
    /// 'maxmemory'.", 3)`. Zero times takes that back.
    ///
    /// # Panics
    ///
    /// If the server has no such command, or if the error is empty or has more than one line.
    #[track_caller]
    pub fn refuse(&self, command: &str, error: &str, times: usize) {
        assert!(
            knows(command),
            "the test server has no command {command:?} to refuse: give its first word alone"
        );
        assert!(
            !error.is_empty() && !error.contains(['\r', '\n']),
            "an error is one line and not empty: {error:?}"
        );
        let mut database = self.core().database.lock();
        database.faults.refuse(command, error, times);
    }

    /// Ends the server and starts it again: every connection breaks, scripts are forgotten, and the
    /// server has another run id, by which clients see that it may have lost data. A frozen server
    /// goes on. The faults that are on stay on.
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
    /// Whether the key still says so: someone may have taken the lock by force, or lost it.
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

fn has(value: &Value, field: &str) -> bool {
    matches!(value, Value::Hash(fields) if fields.iter().any(|(name, _)| text(name) == field))
}

/// Where Redisson and lockdog publish that a lock is free.
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

/// Redisson's default.
const STOLEN_LEASE: Duration = Duration::from_secs(30);
