//! Everything that one server knows: keys, clients, scripts, faults.

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
    /// The keyspace that the command in hand is about.
    pub(crate) current: usize,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) next_client: u64,
    /// Texts by their digests.
    pub(crate) scripts: HashMap<String, Vec<u8>>,
    pub(crate) config: BTreeMap<String, String>,
    /// What clients have to say first; empty: nothing.
    pub(crate) password: String,
    pub(crate) faults: Faults,
    pub(crate) identity: Identity,
    clock: Option<Clock>,
    /// When the command in hand began, in microseconds since 1970: time stands still in a script.
    pub(crate) began: u64,
    /// What clients sent, the oldest first.
    pub(crate) sent: VecDeque<Vec<String>>,
    /// How often each command ran, in scripts too.
    pub(crate) calls: BTreeMap<String, u64>,
    /// How often each error was answered, by its first word.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// Who the server says it is.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) run_id: String,
    pub(crate) replication_id: String,
    /// The first TCP port that it listens at; 0 if there is none.
    pub(crate) port: u16,
    pub(crate) started: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: String,
    /// Where it came to.
    pub(crate) local: String,
    /// It said the password, or needed none.
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
    /// Closes the connection at once.
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

    /// Another process from now on, as after a restart.
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

    /// Takes the time for the command that comes now.
    pub(crate) fn begin(&mut self, keyspace: usize) {
        self.began = self.micros();
        self.current = keyspace;
        self.keyspaces[keyspace].set_now(self.began / 1000);
    }

    /// The keys that the command in hand is about.
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

    pub(crate) fn client(&mut self, id: Option<u64>) -> Option<&mut Client> {
        self.clients.get_mut(&id?)
    }

    /// Writes to one client; a client that reads too little is closed, as Redis does.
    pub(crate) fn tell(&mut self, id: u64, reply: &Reply) {
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

    /// Closes every connection at once; nothing more is written to any.
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

/// How Redis names its runs: forty hexadecimal digits.
fn random_id() -> String {
    let [first, second] = [(); 2].map(|()| Uuid::new_v4().simple().to_string());
    format!("{first}{}", &second[..8])
}

/// Bytes as text, for people.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What can be asked with CONFIG GET.
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
/// As many as Redis has.
pub(crate) const DATABASES: usize = 16;
pub(crate) const MOST_NOTED: usize = 10_000;
