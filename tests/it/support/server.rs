//! A private server for one test: its own port, its own folder, stopped and removed with the value.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::binary::Binary;
use crate::support::clock;
use crate::support::port::{free_port, is_free, keep};
use crate::support::process::{self, Process};
use crate::support::redis::Redis;

/// A running server. Every method takes `&self`, so that tasks can share one in an `Arc`.
#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    /// Where the other nodes of its cluster reach it.
    bus: Option<u16>,
    builder: ServerBuilder,
    /// `None` between `kill` and `restart`.
    process: Process,
    /// Its ports while it does not run.
    kept: Mutex<Vec<TcpSocket>>,
    folder: TempDir,
}

/// What `restart` finds on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// All keys are back. A server that was killed before must have been started with `persistent`.
    Kept,
    /// The server comes back empty, as a cache without persistence does.
    Lost,
}

impl RedisServer {
    /// Starts the server under test with nothing special.
    pub(crate) async fn start() -> Self {
        Self::builder().start().await
    }

    pub(crate) fn builder() -> ServerBuilder {
        ServerBuilder {
            args: Vec::new(),
            binary: Binary::under_test(),
            cluster_node: false,
            own_clock: false,
            password: None,
            persistent: false,
            socket: false,
            while_loading: false,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The URL with the same credentials and another port, where a proxy listens.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let user = self.builder.password.as_deref();
        let user = user.map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis://{user}127.0.0.1:{port}/")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The port for the other nodes, of a server built with `cluster_node`.
    pub(crate) fn bus(&self) -> u16 {
        self.bus.expect("it is a node of a cluster")
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.builder.password.as_deref()
    }

    /// The path of the unix socket, for a server built with `unix_socket`.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.builder
            .socket
            .then(|| self.folder.path().join("socket"))
    }

    /// Where the server keeps its data; gone when the value is dropped.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.with(Child::id)
    }

    /// The process, and the folder of everything that it writes.
    pub(crate) fn process(&self) -> (u32, PathBuf) {
        (self.pid(), self.folder.path().to_owned())
    }

    /// A connection that observes, with no fault between it and the server.
    pub(crate) async fn redis(&self) -> Redis {
        Redis::connect(&self.url(), self.port, self.password()).await
    }

    /// Everything the server has written to its log since it first started.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).expect("the server's log is readable")
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Stops the process (SIGSTOP), and returns when the kernel reports that it is stopped.
    pub(crate) fn pause(&self) {
        self.process.with(process::pause);
    }

    pub(crate) fn resume(&self) {
        self.process.with(process::resume);
    }

    /// Sets the clock of a server built with `own_clock` ahead of this machine's, or behind it.
    pub(crate) fn set_clock(&self, seconds: i64) {
        clock::set(self.folder.path(), seconds);
    }

    /// Kills the process, as a crash does: it writes nothing and closes no connection orderly. No other server
    /// of a test gets its port.
    pub(crate) fn kill(&self) {
        self.process.kill();
        let ports = std::iter::once(self.port).chain(self.bus);
        *self.kept.lock().unwrap() = ports.filter_map(keep).collect();
    }

    /// Starts the server again on the same port, killing it first if it still runs.
    pub(crate) async fn restart(&self, data: Data) {
        if data == Data::Kept && !self.builder.persistent {
            assert!(
                self.is_running(),
                "a killed server without persistence has kept nothing"
            );
            self.redis().await.cmd(&["SAVE"]).await;
        }
        self.kill();
        if data == Data::Lost {
            fs::remove_dir_all(self.data_dir()).expect("the data folder can be removed");
        }
        if let Err(reason) = self.launch().await {
            panic!("the server did not come back: {reason}\n{}", self.log());
        }
        self.kept.lock().unwrap().clear();
    }

