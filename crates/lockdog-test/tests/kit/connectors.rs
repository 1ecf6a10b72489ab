//! How a client uses a custom connector: in real time, and when the connector fails.

use std::fmt;
use std::io;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use lockdog::config::{Connector, Time, Transport};
use lockdog::{Client, Error, RedLock};
use lockdog_test::Server;
use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

use crate::support::{LONG, eventually};

/// Connects to a test server, and fails as a test asks it to.
#[derive(Clone)]
struct Tunnel {
    server: Server,
    time: Time,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    fault: Mutex<Fault>,
    /// Notified when the fault changes.
    changed: Condvar,
    attempts: AtomicUsize,
    /// Calls that block a thread now.
    blocked: AtomicUsize,
    /// Streams that are not dropped.
    living: AtomicUsize,
    /// Panics whose payload panics.
    panics: AtomicUsize,
    /// Streams with a smaller number neither send nor receive any more.
    silent_below: AtomicUsize,
}

/// What a connector does wrong.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Fault {
    #[default]
    Nothing,
    Fails,
    PanicsAtOnce,
    PanicsLater,
    PanicsInRead,
    /// The payload of the panic panics when it is dropped.
    PanicsTwice,
    /// Every open stream panics when it is read. The payload of the panic panics when it is dropped,
    /// and so does the payload of that panic.
    ReadsPanicThrice,
    /// As [`Fault::ReadsPanicThrice`], when a stream is dropped.
    DropsPanicThrice,
    /// As [`Fault::ReadsPanicThrice`], when a future that is not ready yet is dropped.
    NeverReadyAndPanicsThrice,
    NeverReady,
    Blocks,
    /// As [`Fault::Blocks`], and these calls do not return when the fault is over.
    Hangs,
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the tunnel fell in again");
    }
}

/// As [`Bomb`], with a payload that panics when it is dropped.
struct TwoBombs;

impl Drop for TwoBombs {
    fn drop(&mut self) {
        panic_any(Bomb);
    }
}

impl Tunnel {
    fn new(server: &Server, time: Time) -> Self {
        Self {
            server: server.clone(),
            time,
            state: Arc::default(),
        }
    }

    fn builder(&self) -> lockdog::ClientBuilder {
        Client::builder().connector(self.clone())
    }

    fn set(&self, fault: Fault) {
        *self.state.fault.lock() = fault;
        self.state.changed.notify_all();
    }

    fn attempts(&self) -> usize {
        self.state.attempts.load(Ordering::Relaxed)
    }

    fn blocked(&self) -> usize {
        self.state.blocked.load(Ordering::Relaxed)
    }

    fn living(&self) -> usize {
        self.state.living.load(Ordering::Relaxed)
    }

    /// The open streams neither send nor receive any more, and stay open.
    fn silence(&self) {
        let below = self.attempts() + 1;
        self.state.silent_below.store(below, Ordering::Relaxed);
    }
}

