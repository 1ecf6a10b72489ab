//! The parts of a run of any kind of lock: the real engine of each client in virtual time, the network
//! between the clients and the server, and an observer that compares the two sides.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::chance::Chance;
use super::clock::VirtualClock;
use super::findings::Findings;
use super::network::{Delivery, Network, NetworkEvent, Wiring};
use super::plan::{Pause, Plan};
use super::polls::POLL_MS;
use super::redis::{Redis, error_answer};
use crate::background::Background;
use crate::clock::Clock;
use crate::hold::HandOverLimits;
use crate::key::QueueTimeouts;
use crate::observe::Observers;
use crate::server::{Context, Endpoint, Server};
use crate::session::{ClientSettings, Core, Reentry, Session};
use crate::wait::{Backoff, Wake};
use crate::watchdog;

/// Compares the clients with the server, and checks the invariants.
pub(super) trait Observes {
    /// Executes a command and checks its effect.
    fn execute(&mut self, delivery: &Delivery) -> Value;

    /// The server does not execute a command, and answers this error.
    fn refuse(&mut self, _delivery: &Delivery, _error: &str) {}

    /// The checks at every moment.
    fn look(&mut self);

    fn found(&mut self) -> &mut Findings;

    fn redis(&mut self) -> &mut Redis;
}

/// A client of a run, and the task of its watchdog.
pub(super) struct SimulatedClient {
    pub(super) session: Arc<Session>,
    pub(super) watchdog: JoinHandle<()>,
}

/// The clients of a plan, and the same for the observer.
pub(super) fn clients(
    plan: &Plan,
    network: &Arc<Network>,
    traced: bool,
) -> (Vec<SimulatedClient>, Findings) {
    let start = Instant::now();
    let (mut clients, mut observed) = (Vec::new(), Vec::new());
    for (i, rate) in plan.rates.into_iter().enumerate() {
        let offset = Chance::new(plan.seed, 3 + i as u64).within(1, 1 << 40);
        let clock = VirtualClock::new(start, rate, offset);
        let (client, core) = client(plan, i, network, clock.clone());
        observed.push((core, clock));
        clients.push(client);
    }
    (clients, Findings::new(network.clone(), observed, traced))
}

/// Runs on a server that is reset first, and returns it for the next run.
pub(super) fn in_virtual_time<T>(mut redis: Redis, run: impl AsyncFnOnce(Redis) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets can be made");
    redis.reset();
    runtime.block_on(run(redis))
}

/// Runs the work of a plan, until its end or a violation.
pub(super) async fn play(
    network: &Network,
    observer: &RefCell<impl Observes>,
    story: impl Future<Output = ()>,
) {
    let mut story = pin!(tokio::time::timeout(LONGEST, story));
    loop {
        tokio::select! {
            biased;
            event = network.next() => happen(network, observer, event),
            ended = &mut story => {
                let mut observer = observer.borrow_mut();
                observer.found().claim(ended.is_ok(), || "the run hangs".to_owned());
                break;
            }
        }
        // The tasks that the event woke run before the observer checks.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let mut observer = observer.borrow_mut();
        observer.look();
        if observer.found().violation.is_some() {
            break;
        }
    }
}

fn happen(network: &Network, observer: &RefCell<impl Observes>, event: NetworkEvent) {
    match event {
        NetworkEvent::Deliver(delivery) => {
            let value = match delivery.refusal {
                Some(line) => {
                    observer.borrow_mut().refuse(&delivery, line);
                    error_answer(line)
                }
                None => {
                    let mut observer = observer.borrow_mut();
                    observer.redis().set_listening(network.listening());
                    observer.execute(&delivery)
                }
            };
            network.reply(&delivery, value);
        }
        NetworkEvent::Reply {
            connection,
            serial,
            value,
        } => {
            let mut observer = observer.borrow_mut();
            let found = observer.found();
            found.note(|| format!("reply to #{serial} arrives"));
            network.hand_over(connection, serial, value);
        }
        NetworkEvent::Message {
            connection,
            message,
        } => {
            let mut observer = observer.borrow_mut();
            let found = observer.found();
            found.note(|| format!("message {} arrives on {connection}", message.text));
            network.hand_message_over(connection, message);
        }
        NetworkEvent::Break(connection) => network.end(connection),
        NetworkEvent::SendBatch(connection) => network.send_batch(connection),
        NetworkEvent::FlushScripts => observer.borrow_mut().redis().flush_scripts(),
    }
}

