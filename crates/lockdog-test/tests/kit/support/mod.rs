//! The servers that tests compare, and plain connections to them.

pub(crate) mod compare;
pub(crate) mod locks;
pub(crate) mod logs;
pub(crate) mod real;
pub(crate) mod resp;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lockdog_test::Server;
use tokio::runtime::Runtime;

use resp::Connection;

/// The test server on a runtime of its own, for tests that block.
pub(crate) struct Embedded {
    server: Server,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Embedded {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be built");
        let (server, address) = runtime.block_on(async {
            let server = Server::new();
            let address = server.listen("127.0.0.1:0").await.expect("a port is free");
            (server, address)
        });
        Self {
            server,
            address,
            _runtime: runtime,
        }
    }

    pub(crate) fn require_password(&self, password: &str) {
        self.server.require_password(password);
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket takes it");
        Connection::new(stream)
    }
}

/// How many cases a comparison runs: `LOCKDOG_CASES`, or `default`.
pub(crate) fn cases(default: u32) -> u32 {
    let given = std::env::var("LOCKDOG_CASES");
    given.map_or(default, |given| {
        given.parse().expect("LOCKDOG_CASES is a number")
    })
}

/// `tests/run` repeats no test that prints this, because such a test finds a second holder by chance.
pub(crate) fn checks_exclusion() {
    println!("this test checks exclusion");
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until the condition holds. Fails after `LONG`.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Longer than any step takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