impl State {
    fn block(&self) {
        self.blocked.fetch_add(1, Ordering::Relaxed);
        let mut fault = self.fault.lock();
        self.changed
            .wait_while(&mut fault, |fault| *fault == Fault::Blocks);
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    fn trap(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        if !thread::panicking() {
            panic_any(TwoBombs);
        }
    }

    fn hang(&self) -> ! {
        self.blocked.fetch_add(1, Ordering::Relaxed);
        loop {
            thread::park();
        }
    }
}

impl Connector for Tunnel {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
        let number = 1 + self.state.attempts.fetch_add(1, Ordering::Relaxed);
        let fault = *self.state.fault.lock();
        match fault {
            Fault::PanicsAtOnce => panic!("the tunnel fell in"),
            Fault::PanicsTwice => panic_any(Bomb),
            Fault::Blocks => self.state.block(),
            Fault::Hangs => self.state.hang(),
            _ => {}
        }
        let tunnel = self.clone();
        let state = self.state.clone();
        Box::pin(async move {
            let _panics = (fault == Fault::NeverReadyAndPanicsThrice).then(|| Trap(state));
            match fault {
                Fault::NeverReadyAndPanicsThrice => std::future::pending().await,
                Fault::Fails => return Err(io::Error::other("the tunnel is closed")),
                Fault::PanicsLater => panic!("the tunnel fell in while it was dug"),
                Fault::NeverReady => std::future::pending().await,
                _ => {}
            }
            let tube = Tube::new(&tunnel, number, fault == Fault::PanicsInRead);
            Ok(Box::new(tube) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> String {
        "the tunnel".to_owned()
    }

    fn time(&self) -> Time {
        self.time
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

/// A stream that a tunnel opened.
struct Tube {
    stream: DuplexStream,
    number: usize,
    panics: bool,
    state: Arc<State>,
}

impl Tube {
    fn new(tunnel: &Tunnel, number: usize, panics: bool) -> Self {
        tunnel.state.living.fetch_add(1, Ordering::Relaxed);
        Self {
            stream: tunnel.server.connect(),
            number,
            panics,
            state: tunnel.state.clone(),
        }
    }
}

impl Drop for Tube {
    fn drop(&mut self) {
        self.state.living.fetch_sub(1, Ordering::Relaxed);
        if *self.state.fault.lock() == Fault::DropsPanicThrice {
            self.state.trap();
        }
    }
}

/// Panics when it is dropped.
struct Trap(Arc<State>);

impl Drop for Trap {
    fn drop(&mut self) {
        self.0.trap();
    }
}

impl Tube {
    /// `None`: the stream neither sends nor receives.
    fn stream(self: Pin<&mut Self>) -> Option<Pin<&mut DuplexStream>> {
        assert!(!self.panics, "the tube broke");
        if *self.state.fault.lock() == Fault::ReadsPanicThrice {
            self.state.trap();
        }
        let is_silent = self.number < self.state.silent_below.load(Ordering::Relaxed);
        (!is_silent).then(|| Pin::new(&mut self.get_mut().stream))
    }
}

impl AsyncRead for Tube {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.stream();
        stream.map_or(Poll::Pending, |stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Tube {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream();
        stream.map_or(Poll::Pending, |stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.stream();
        stream.map_or(Poll::Pending, |stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.stream();
        stream.map_or(Poll::Pending, |stream| stream.poll_shutdown(cx))
    }
}

#[tokio::test]
async fn locks_are_held_awaited_and_renewed_in_real_time() {
    let server = Server::new();
    let connect = async || {
        let builder = Tunnel::new(&server, Time::Machine).builder();
        let builder = builder.watchdog_lease(Duration::from_secs(6));
        builder.build().await.unwrap()
    };
    let (holds, waits) = (connect().await, connect().await);
    let guard = holds.lock("orders").lock().await.unwrap();
    let waiter = {
        let lock = waits.lock("orders");
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    };
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(guard.is_valid());
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_failing_connector_has_its_text() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Tokio);
    for (fault, words) in [
        (Fault::Fails, "the tunnel is closed"),
        (Fault::PanicsAtOnce, "panicked"),
        (Fault::PanicsLater, "panicked"),
        (Fault::PanicsInRead, "panicked"),
        (Fault::PanicsTwice, "panicked"),
        (Fault::NeverReady, "no connection in time"),
    ] {
        tunnel.set(fault);
        let failed = tunnel.builder().build().await;
        let Err(error @ Error::Unavailable { .. }) = failed else {
            panic!("{fault:?}: {failed:?}");
        };
        assert!(error.to_string().contains(words), "{fault:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_panics_for_a_while_loses_no_lock() {
    for fault in [Fault::PanicsAtOnce, Fault::PanicsLater, Fault::PanicsTwice] {
        let server = Server::new();
        let tunnel = Tunnel::new(&server, Time::Tokio);
        let client = tunnel.builder().build().await.unwrap();
        let guard = client.lock("orders").lock().await.unwrap();
        // A client with a waiter has a connection for messages, too.
        let other = server.client().await.lock("other").lock().await.unwrap();
        let lock = client.lock("other");
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = tunnel.attempts();
        tunnel.set(fault);
        server.cut();
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(tunnel.attempts() > before, "{fault:?}");
        assert!(guard.is_valid(), "{fault:?}");
        tunnel.set(Fault::Nothing);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(guard.is_valid(), "{fault:?}");
        guard.unlock().await.unwrap();
        other.unlock().await.unwrap();
        // The waiter may have failed while the connector was failing.
        let _ = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
        server.assert_clean().await;
    }
}

/// The connector panics in a task whose result is never read. The drop of that result must not panic.
#[tokio::test(start_paused = true)]
async fn a_connector_whose_panics_cause_more_panics_loses_no_lock() {
    for fault in [
        Fault::ReadsPanicThrice,
        Fault::DropsPanicThrice,
        Fault::NeverReadyAndPanicsThrice,
    ] {
        let server = Server::new();
        let tunnel = Tunnel::new(&server, Time::Tokio);
        let client = tunnel.builder().build().await.unwrap();
        let guard = client.lock("orders").lock().await.unwrap();
        // One connection each for callers, the watchdog and messages.
        let stolen = server.steal("other");
        let waiter = {
            let lock = client.lock("other");
            tokio::spawn(async move { lock.lock().await.map(drop) })
        };
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(tunnel.living(), 3);
        tunnel.set(fault);
        server.cut();
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert!(
            tunnel.state.panics.load(Ordering::Relaxed) >= 3,
            "{fault:?}"
        );
        assert!(guard.is_valid(), "{fault:?}");
        tunnel.set(Fault::Nothing);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(guard.is_valid(), "{fault:?}");
        drop(stolen);
        // The waiter may have failed while the connector was failing.
        let _ = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
        server.assert_clean().await;
    }
}

/// The watchdog's thread opens the connection for messages while it renews.
#[tokio::test(start_paused = true)]
async fn a_connector_without_a_connection_for_messages_loses_no_lock() {
    for fault in [
        Fault::Fails,
        Fault::PanicsAtOnce,
        Fault::PanicsLater,
        Fault::PanicsInRead,
        Fault::PanicsTwice,
        Fault::NeverReady,
    ] {
        let server = Server::new();
        let tunnel = Tunnel::new(&server, Time::Tokio);
        let client = tunnel.builder().build().await.unwrap();
        let guard = client.lock("orders").lock().await.unwrap();
        // The watchdog has opened its own connection by then.
        tokio::time::sleep(Duration::from_secs(11)).await;
        let stolen = server.steal("other");
        let before = tunnel.attempts();
        tunnel.set(fault);
        let lock = client.lock("other");
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(tunnel.attempts() > before + 3, "{fault:?}: it tries again");
        assert!(guard.is_valid(), "{fault:?}");
        tunnel.set(Fault::Nothing);
        drop(stolen);
        let waited = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
        waited.unwrap();
        guard.unlock().await.unwrap();
        server.assert_clean().await;
    }
}

#[tokio::test]
async fn a_connector_that_blocks_its_thread_delays_no_renewal_and_no_shutdown() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Machine);
    let builder = tunnel.builder().watchdog_lease(Duration::from_secs(6));
    let builder = builder.command_timeout(Duration::from_secs(2));
    let client = builder.build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let stolen = server.steal("other");
    eventually("the watchdog has a connection of its own", || {
        tunnel.attempts() >= 2
    })
    .await;
    tunnel.set(Fault::Blocks);
    // A runtime of one thread: the watchdog opens the connection for messages.
    let waiter = {
        let lock = client.lock("other");
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    eventually("the connector is called", || tunnel.blocked() > 0).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(guard.is_valid(), "renewals went on");
    assert_eq!(tunnel.blocked(), 1, "calls that never return add up");
    drop(stolen);
    let waited = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    waited.unwrap();
    guard.unlock().await.unwrap();
    let ended = tokio::time::timeout(LONG, client.shutdown()).await;
    ended.expect("the client ends though the connector does not return");
    tunnel.set(Fault::Nothing);
    server.assert_clean().await;
}

#[tokio::test]
async fn renewals_reconnect_after_connector_calls_that_hung() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Machine);
    let builder = tunnel.builder().watchdog_lease(Duration::from_secs(12));
    let builder = builder.command_timeout(Duration::from_secs(1));
    let client = builder.build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    // The watchdog has opened its own connection by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    tunnel.set(Fault::Hangs);
    server.cut();
    eventually("three calls hang", || tunnel.blocked() >= 3).await;
    tunnel.set(Fault::Nothing);
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn hanging_connector_calls_delay_no_renewal_and_are_named_in_the_error() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Machine);
    let builder = tunnel.builder().watchdog_lease(Duration::from_secs(9));
    let builder = builder.command_timeout(Duration::from_secs(3));
    let client = builder.build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    // The watchdog has opened its own connection by then.
    tokio::time::sleep(Duration::from_secs(4)).await;

    // These runtimes and the test's use up the connections for runtimes. The next runtime shares the
    // background's connection.
    let others = on_runtimes(63, &client).await;
    assert!(others.iter().all(|(_, asked)| asked.is_ok()));
    tunnel.set(Fault::Hangs);
    let is_named = |error: &Error| error.to_string().contains("has not returned for");
    let mut errors = Vec::new();
    while !errors.last().is_some_and(is_named) && errors.len() < 20 {
        let (shares, asked) = on_runtimes(1, &client).await.remove(0);
        errors.push(asked.expect_err("there is no connection"));
        shares.shutdown_background();
    }
    assert!(errors.last().is_some_and(is_named), "{errors:?}");
    assert!(tunnel.blocked() >= 3);

    tunnel.set(Fault::Nothing);
    server.cut();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    for (runtime, _) in others {
        runtime.shutdown_background();
    }
    server.assert_clean().await;
}

/// Queries a lock from this number of runtimes, one after the other.
async fn on_runtimes(count: usize, client: &Client) -> Vec<(Runtime, lockdog::Result<bool>)> {
    let client = client.clone();
    let ask = move |_| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asked = runtime.block_on(client.lock("other").is_locked());
        (runtime, asked)
    };
    let asking = spawn_blocking(move || (0..count).map(ask).collect());
    asking.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_dropped_with_its_connection_while_it_is_pending() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Tokio);
    let client = tunnel.builder().build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    // One connection each for callers, the watchdog and messages.
    let stolen = server.steal("other");
    let waiter = {
        let lock = client.lock("other");
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(tunnel.living(), 3);
    for _ in 0..5 {
        tunnel.silence();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(guard.is_valid());
        assert!(tunnel.living() <= 3, "{} streams live", tunnel.living());
    }
    assert!(tunnel.attempts() > 3, "streams took the place of others");
    drop(stolen);
    let _ = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    tunnel.silence();
    client.shutdown().await;
    drop(client);
    eventually("no stream is left", || tunnel.living() == 0).await;
}

#[tokio::test]
async fn a_connector_excludes_a_url_and_a_second_connector() {
    let server = Server::new();
    let pipes = || server.builder();
    let another = Tunnel::new(&server, Time::Tokio);
    for both in [
        pipes().url("redis://localhost").build().await,
        pipes().connector(another).build().await,
        pipes().cluster(["redis://localhost"]).build().await,
    ] {
        assert!(
            matches!(&both, Err(Error::Invalid { what, .. }) if *what == "connector"),
            "{both:?}"
        );
        let text = both.unwrap_err().to_string();
        assert!(text.contains("set one connector and none of"), "{text}");
    }
}

#[tokio::test]
async fn a_red_lock_refuses_clients_with_different_clocks() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut locks = Vec::new();
    for (server, time) in servers
        .iter()
        .zip([Time::Tokio, Time::Tokio, Time::Machine])
    {
        let builder = Tunnel::new(server, time).builder();
        locks.push(builder.build().await.unwrap().lock("orders"));
    }
    let refused = RedLock::new(locks).try_lock().await;
    assert!(
        matches!(&refused, Err(Error::Invalid { what, .. }) if *what == "locks"),
        "{refused:?}"
    );
}