    async fn launch(&self) -> Result<(), Failure> {
        fs::create_dir_all(self.data_dir()).expect("the data folder can be made");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("the log can be opened");
        let logged_before = log.metadata().expect("the log has a length").len() as usize;
        self.process.set(self.spawn(log));
        // The log belongs to this process, so another process at the port that answers PING is not
        // mistaken for it.
        let ready_line = if self.builder.while_loading {
            "Server initialized"
        } else {
            "eady to accept connections"
        };
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let running = self.is_running();
            let log = self.log().split_off(logged_before);
            if !running {
                self.kill();
                return Err(if log.contains("Address already in use") {
                    Failure::PortTaken
                } else {
                    Failure::Died
                });
            }
            if log.contains(ready_line) && answers(self.port, self.builder.while_loading).await {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::Silent);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn spawn(&self, log: File) -> Child {
        let data = self.data_dir();
        let mut command = self.builder.binary.command();
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--dir", path(&data), "--daemonize", "no", "--save", ""])
            .args(self.builder.binary.debug_arguments());
        if self.builder.persistent {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        if let Some(password) = &self.builder.password {
            command.args(["--requirepass", password]);
        }
        if let Some(socket) = self.socket() {
            command.args(["--unixsocket", path(&socket)]);
        }
        if let Some(bus) = self.bus {
            command.args(["--cluster-enabled", "yes"]);
            if self.builder.binary.has_cluster_port() {
                command.args(["--cluster-port", &bus.to_string()]);
            }
        }
        if self.builder.own_clock {
            command.envs(clock::install(self.folder.path()));
        }
        let errors = log.try_clone().expect("the log can be shared");
        command
            .args(&self.builder.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("coreutils are installed")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

#[derive(Clone, Debug)]
#[must_use = "builder does nothing itself, use `.start()` to start the server"]
pub(crate) struct ServerBuilder {
    args: Vec<String>,
    binary: Binary,
    cluster_node: bool,
    own_clock: bool,
    password: Option<String>,
    persistent: bool,
    socket: bool,
    while_loading: bool,
}

impl ServerBuilder {
    /// Adds an option and its value, as in `.arg("--maxmemory", "1")`.
    pub(crate) fn arg(mut self, option: &str, value: &str) -> Self {
        self.args.extend([option.to_owned(), value.to_owned()]);
        self
    }

    /// Takes a command away, as operators and providers do.
    pub(crate) fn without_command(mut self, name: &str) -> Self {
        let words = ["--rename-command", name, ""];
        self.args.extend(words.map(str::to_owned));
        self
    }

    /// Defaults to `Binary::under_test()`.
    pub(crate) fn binary(mut self, binary: Binary) -> Self {
        self.binary = binary;
        self
    }

    /// Makes it a node that may join a cluster, and is one of its own until then.
    pub(crate) fn cluster_node(mut self) -> Self {
        self.cluster_node = true;
        self
    }

    /// Gives it a wall clock of its own, see `set_clock`. Defaults to this machine's.
    pub(crate) fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Requires a password, which `url()` then contains. Defaults to none.
    pub(crate) fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Writes every command to disk before it is answered, so that data outlives a kill. Defaults
    /// to nothing on disk.
    pub(crate) fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Listens on a unix socket too. Defaults to TCP only.
    pub(crate) fn unix_socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Counts a server that still answers LOADING as started. Defaults to waiting until it has
    /// loaded.
    pub(crate) fn while_loading(mut self) -> Self {
        self.while_loading = true;
        self
    }

    pub(crate) async fn start(self) -> RedisServer {
        // Another process can take a port between our check and the server's bind. Then the next port
        // is tried.
        for _ in 0..PORT_ATTEMPTS {
            let (port, bus) = self.ports();
            let server = RedisServer {
                port,
                bus,
                builder: self.clone(),
                process: Process::default(),
                kept: Mutex::default(),
                folder: self.folder(),
            };
            match server.launch().await {
                Ok(()) => return server,
                Err(Failure::PortTaken) => {}
                Err(reason) => panic!("the server did not start: {reason}\n{}", server.log()),
            }
        }
        panic!("{PORT_ATTEMPTS} ports in a row were taken by others");
    }

    fn folder(&self) -> TempDir {
        if self.own_clock {
            // The library of the clock is there, and what is in memory may not be executable.
            return TempDir::with_prefix("lockdog-").expect("a temporary folder can be made");
        }
        process::folder()
    }

    fn ports(&self) -> (u16, Option<u16>) {
        if !self.cluster_node {
            return (free_port(), None);
        }
        if self.binary.has_cluster_port() {
            return (free_port(), Some(free_port()));
        }
        loop {
            let port = free_port();
            // Redis 6.2 gives no choice.
            let bus = port + 10_000;
            if is_free(bus) {
                return (port, Some(bus));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Died,
    PortTaken,
    Silent,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Died => "it ended by itself, or tests/setup has not installed it",
            Self::PortTaken => "its port belongs to another process",
            Self::Silent => "it gave no answer in time",
        })
    }
}

/// Asks on a connection of its own with its own time limit, so that a stalled answer costs one
/// round only.
async fn answers(port: u16, while_loading: bool) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut reply = [0; 64];
        let length = stream.read(&mut reply).await?;
        std::io::Result::Ok(reply[..length].to_vec())
    };
    let Ok(Ok(reply)) = tokio::time::timeout(ANSWER_WITHIN, ask).await else {
        return false;
    };
    // A server with a password is ready as well: it refuses only because we did not give one.
    reply.starts_with(b"+PONG")
        || reply.starts_with(b"-NOAUTH")
        || (while_loading && reply.starts_with(b"-LOADING"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

pub(super) const PORT_ATTEMPTS: usize = 200;
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A loading server answers now and then only.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
