//! The public interface of the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::net::{TcpListener, ToSocketAddrs, lookup_host};
use tokio::runtime::Handle;

use crate::commands::{channels, listeners};
use crate::connection::{Ends, serve};
use crate::core::{ENDED, ServerState};
use crate::database::{Database, text};
use crate::keyspace::{Entry, StoredValue};

/// A Redis server inside the test's process. A clone is another handle to the same server. The server
/// ends with its last handle, the last client that [`Server::client`] or [`Server::builder`] made, and the last
/// [`Stolen`](crate::Stolen); then its connections break. It also ends with the runtime on which it was created.
///
/// [`Server::holder`], [`Server::keys`], [`Server::lose`] and [`Server::steal`] see database 0, the default of
/// [`ClientBuilder::database`](lockdog::ClientBuilder::database). [`Server::assert_clean`] sees all databases.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// The server ends when this is dropped.
struct Shared {
    core: Arc<ServerState>,
}

/// The holder of a lock, as the server sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// The field of the hash: `<client uuid>:<owner>.<hold number>` for lockdog, `<uuid>:<thread id>`
    /// for Redisson.
    pub field: String,
    /// The hold count.
    pub count: u32,
    /// The rest of the lease, in milliseconds on the wire; `None` for a key without an expiry.
    pub ttl: Option<Duration>,
}

impl Server {
    /// Starts an empty server on the current runtime. Its clock is tokio's: it is paused if the
    /// runtime's clock is.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime.
    #[expect(clippy::new_without_default, reason = "it needs a runtime")]
    pub fn new() -> Self {
        let Ok(runtime) = Handle::try_current() else {
            panic!("lockdog_test::Server::new() was called outside of a tokio runtime");
        };
        Self {
            shared: Arc::new(Shared {
                core: Arc::new(ServerState::new(runtime)),
            }),
        }
    }

    /// Listens on TCP, for redis-cli, Java and other processes. Returns the address; port 0 means any.
    /// Other processes are in real time, so the runtime's clock should not be paused.
    ///
    /// # Errors
    ///
    /// The error of the operating system, usually for an address in use. An error, too, if the runtime on which
    /// the server was created has ended.
    ///
    /// # Panics
    ///
    /// If the runtime on which the server was created has no I/O.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the server does not listen.
    pub async fn listen(&self, address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        if self.core().has_runtime_ended() {
            return Err(io::Error::other(ENDED));
        }
        let addresses: Vec<SocketAddr> = lookup_host(address).await?.collect();
        // Not in a task of the server's runtime, because a runtime that does not run at present would never bind.
        let socket = std::net::TcpListener::bind(&addresses[..])?;
        socket.set_nonblocking(true)?;
        let listener = {
            // The socket belongs to the server's runtime, not to the caller's.
            let _runtime = self.core().runtime().enter();
            TcpListener::from_std(socket)?
        };
        let address = listener.local_addr()?;
        {
            let mut database = self.core().database.lock();
            if database.identity.port == 0 {
                database.identity.port = address.port();
            }
        }
        let core = self.core().clone();
        self.core().runtime().spawn(async move {
            tokio::select! {
                () = core.ending.cancelled() => {}
                () = accept(&core, &listener) => {}
            }
        });
        Ok(address)
    }

    /// A connection as a client opens it, without a network. Any client that speaks RESP can use it.
    pub fn connect(&self) -> DuplexStream {
        self.open().0
    }

    /// A connection, and whether the server serves it.
    pub(crate) fn open(&self) -> (DuplexStream, bool) {
        let core = self.core();
        let (theirs, ours) = tokio::io::duplex(PIPE);
        let number = core.next_pipe();
        let ends = Ends {
            client: format!("pipe:{number}"),
            server: "pipe".to_owned(),
        };
        let serving = core.runtime().spawn(serve(core.clone(), ours, ends));
        // A runtime that has ended drops the task immediately.
        (theirs, !serving.is_finished())
    }

    /// From now on clients must authenticate with this password, as with redis-server's `requirepass`.
    /// Existing connections stay authenticated. Empty, the default, for none.
    pub fn require_password(&self, password: &str) {
        password.clone_into(&mut self.core().database.lock().password);
    }

