//! One run: the real engine on virtual time, the tasks of a plan, and the observer between them.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::chance::Chance;
use super::clock::VirtualClock;
use super::network::{Faults, Network, NetworkEvent, Wiring};
use super::observer::{KEY, Observed, Observer};
use super::plan::{Pause, Plan};
use super::redis::Redis;
use super::task::{self, Left, Report};
use crate::background::Background;
use crate::clock::Clock;
use crate::guard::Guard;
use crate::hold::HandOverLimits;
use crate::key::kind;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::server::{Context, Endpoint, Server};
use crate::session::{Core, Reentry, Session, Settings};
use crate::wait::{Backoff, Wake};
use crate::watchdog;

/// The result of a run.
pub(super) struct RunOutcome {
    pub(super) violation: Option<String>,
    pub(super) seen: Observed,
    pub(super) trace: Vec<String>,
}

/// Runs a plan on a server that is reset first. Returns the server for the next run.
pub(super) fn run(plan: &Plan, mut redis: Redis, traced: bool) -> (RunOutcome, Redis) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets can be made");
    redis.reset();
    runtime.block_on(simulate(plan, redis, traced))
}

struct SimulatedClient {
    lock: Lock,
    watchdog: JoinHandle<()>,
}

async fn simulate(plan: &Plan, redis: Redis, traced: bool) -> (RunOutcome, Redis) {
    let start = Instant::now();
    let network = Arc::new(Network::new(start, Chance::new(plan.seed, 2), plan.faults));
    let mut observed = Vec::new();
    let mut clients = Vec::new();
    for (i, rate) in plan.rates.into_iter().enumerate() {
        let offset = Chance::new(plan.seed, 3 + i as u64).within(1, 1 << 40);
        let virtual_clock = VirtualClock::new(start, rate, offset);
        let (client, core) = client(plan, i, &network, virtual_clock.clone());
        observed.push((core, virtual_clock));
        clients.push(client);
    }
    let observer = Observer::new(redis, network.clone(), observed, traced);
    let observer = RefCell::new(observer);
    {
        let mut story = pin!(tokio::time::timeout(
            LONGEST,
            story(plan, &network, &observer, clients)
        ));
        loop {
            tokio::select! {
                biased;
                event = network.next() => happen(&network, &observer, event),
                ended = &mut story => {
                    observer.borrow_mut().claim(ended.is_ok(), || "the run hangs".to_owned());
                    break;
                }
            }
            // The tasks that the event woke run before the observer checks.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut observer = observer.borrow_mut();
            observer.look();
            if observer.violation.is_some() {
                break;
            }
        }
    }
    let mut observer = observer.into_inner();
    let outcome = RunOutcome {
        violation: observer.violation.take(),
        seen: observer.seen,
        trace: observer.trace(),
    };
    (outcome, observer.redis)
}

fn happen(network: &Network, observer: &RefCell<Observer>, event: NetworkEvent) {
    match event {
        NetworkEvent::Deliver(delivery) => {
            let value = match delivery.refusal {
                Some(line) => super::redis::error_answer(line),
                None => observer.borrow_mut().execute(&delivery),
            };
            network.reply(&delivery, value);
        }
        NetworkEvent::Reply {
            connection,
            serial,
            value,
        } => {
            observer
                .borrow_mut()
                .note(|| format!("reply to #{serial} arrives"));
            network.hand_over(connection, serial, value);
        }
        NetworkEvent::Break(connection) => network.end(connection),
        NetworkEvent::FlushScripts => observer.borrow_mut().redis.flush_scripts(),
    }
}