/// Waits until all commands have arrived, every retry is done, and every release is answered.
pub(super) async fn rest(plan: &Plan, network: &Network, observer: &RefCell<impl Observes>) {
    // A frozen client does its work afterwards.
    let now = observer.borrow_mut().found().now_ms();
    let paused = plan.pauses_end_ms().saturating_sub(now);
    let retries = 3 * plan.command_timeout_ms + 1200;
    tokio::time::sleep(Duration::from_millis(paused + retries)).await;
    while !network.is_idle() || observer.borrow_mut().found().owes_a_release() {
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
}

fn client(
    plan: &Plan,
    number: usize,
    network: &Arc<Network>,
    clock: VirtualClock,
) -> (SimulatedClient, Arc<Core>) {
    let ms = Duration::from_millis;
    let clock = Clock::of(clock);
    let wiring = Wiring {
        network: network.clone(),
        client: number,
    };
    let endpoint = Endpoint::simulated(wiring, &clock);
    let context = Context {
        clock: clock.clone(),
        background: Background::here(),
        command_timeout: ms(plan.command_timeout_ms),
        watchdog_lease: ms(plan.watchdog_lease_ms),
        observers: Observers::default(),
    };
    let server = Server::new(endpoint, context);
    let settings = ClientSettings {
        watchdog_lease: ms(plan.watchdog_lease_ms),
        poll_cap: ms(plan.poll_cap_ms),
        max_lease: Duration::from_secs(60),
        wake: match plan.listens {
            true => Wake::PubSub,
            false => Wake::Poll(Backoff::exponential(ms(POLL_MS.0), ms(POLL_MS.1), 2)),
        },
        hand_overs: HandOverLimits {
            hand_overs: 3,
            time: ms(20),
        },
        queue_timeouts: QueueTimeouts {
            fair_absence: ms(plan.silence_ms),
            ..QueueTimeouts::default()
        },
        reentry: Reentry::default(),
        quarantine_on_server: false,
        expected: None,
        name_mapper: None,
        log_names: false,
        lock_group: None,
    };
    let (core, mut jobs) = Core::new(Uuid::new_v4(), settings, clock, server, 100);
    let core = Arc::new(core);
    let session = Arc::new(Session::new(core.clone()));
    let watched = core.clone();
    let pauses: Vec<Pause> = plan.pauses.clone();
    let watchdog = tokio::spawn(async move {
        let watch = watchdog::watch(&watched, &mut jobs);
        with_pauses(watch, number, &pauses).await;
    });
    (SimulatedClient { session, watchdog }, core)
}

/// Does not poll `work` while its client is frozen.
async fn with_pauses(work: impl Future<Output = ()>, client: usize, pauses: &[Pause]) {
    let start = Instant::now();
    let mut work = pin!(work);
    let own = pauses.iter().filter(|pause| pause.client == client);
    for pause in own {
        let begin = start + Duration::from_millis(pause.at_ms);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(begin) => {}
            () = &mut work => return,
        }
        tokio::time::sleep(Duration::from_millis(pause.length_ms)).await;
    }
    work.await;
}

/// In virtual time. It is much longer than any plan, and than the place of a Redisson thread that died,
/// which includes five minutes for each waiter before it.
const LONGEST: Duration = Duration::from_secs(10 * 3_600);
