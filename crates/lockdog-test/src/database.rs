//! The state of one server: keys, clients, scripts, faults.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::Sender;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::faults::Faults;
use crate::keyspace::Keyspace;
use crate::reply::Reply;

/// The state of a server. `Default` is a placeholder while a script has the real one.
#[derive(Debug, Default)]
pub(crate) struct Database {
    keyspaces: Vec<Keyspace>,
    /// The index of the keyspace for the current command.
    pub(crate) current: usize,
    pub(crate) clients: BTreeMap<u64, ClientConnection>,
    pub(crate) next_client: u64,
    /// How many scripts ran, also those that failed.
    pub(crate) scripts_run: u64,
    /// Script texts by digest.
    pub(crate) scripts: HashMap<String, Vec<u8>>,
    pub(crate) config: BTreeMap<String, String>,
    /// The password that clients must send first; empty for none.
    pub(crate) password: String,
    pub(crate) faults: Faults,
    pub(crate) identity: ServerIdentity,
    clock: Option<Clock>,
    /// When the current command began, in microseconds since 1970. Time does not advance in a script.
    pub(crate) began: u64,
    /// The commands that clients sent, oldest first.
    pub(crate) sent: VecDeque<Vec<String>>,
    /// How often each command ran, including calls by scripts.
    pub(crate) calls: BTreeMap<String, u64>,
    /// How often each error was returned, by its first word.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// The identity that the server reports.
#[derive(Debug, Default)]
pub(crate) struct ServerIdentity {
    pub(crate) run_id: String,
    pub(crate) replication_id: String,
    /// The first TCP port that it listens on; 0 if there is none.
    pub(crate) port: u16,
    pub(crate) started: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) address: String,
    /// The address that it connected to.
    pub(crate) local: String,
    /// It has authenticated, or no password is needed.
    pub(crate) is_let_in: bool,
    pub(crate) name: String,
    pub(crate) library: [String; 2],
    pub(crate) is_resp3: bool,
    pub(crate) database: usize,
    pub(crate) last_command: String,
    pub(crate) created: u64,
    pub(crate) active: u64,
    pub(crate) is_monitor: bool,
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) patterns: BTreeSet<Vec<u8>>,
    pub(crate) shard_channels: BTreeSet<Vec<u8>>,
    pub(crate) outbox: Sender<(Instant, Vec<u8>)>,
    /// Closes the connection immediately.
    pub(crate) closing: CancellationToken,
}

/// tokio's clock, shown as time since 1970.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
    wall: Duration,
}

impl Database {
    pub(crate) fn new() -> Self {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut database = Self {
            keyspaces: vec![Keyspace::default(); DATABASES],
            next_client: 1,
            clock: Some(Clock {
                start: Instant::now(),
                wall,
            }),
            ..Self::default()
        };
        database.be_born();
        database
    }

    /// Changes the identity, as a restart does.
    pub(crate) fn be_born(&mut self) {
        self.identity.run_id = random_id();
        self.identity.replication_id = random_id();
        self.identity.started = self.micros();
        self.scripts.clear();
        self.config = DEFAULTS
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
    }

    /// Microseconds since 1970.
    pub(crate) fn micros(&self) -> u64 {
        let Some(clock) = self.clock else { return 0 };
        (clock.wall + clock.start.elapsed()).as_micros() as u64
    }

    /// Reads the clock for the next command.
    pub(crate) fn begin(&mut self, keyspace: usize) {
        self.began = self.micros();
        self.current = keyspace;
        self.keyspaces[keyspace].set_now(self.began / 1000);
    }

    /// The keyspace of the current command.
    pub(crate) fn keys(&mut self) -> &mut Keyspace {
        let current = self.current;
        &mut self.keyspaces[current]
    }

    pub(crate) fn keyspaces(&mut self) -> impl Iterator<Item = &mut Keyspace> {
        let now = self.micros() / 1000;
        for keyspace in &mut self.keyspaces {
            keyspace.set_now(now);
        }
        self.keyspaces.iter_mut()
    }

    pub(crate) fn client(&mut self, id: Option<u64>) -> Option<&mut ClientConnection> {
        self.clients.get_mut(&id?)
    }

    /// Writes to one client. A client that reads too slowly is disconnected, as in Redis.
    pub(crate) fn send(&mut self, id: u64, reply: &Reply) {
        let due = Instant::now() + self.faults.delay;
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let mut bytes = Vec::new();
        reply.write(client.is_resp3, &mut bytes);
        if client.outbox.try_send((due, bytes)).is_err() {
            client.closing.cancel();
        }
    }

    /// Closes every connection immediately; nothing more is written to any.
    pub(crate) fn close_all(&mut self) {
        for client in std::mem::take(&mut self.clients).values() {
            client.closing.cancel();
        }
    }

    pub(crate) fn note_sent(&mut self, args: &[Vec<u8>]) {
        if self.sent.len() == MOST_NOTED {
            self.sent.pop_front();
        }
        let texts = args.iter().map(|arg| text(arg));
        self.sent.push_back(texts.collect());
    }
}

/// A run id as Redis makes them: forty hexadecimal digits.
fn random_id() -> String {
    let [first, second] = [(); 2].map(|()| Uuid::new_v4().simple().to_string());
    format!("{first}{}", &second[..8])
}

/// Bytes as readable text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The settings that CONFIG GET knows.
const DEFAULTS: &[(&str, &str)] = &[
    ("appendonly", "no"),
    ("databases", "16"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-max-lag", "10"),
    ("min-replicas-to-write", "0"),
    ("notify-keyspace-events", ""),
    ("proto-max-bulk-len", "536870912"),
    ("save", "3600 1 300 100 60 10000"),
    ("timeout", "0"),
];
/// The same number as in Redis.
pub(crate) const DATABASES: usize = 16;
pub(crate) const MOST_NOTED: usize = 10_000;
