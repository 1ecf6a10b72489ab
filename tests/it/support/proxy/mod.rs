//! A faulty network between a client and a server, in this process but on a thread of its own.
//!
//! Standing faults (`delay`, `blackhole`, `refuse`) hold for all connections until `heal`. Rules
//! (`on`) act on single commands. Everything that happened can be counted, so that a test can prove
//! that its fault took place.

mod answers;
mod faults;
mod gate;
mod link;
mod log;
mod outbound;
mod replay;
mod rules;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::support::background::Background;
use crate::support::proxy::faults::{Counts, Faults};
use crate::support::proxy::link::{Ending, Link};
use crate::support::proxy::log::{Log, Seen};
use crate::support::proxy::rules::Rules;
use crate::support::server::RedisServer;

pub(crate) use faults::Direction;
pub(crate) use gate::Gate;
pub(crate) use rules::{Action, Rule, named};

#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    url: String,
    _background: Background,
}

impl Proxy {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let mut proxy = Self::to_port(server.port()).await;
        proxy.aim(server);
        proxy
    }

    /// Connects new connections to another server. Open connections are unchanged.
    pub(crate) fn aim(&mut self, server: &RedisServer) {
        self.aim_at(server.port());
        self.url = server.url_at(self.port);
    }

    /// As [`Proxy::aim`], to anything that listens on this machine.
    pub(crate) fn aim_at(&self, target: u16) {
        self.shared.target.store(target, Ordering::Relaxed);
    }

    /// A proxy in front of anything that listens on this machine and speaks RESP.
    pub(crate) async fn to_port(target: u16) -> Self {
        let background = Background::new("proxy");
        let listener = background
            .run(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .await
            .expect("some port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = background.run(async move { Shared::new(target) }).await;
        background.spawn(accept(Arc::clone(&shared), listener));
        Self {
            port,
            shared,
            url: format!("redis://127.0.0.1:{port}/"),
            _background: background,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The server's URL with its credentials, but with the proxy's port.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Every command that clients have sent so far, oldest first.
    pub(crate) fn commands(&self) -> Vec<Seen> {
        self.shared.log.commands()
    }

    pub(crate) fn count(&self, matches: impl Fn(&[String]) -> bool) -> usize {
        self.shared.log.count(&matches)
    }

    /// Waits until clients have sent `n` commands that match; fails the test after thirty seconds.
    pub(crate) async fn wait_for(&self, matches: impl Fn(&[String]) -> bool, n: usize) {
        self.shared.log.wait_for(&matches, n).await;
    }

    /// How many clients are connected: neither they nor the proxy have closed.
    pub(crate) fn connections(&self) -> usize {
        let links = self.shared.links.lock().unwrap();
        links.values().filter(|link| link.client_is_there()).count()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.shared.faults.counts()
    }

    /// Everything sent from now on in this direction arrives later by `by`; the rate stays as it
    /// is.
    pub(crate) fn delay(&self, direction: Direction, by: Duration) {
        self.shared.faults.delay(direction, by);
    }

    /// Stops reading and forwarding in this direction. Neither side is notified: connections stay open, new
    /// ones too.
    pub(crate) fn blackhole(&self, direction: Direction) {
        self.shared.faults.blackhole(direction);
    }

    /// Accepts new connections only to reset them at once; those that are open continue.
    pub(crate) fn refuse(&self) {
        self.shared.faults.refuse();
    }

    /// Ends every delay, blackhole and refusal; what a blackhole held back is forwarded.
    pub(crate) fn heal(&self) {
        self.shared.faults.heal();
    }

    /// Closes all connections in good order, and returns how many.
    pub(crate) fn cut_all(&self) -> usize {
        self.shared.end_all(Ending::Cut)
    }

    /// Closes all connections with a RST, and returns how many.
    pub(crate) fn reset_all(&self) -> usize {
        self.shared.end_all(Ending::Reset)
    }

    /// The connection that sends next in this direction is cut after `n` more bytes.
    pub(crate) fn cut_after_bytes(&self, direction: Direction, n: usize) {
        self.shared.faults.cut_after_bytes(direction, n);
    }

    /// Does `action` to the next command that matches; `times` and `always` make it more than one.
    pub(crate) fn on(
        &self,
        matches: impl Fn(&[String]) -> bool + Send + Sync + 'static,
        action: Action,
    ) -> Rule {
        self.shared.rules.add(Box::new(matches), action)
    }

    /// Sends the next command that matches once more when the gate opens: see [`Action::TwiceLate`].
    pub(crate) fn repeat_late(
        &self,
        matches: impl Fn(&[String]) -> bool + Send + Sync + 'static,
    ) -> Gate {
        let gate = Gate::new();
        self.on(matches, Action::TwiceLate(gate.clone()));
        gate
    }
}

/// What the proxy's handle and its connections share.
#[derive(Debug)]
struct Shared {
    faults: Faults,
    links: Mutex<BTreeMap<u64, Arc<Link>>>,
    log: Log,
    rules: Rules,
    runtime: Handle,
    target: AtomicU16,
}

impl Shared {
    fn new(target: u16) -> Arc<Self> {
        Arc::new(Self {
            faults: Faults::default(),
            links: Mutex::default(),
            log: Log::default(),
            rules: Rules::default(),
            runtime: Handle::current(),
            target: target.into(),
        })
    }

    fn target(&self) -> u16 {
        self.target.load(Ordering::Relaxed)
    }

    fn end_all(&self, ending: Ending) -> usize {
        let links = self.links.lock().unwrap();
        links.values().filter(|link| link.end(ending)).count()
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    for id in 1.. {
        let (client, _) = listener.accept().await.expect("listening does not end");
        if shared.faults.refuses() {
            reset(&client);
            continue;
        }
        let link = Arc::new(Link::new(id, Arc::clone(&shared)));
        shared.links.lock().unwrap().insert(id, Arc::clone(&link));
        shared.runtime.spawn(link.run(client));
    }
}

/// Makes the close that follows a RST.
fn reset(stream: &TcpStream) {
    // It can fail only on a connection that is gone already, which is what it is for.
    let _ = stream.set_zero_linger();
}
