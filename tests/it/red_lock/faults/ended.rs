//! A caller whose runtime ends or blocks during a round. No other lock of these clients is lost, and no
//! server stays locked.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockdog::{Client, Guard, Owner, RedLock};
use tokio::runtime::{Builder, Runtime};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::fixture::{Fixture, give_back, take};
use super::is_acquire;
use crate::red_lock::{SOON, lock_of, ms};
use crate::support::{Action, Proxy, Rule, logs, until_ok};

use super::NAME;

const LEASE: Duration = Duration::from_secs(6);

/// Longer than any test lasts, so that no lease ends what is to be released; and each server has the
/// longest time to answer that there is, half a second.
const LONG: Duration = Duration::from_secs(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_outlives_its_runtime_loses_no_other_lock() {
    let test = Fixture::proxied(3).await;
    let clients = test.clients_with(|it| it.watchdog_lease(LEASE)).await;
    let yours = test.direct_lock().await;
    give_back(take(&yours).await).await;
    let others = locks_beside(&clients).await;
    let lock = lock_of(&clients, NAME);
    let mut all_left = Vec::new();
    for n in 0..4 {
        let refused = refuse_acquires(&test);
        let lock = lock.clone();
        let rules = refused.clone();
        let left = move || left_in_a_pause(&lock, &rules, ms(30 + 20 * n));
        let left = tokio::task::spawn_blocking(left).await.unwrap();
        all_left.push(left);
        for rule in refused {
            rule.remove();
        }
        // The client's background has processed the abandoned call by then.
        tokio::time::sleep(ms(1300)).await;
        assert_valid(&others);
        give_back(take(&yours).await).await;
    }
    test.await_taken(0).await;
    tokio::time::sleep(LEASE).await;
    assert_valid(&others);
    drop(all_left);
    for guard in others {
        give_back(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_blocks_the_callers_thread_loses_no_other_lock() {
    let test = Fixture::proxied(3).await;
    let clients = test.clients_with(|it| it.watchdog_lease(LEASE)).await;
    let others = locks_beside(&clients).await;
    let refused = refuse_acquires(&test);
    let lock = lock_of(&clients, NAME);
    let blocked = Arc::new(AtomicBool::new(false));
    let has_blocked = blocked.clone();
    let (reaches, reached) = channel();
    let (go_on, goes_on) = channel();
    let caller = std::thread::spawn(move || {
        let _subscribed = logs::subscribe_thread(Blocks {
            reached: reaches,
            blocked: has_blocked,
            go_on: Mutex::new(goes_on),
        });
        // A busy machine may not repeat a command in time.
        runtime().block_on(async {
            while !blocked.load(Ordering::SeqCst) {
                drop(lock.try_lock().lease(LONG).await);
                tokio::time::sleep(ms(20)).await;
            }
        });
    });
    let reached = tokio::task::spawn_blocking(move || reached.recv_timeout(SOON * 2));
    reached.await.unwrap().expect("the event is written");
    for rule in refused {
        rule.remove();
    }
    for _ in 0..20 {
        tokio::time::sleep(LEASE / 10).await;
        assert!(!caller.is_finished(), "the subscriber blocks");
        assert_valid(&others);
    }
    drop(go_on);
    let ended = tokio::task::spawn_blocking(|| caller.join().unwrap());
    ended.await.unwrap();
    test.await_taken(0).await;
    for guard in others {
        give_back(guard).await;
    }
}

type Left = Pin<Box<dyn Future<Output = lockdog::Result<Guard>> + Send>>;

/// An acquire whose runtime ended in the pause before a refused command is sent again.
fn left_in_a_pause(lock: &RedLock, refused: &[Rule], pause: Duration) -> Left {
    loop {
        let runtime = runtime();
        let (lock, owner) = (lock.clone(), Owner::new());
        let mut left: Left = Box::pin(async move { lock.lock().owner(&owner).lease(LONG).await });
        let before: Vec<u64> = refused.iter().map(Rule::hits).collect();
        let is_left = runtime.block_on(async {
            let reached = async {
                for (rule, before) in refused.iter().zip(before) {
                    rule.wait_hits(before + 1).await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                biased;
                // On a busy machine the round may be over already.
                _ = &mut left => false,
                () = reached => true,
            }
        });
        drop(runtime);
        if is_left {
            return left;
        }
    }
}

/// A lock of each client, which its watchdog renews.
async fn locks_beside(clients: &[Client]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for client in clients {
        guards.push(until_ok(SOON, async || client.lock("beside").lock().await).await);
    }
    guards
}

fn assert_valid(guards: &[Guard]) {
    for guard in guards {
        assert!(guard.is_valid(), "{:?}", guard.verdict());
    }
}

/// Two of the servers refuse each acquire of the lock from now on.
fn refuse_acquires(test: &Fixture) -> Vec<Rule> {
    let refuse = |proxy: &Proxy| {
        let line = "-LOADING wait".to_owned();
        proxy.on(is_acquire, Action::ReplyWith(line)).always()
    };
    test.proxies[1..].iter().map(refuse).collect()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A user's subscriber that blocks at the first repetition of a command.
struct Blocks {
    reached: Sender<()>,
    blocked: Arc<AtomicBool>,
    /// Closed when the test drops its end of the channel.
    go_on: Mutex<Receiver<()>>,
}

impl Subscriber for Blocks {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lockdog")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut is_repetition = false;
        event.record(
            &mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                is_repetition |= format!("{value:?}").contains("retrying a command");
            },
        );
        if is_repetition {
            // The test may have ended.
            let _ = self.reached.send(());
            let _ = self.go_on.lock().unwrap().recv();
            self.blocked.store(true, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