/// The tasks' steps with faults, then a calm network and the checks of its result.
async fn story(
    plan: &Plan,
    network: &Arc<Network>,
    observer: &RefCell<Observer>,
    clients: Vec<SimulatedClient>,
) {
    let (reports, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    let without_faults = plan.faults == Faults::default() && plan.pauses.is_empty();
    for task in &plan.tasks {
        let lock = clients[task.client].lock.clone();
        let alone = plan.tasks.iter().filter(|other| other.owner == task.owner);
        let nature = [alone.count() == 1, without_faults];
        let work = task::run(task.clone(), nature, lock, reports.clone());
        tasks.push(tokio::spawn(work));
    }
    drop(reports);
    while let Some(report) = received.recv().await {
        let mut observer = observer.borrow_mut();
        match report {
            Report::Says(line) => observer.note(|| line),
            Report::Wrong(what) => observer.claim(false, || what),
            Report::Released(field) => {
                let deleted = observer.was_deleted(&field);
                observer.claim(deleted, || format!("{field} is said to be released"));
            }
        }
    }
    let mut guards: Vec<Guard> = Vec::new();
    let mut calls = Vec::new();
    for task in tasks {
        match task.await {
            Ok((held, left)) => {
                guards.extend(held);
                calls.extend(left);
            }
            Err(error) => observer.borrow_mut().claim(false, || error.to_string()),
        }
    }
    network.calm();
    observer.borrow_mut().note(|| "calm".to_owned());
    // A pending release is completed when another caller waits for it; here no caller does.
    calls.retain(|call| matches!(call, Left::Acquire(_)));
    if !calls.is_empty() {
        let pauses = plan.pauses_end_ms() + LEFT_MS;
        // A force-unlocked hold of an abandoned call stays listed until the call is resumed.
        tokio::time::sleep(Duration::from_millis(pauses)).await;
        observer.borrow_mut().look_at_left();
    }
    drop(calls);
    let watched = if without_faults {
        observer.borrow().watched()
    } else {
        Vec::new()
    };
    rest(plan, network, observer).await;
    observer.borrow_mut().look_at_rest();
    if !watched.is_empty() {
        let leases = 2 * plan.longest_lease_ms();
        tokio::time::sleep(Duration::from_millis(leases)).await;
    }
    for hold in watched {
        observer.borrow_mut().look_whether_kept(&hold);
    }

    drop(guards);
    for task in &plan.tasks {
        let owner = Owner::from_id(task.owner);
        let lock = &clients[task.client].lock;
        // As often as the task could have forgotten a guard.
        for _ in 0..task.steps.len() {
            let _ = lock.unlock().owner(&owner).await;
        }
    }
    rest(plan, network, observer).await;
    observer.borrow_mut().look_at_rest();
    let lease = plan.longest_lease_ms();
    // A slower clock notices a little later what expired on the server.
    tokio::time::sleep(Duration::from_millis(lease + lease / 50 + 10)).await;
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        let guard = client.lock.try_lock().wait(Duration::from_secs(5)).await;
        let free = matches!(guard, Ok(Some(_)));
        observer.borrow_mut().claim(free, || {
            format!("a free lock cannot be had on a calm network: {guard:?}")
        });
        drop(guard);
        drop(client.lock);
        let ended = client.watchdog.await;
        observer.borrow_mut().claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
}

/// Waits until all commands have arrived, every retry is done, and every release is answered.
async fn rest(plan: &Plan, network: &Network, observer: &RefCell<Observer>) {
    // A frozen client does its part afterwards.
    let paused = plan
        .pauses_end_ms()
        .saturating_sub(observer.borrow().now_ms());
    let retries = 3 * plan.command_timeout_ms + 1200;
    tokio::time::sleep(Duration::from_millis(paused + retries)).await;
    while !network.is_idle() || observer.borrow().owes_a_release() {
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
    let clock = Clock::simulated(clock);
    let endpoint = Endpoint::simulated(Wiring(network.clone()), &clock);
    let context = Context {
        clock: clock.clone(),
        background: Background::here(),
        command_timeout: ms(plan.command_timeout_ms),
        watchdog_lease: ms(plan.watchdog_lease_ms),
    };
    let server = Server::new(endpoint, context);
    let settings = Settings {
        watchdog_lease: ms(plan.watchdog_lease_ms),
        poll_cap: ms(plan.poll_cap_ms),
        max_lease: Duration::from_secs(60),
        wake: Wake::Poll(Backoff::exponential(ms(2), ms(32), 2)),
        hand_overs: HandOverLimits {
            hand_overs: 3,
            time: ms(20),
        },
        reentry: Reentry::default(),
        quarantine_on_server: false,
        expected: None,
        name_mapper: None,
    };
    let (core, mut jobs) = Core::new(settings, clock, server, 100);
    let core = Arc::new(core);
    let lock = Lock::new(Arc::new(Session::new(core.clone())), &kind::PLAIN, KEY);
    let watched = core.clone();
    let pauses: Vec<Pause> = plan.pauses.clone();
    let watchdog = tokio::spawn(async move {
        let watch = watchdog::watch(&watched, &mut jobs);
        with_pauses(watch, number, &pauses).await;
    });
    (SimulatedClient { lock, watchdog }, core)
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

/// A call that is not polled counts as abandoned this long after the end of its own time.
const LEFT_MS: u64 = 5000;

/// In virtual time; much longer than any plan.
const LONGEST: Duration = Duration::from_secs(600);