    /// The holder of this lock; `None` if it is free. If several clients hold it, as readers do,
    /// returns one of them.
    ///
    /// # Panics
    ///
    /// If the key is not a lock.
    pub fn holder(&self, lock: &str) -> Option<Holder> {
        self.with(|database| {
            let keys = database.keys();
            let now = keys.now();
            let Entry { value, until } = keys.entry(lock.as_bytes())?;
            let StoredValue::Hash(fields) = value else {
                panic!("the key {lock:?} is not a lock");
            };
            let (field, count) = fields.iter().find(|(field, _)| field != b"mode")?;
            Some(Holder {
                field: text(field),
                count: text(count).parse().unwrap_or_default(),
                ttl: until.map(|until| Duration::from_millis(until - now)),
            })
        })
    }

    /// The names of all keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.with(|database| {
            let names = database.keys().names();
            names.iter().map(|name| text(name)).collect()
        })
    }

    /// The last 10,000 commands that clients sent, with their arguments, oldest first. Calls by scripts
    /// are not included.
    pub fn commands(&self) -> Vec<Vec<String>> {
        self.core().database.lock().sent.iter().cloned().collect()
    }

    /// Waits until nothing of any lock is left: no key in any database, and no channel with a subscriber. A dropped
    /// guard and a cancelled call release in the background, so this waits for up to five seconds of
    /// tokio's time. Keys that are meant to stay do not count: counters of fencing tokens (`lockdog_token:...`,
    /// `redisson_lock_token:...`), the server's epoch (`lockdog:epoch`), and what the server remembers of executed
    /// calls and ended requests (`lockdog_ledger:...`). The number of a semaphore and the count of a latch do count:
    /// delete them first, with [`Server::lose`] or `CountDownLatch::delete`.
    ///
    /// # Panics
    ///
    /// If something is left after that time. The message lists what is left, and the subscribers.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    #[track_caller]
    pub fn assert_clean(&self) -> impl Future<Output = ()> + use<> {
        let server = self.clone();
        let caller = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + CLEAN_WITHIN;
            loop {
                let left = server.left();
                if left.is_empty() {
                    return;
                }
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "left on the server, at {caller}: {}",
                    left.join(", ")
                );
                tokio::time::sleep(CLEAN_PAUSE).await;
            }
        }
    }

    fn left(&self) -> Vec<String> {
        self.with(|database| {
            let mut left = Vec::new();
            for (number, keyspace) in database.keyspaces().enumerate() {
                for key in keyspace.names() {
                    let name = text(&key);
                    if keyspace
                        .entry(&key)
                        .is_some_and(|entry| stays(&name, &entry.value))
                    {
                        continue;
                    }
                    left.push(match number {
                        0 => format!("the key {name}"),
                        number => format!("the key {name} in database {number}"),
                    });
                }
            }
            for sharded in [false, true] {
                for channel in channels(database, sharded) {
                    let count = listeners(database, &channel, sharded);
                    left.push(format!("{count} listening on {}", text(&channel)));
                }
            }
            left
        })
    }

    pub(crate) fn core(&self) -> &Arc<ServerState> {
        &self.shared.core
    }

    /// Calls `act` with the current keys of the first database.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Database) -> T) -> T {
        // For any caller, the time is that of the server's own runtime.
        let _time = self.core().runtime().enter();
        let mut database = self.core().database.lock();
        database.begin(0);
        act(&mut database)
    }
}

/// Whether a key is meant to stay after the end of its lock, semaphore or latch.
fn stays(key: &str, value: &StoredValue) -> bool {
    // Counters of fencing tokens stay, so that no token is issued twice.
    let counters = ["lockdog_token:", "redisson_lock_token:"];
    if key == "lockdog:epoch" || counters.iter().any(|it| key.starts_with(it)) {
        return true;
    }
    // Calls that were executed and requests that have ended stay, so that late commands find them.
    key.starts_with("lockdog_ledger:")
        && match value {
            StoredValue::String(_) => true,
            StoredValue::Sorted(requests) => !requests.values().any(|has| SHARES.contains(has)),
            _ => false,
        }
}

async fn accept(core: &Arc<ServerState>, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Replies are small, and the client waits for each.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr();
                let ends = Ends {
                    client: address.to_string(),
                    server: local.map_or_else(|_| String::new(), |local| local.to_string()),
                };
                let serving = serve(core.clone(), stream, ends);
                core.runtime().spawn(serving);
            }
            // Usually too many open files. Retry after a pause, when some may be closed.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.ending.cancel();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

/// How many permits a request in a ledger has. Other scores are those of ended requests, and of the ledger's own mark.
const SHARES: Range<f64> = 1.0..2_147_483_648.0;
const PIPE: usize = 64 * 1024;
const CLEAN_WITHIN: Duration = Duration::from_secs(5);
const CLEAN_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
