//! A history of a fair lock on a real server: whether its grants come in the order of its queue.
//!
//! The caller of an acquire does not learn when its hold entered the queue. So a connection of the test reads the lock
//! and its queue over and over. An entry took place between the last reading without the hold and the first one with
//! it. If no reading shows it, it took place between the begin and the end of the call. The time at which a waiter may
//! lose its place is the latest end of its presence that the server showed. Each reading that shows a change is a call
//! of the history, so the search has few orders to try.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::{ClientBuilder, Lock, Owner, Unlocked};
use tokio::task::JoinSet;

use super::fair_queue::{FairCall, FairQueue};
use super::search::{PATIENCE, Timed, Verdict, judge};
use crate::fixture::{connected, patient};
use crate::support::child::{self, argument, await_go_ahead, send};
use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Dice, Redis, RedisServer, eventually};

/// One call that acquires, and what its caller saw. The times are in nanoseconds since the begin of the history.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// Also the number of its owner. Each call has an owner of its own.
    hold: u32,
    began: u64,
    /// When the caller had the guard.
    granted: Option<u64>,
    /// From then on it may release the lock, or leave the queue. `None`: it never does.
    leaves: Option<u64>,
    /// When its release was answered.
    left: Option<u64>,
}

impl Visit {
    fn begins(hold: u32, record: &Record) -> Self {
        Self {
            hold,
            began: record.now(),
            granted: None,
            leaves: None,
            left: None,
        }
    }

    /// What happened to the hold, by what its caller and the server showed.
    ///
    /// A hold that nobody saw in the queue or in the lock has no calls. If it had a place for a short time, the history
    /// is as legal without that: nobody else needs it.
    fn calls(&self, samples: &[Sample]) -> Vec<Timed<FairCall>> {
        let hold = self.hold;
        let mut calls = Vec::new();
        let mut add = |call, began, ended| calls.push(Timed { call, began, ended });
        // It had no place then. So its next entry is later, and its grant, too.
        let mut since = self.began;
        // While it has a place: the end of its presence.
        let mut present_until: Option<u64> = None;
        let mut granted = self.granted;
        for sample in samples.iter().filter(|it| it.ended > self.began) {
            // It may have been released by then.
            if self.granted.is_some_and(|at| sample.ended > at) {
                break;
            }
            if sample.holder == Some(hold) {
                granted = Some(sample.ended);
                break;
            }
            let place = sample.waiting.iter().position(|(it, _)| *it == hold);
            let Some(place) = place else {
                if let Some(until) = present_until.take()
                    && until <= sample.ended
                {
                    add(FairCall::Expire(hold), until, None);
                }
                since = since.max(sample.began);
                continue;
            };
            if present_until.is_none() {
                // The waiters behind it entered by later scripts, each of which takes longer than a nanosecond.
                let behind = (sample.waiting.len() - place) as u64;
                add(FairCall::Enter(hold), since, Some(sample.ended - behind));
            }
            let (_, until) = sample.waiting[place];
            present_until = present_until.max(Some(until));
        }
        if let Some(by) = granted {
            if present_until.is_none() {
                add(FairCall::Enter(hold), since, Some(by));
            }
            add(FairCall::Grant(hold), since, Some(by));
        }
        if let Some(leaves) = self.leaves
            && !calls.is_empty()
        {
            calls.push(Timed {
                call: FairCall::Leave(hold),
                began: leaves,
                ended: self.left,
            });
        }
        calls
    }
}

/// What the server had at one moment between these times.
#[derive(Clone, Debug)]
struct Sample {
    began: u64,
    ended: u64,
    holder: Option<u32>,
    /// Each waiter, and the earliest time at which it may lose its place.
    waiting: Vec<(u32, u64)>,
}

impl Sample {
    /// Reads the answer to [`LOOK`].
    fn of(answer: &[String], began: u64, ended: u64) -> Self {
        let (holders, waiting) = answer.split_first().expect("it says who has the lock");
        assert!(!holders.contains(' '), "two holders: {holders}");
        let until = |left: &str| {
            let left: u64 = left.parse().expect("it is in milliseconds");
            // The server counts whole milliseconds, and its clock may be adjusted a little.
            began + ms(left.saturating_sub(5)).as_nanos() as u64
        };
        Self {
            began,
            ended,
            holder: (!holders.is_empty()).then(|| hold_of(holders)),
            waiting: waiting
                .chunks_exact(2)
                .map(|it| (hold_of(&it[0]), until(&it[1])))
                .collect(),
        }
    }

    fn seen(&self) -> FairCall {
        FairCall::Seen {
            holder: self.holder,
            waiting: self.waiting.iter().map(|(hold, _)| *hold).collect(),
        }
    }
}

/// The number of the owner in a field.
fn hold_of(field: &str) -> u32 {
    let owner = field
        .rsplit_once('.')
        .and_then(|(it, _)| it.rsplit_once(':'));
    let (_, owner) = owner.expect("a field is <client>:<owner>.<number>");
    owner.parse().expect("each owner has a number")
}

struct Record {
    start: Instant,
    is_over: AtomicBool,
    visits: Mutex<Vec<Visit>>,
    samples: Mutex<Vec<Sample>>,
}

impl Record {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn add(&self, visit: Visit) {
        self.visits.lock().unwrap().push(visit);
    }

    /// Whether the last sample shows the hold in the queue.
    fn waits(&self, hold: u32) -> bool {
        let samples = self.samples.lock().unwrap();
        let mut waiting = samples.last().into_iter().flat_map(|it| &it.waiting);
        waiting.any(|(it, _)| *it == hold)
    }

    async fn eventually_waits(&self, hold: u32) {
        eventually(SOON, "it is in the queue", async || self.waits(hold)).await;
    }

    /// The calls of all holds, and each sample that shows a change.
    fn calls(&self) -> Vec<Timed<FairCall>> {
        let (visits, samples) = (self.visits.lock().unwrap(), self.samples.lock().unwrap());
        let of_hold = |visit: &Visit| visit.calls(&samples);
        let mut calls: Vec<Timed<FairCall>> = visits.iter().flat_map(of_hold).collect();
        let mut last = None;
        for sample in samples.iter() {
            let seen = sample.seen();
            if last.as_ref() != Some(&seen) {
                calls.push(Timed {
                    call: seen.clone(),
                    began: sample.began,
                    ended: Some(sample.ended),
                });
                last = Some(seen);
            }
        }
        calls
    }
}

/// Samples the lock until the history is over.
async fn observe(record: Arc<Record>, redis: Redis) {
    while !record.is_over.load(Ordering::Relaxed) {
        let began = record.now();
        let answer: Vec<String> = redis.ask(&["EVAL", LOOK, "3", NAME, QUEUE, PRESENCE]).await;
        let sample = Sample::of(&answer, began, record.now());
        record.samples.lock().unwrap().push(sample);
        tokio::time::sleep(ms(1)).await;
    }
}

/// How a call waits.
#[derive(Clone, Copy)]
enum Wait {
    Never,
    For(Duration),
    /// Its future is dropped.
    CancelledAfter(Duration),
}

/// Acquires the lock, holds it for a moment and releases it.
async fn visit(record: Arc<Record>, lock: Lock, hold: u32, wait: Wait) {
    let request = lock.try_lock().owner(&Owner::from_id(hold.into()));
    let mut visit = Visit::begins(hold, &record);
    let (acquired, stays) = match wait {
        Wait::Never => (Some(request.await), Duration::ZERO),
        Wait::For(limit) => (Some(request.wait(limit).await), limit),
        Wait::CancelledAfter(limit) => {
            let waiting = request.wait(LONG).into_future();
            (tokio::time::timeout(limit, waiting).await.ok(), limit)
        }
    };
    match acquired {
        Some(Ok(Some(guard))) => {
            visit.granted = Some(record.now());
            tokio::time::sleep(ms(u64::from(hold % 3))).await;
            visit.leaves = Some(record.now());
            if hold % 4 == 3 {
                drop(guard);
            } else if let Ok(Unlocked::Released) = guard.unlock().await {
                visit.left = Some(record.now());
            }
        }
        // It kept its place until the end of its wait.
        Some(Ok(None)) | None => {
            let stays = stays.saturating_sub(ms(1));
            visit.leaves = Some(visit.began + stays.as_nanos() as u64);
        }
        // The server did not answer, as on a busy machine.
        Some(Err(_)) => visit.leaves = Some(visit.began),
    }
    record.add(visit);
}

/// One after the other, each of which waits in another way.
async fn visits(record: Arc<Record>, lock: Lock, first: u32, mut dice: Dice) {
    for hold in first..first + ROUNDS {
        tokio::time::sleep(Duration::from_micros(dice.roll(6_000))).await;
        let wait = match dice.roll(10) {
            0 => Wait::Never,
            1..4 => Wait::For(ms(20 + dice.roll(300))),
            4..7 => Wait::CancelledAfter(ms(dice.roll(100))),
            _ => Wait::For(LONG),
        };
        visit(record.clone(), lock.clone(), hold, wait).await;
    }
}

/// The other process: a waiter. It releases the lock at the go-ahead.
async fn waits_there(argument: &str) {
    let (url, hold) = argument.split_once(' ').expect("an address and a hold");
    let client = patient(url.to_owned()).poll_cap(ms(250));
    let client = connected(client.fair_absence(ABSENCE)).await;
    let owner = Owner::from_id(hold.parse().expect("a number"));
    // A limit, because the other process waits without one for what this one says.
    let guard = client.fair_lock(NAME).try_lock().wait(SOON * 3);
    let guard = guard.owner(&owner).await;
    let guard = guard.expect("nothing is wrong with the server");
    let guard = guard.expect("its turn comes");
    send("granted");
    await_go_ahead();
    guard.unlock().await.expect("it is held");
    send("released");
    await_go_ahead();
}

/// A waiter of this process is polled within the poll cap and not absent, also on a busy machine.
fn steady(builder: ClientBuilder) -> ClientBuilder {
    builder.poll_cap(ms(10_000)).fair_absence(LONG)
}

/// FA3 and FA4: eight tasks of four clients wait behind a process that is killed, one that is stopped, and a waiter
/// that is cancelled. The stopped one enters the queue again when it continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fair_lock_answers_like_a_queue_whose_first_waiter_is_granted() {
    if let Some(argument) = argument() {
        return waits_there(&argument).await;
    }
    let mut dice = Dice::from_environment();
    let server = RedisServer::start().await;
    let record = Arc::new(Record {
        start: Instant::now(),
        is_over: AtomicBool::new(false),
        visits: Mutex::default(),
        samples: Mutex::default(),
    });
    let observer = tokio::spawn(observe(record.clone(), server.redis().await));
    let mut locks = Vec::new();
    for _ in 0..CLIENTS {
        let client = connected(steady(patient(server.url()))).await;
        locks.push(client.fair_lock(NAME));
    }
    let mut holder = Visit::begins(HOLDER, &record);
    let held = locks[0].lock().owner(&Owner::from_id(HOLDER.into()));
    let held = held.lease(LONG).await.unwrap();
    holder.granted = Some(record.now());

    // The waiters enter one after the other.
    let there = |hold: u32| child::Copy::run(TEST, &format!("{} {hold}", server.url()));
    record.add(Visit::begins(DEAD, &record));
    let dying = there(DEAD);
    record.eventually_waits(DEAD).await;
    let mut stopped = Visit::begins(STOPPED, &record);
    let mut stopping = there(STOPPED);
    record.eventually_waits(STOPPED).await;
    let mut tasks = JoinSet::new();
    let patiently = Wait::For(LONG);
    tasks.spawn(visit(record.clone(), locks[0].clone(), BEHIND, patiently));
    record.eventually_waits(BEHIND).await;
    let mut cancelled = Visit::begins(CANCELLED, &record);
    let waiter = locks[1].lock().owner(&Owner::from_id(CANCELLED.into()));
    let waiter = tokio::spawn(waiter.into_future());
    record.eventually_waits(CANCELLED).await;
    tasks.spawn(visit(record.clone(), locks[2].clone(), LAST, patiently));
    record.eventually_waits(LAST).await;

    // Three of them are not there any more when the lock becomes free.
    dying.kill();
    stopping.pause();
    cancelled.leaves = Some(record.now());
    waiter.abort();
    record.add(cancelled);
    for task in 0..TASKS {
        let lock = locks[task as usize % CLIENTS].clone();
        let dice = Dice::of(dice.roll(u64::MAX));
        let first = FIRST_OF_TASKS * (task + 1);
        tasks.spawn(visits(record.clone(), lock, first, dice));
    }
    holder.leaves = Some(record.now());
    held.unlock().await.unwrap();
    holder.left = Some(record.now());
    record.add(holder);
    // Each try lets the server look for waiters that are not present any more.
    let client = connected(steady(patient(server.url()))).await;
    let (lock, mut hold) = (client.fair_lock(NAME), FIRST_TRY);
    eventually(SOON, "they have lost their places", async || {
        hold += 1;
        visit(record.clone(), lock.clone(), hold, Wait::Never).await;
        !record.waits(DEAD) && !record.waits(STOPPED)
    })
    .await;

    stopping.resume();
    assert_eq!(stopping.receive(), "granted");
    stopped.granted = Some(record.now());
    stopped.leaves = Some(record.now());
    stopping.go_ahead();
    assert_eq!(stopping.receive(), "released");
    stopped.left = Some(record.now());
    record.add(stopped);
    let ended = tokio::time::timeout(SOON * 3, tasks.join_all()).await;
    ended.expect("each waiter has its turn");
    record.is_over.store(true, Ordering::Relaxed);
    observer.await.expect("the observer does not panic");
    is_in_order(record.calls());
}

/// Judges the history, and then parts of it that were made wrong.
fn is_in_order(mut calls: Vec<Timed<FairCall>>) {
    // The whole of it, if the search decides that: in a part, only a grant that comes too early is wrong.
    let verdict = super::verdict(&FairQueue::default(), &calls);
    if verdict != Verdict::Legal {
        calls.sort_by_key(|call| call.began);
        panic!("the history is {verdict:?}: {calls:#?}");
    }
    // A part of the holds, without the samples. The others need not be there: a legal history is also legal without
    // all calls of a hold.
    let part = |holds: &[u32]| {
        let is_of = |hold| holds.contains(&hold);
        let of_part = calls.iter().filter(|it| it.call.hold().is_some_and(is_of));
        let part: Vec<Timed<FairCall>> = of_part.cloned().collect();
        assert_eq!(judged(&part), Verdict::Legal, "{part:#?}");
        part
    };
    // These two entered one after the other.
    let both = part(&[HOLDER, BEHIND, LAST]);
    for hold in [BEHIND, LAST] {
        let is_granted = both.iter().any(|it| it.call == FairCall::Grant(hold));
        assert!(is_granted, "{hold} has had its turn: {both:#?}");
    }
    let forged = exchanged(both, [BEHIND, LAST]);
    assert_eq!(judged(&forged), Verdict::Illegal, "{forged:#?}");
    // Each of these was before the last one and lost its place.
    for end in [
        FairCall::Expire(DEAD),
        FairCall::Expire(STOPPED),
        FairCall::Leave(CANCELLED),
    ] {
        let gone = end.hold().expect("it is of a hold");
        let mut forged = part(&[HOLDER, gone, LAST]);
        forged.retain(|it| it.call != end);
        assert_eq!(judged(&forged), Verdict::Illegal, "{forged:#?}");
    }
}

fn judged(calls: &[Timed<FairCall>]) -> Verdict {
    judge(&FairQueue::default(), calls, PATIENCE)
}

/// Each of the two has the other one's turn.
fn exchanged(mut calls: Vec<Timed<FairCall>>, [one, other]: [u32; 2]) -> Vec<Timed<FairCall>> {
    let exchange = |hold: u32| {
        if hold == one {
            other
        } else if hold == other {
            one
        } else {
            hold
        }
    };
    for it in &mut calls {
        it.call = match &it.call {
            FairCall::Grant(hold) => FairCall::Grant(exchange(*hold)),
            FairCall::Leave(hold) => FairCall::Leave(exchange(*hold)),
            call => call.clone(),
        };
    }
    calls
}

/// The fields that have the lock, then each field in the queue and for how many milliseconds it is present.
const LOOK: &str = "local clock = redis.call('time')\n\
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)\n\
    local seen = { table.concat(redis.call('hkeys', KEYS[1]), ' ') }\n\
    for _, field in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do\n\
        local ends = tonumber(redis.call('zscore', KEYS[3], field) or nil) or now\n\
        seen[#seen + 1] = field\n\
        seen[#seen + 1] = string.format('%.0f', math.max(0, ends - now))\n\
    end\n\
    return seen";

const TEST: &str =
    "model::linear::fair_histories::a_fair_lock_answers_like_a_queue_whose_first_waiter_is_granted";
const NAME: &str = "door";
const QUEUE: &str = "redisson_lock_queue:{door}";
const PRESENCE: &str = "lockdog_fair:{door}";
/// Of the two other processes.
const ABSENCE: Duration = ms(4_000);

const HOLDER: u32 = 1;
const DEAD: u32 = 2;
const STOPPED: u32 = 3;
const BEHIND: u32 = 4;
const CANCELLED: u32 = 5;
const LAST: u32 = 6;
/// The holds of the first task. Those of the second one begin with twice this number.
const FIRST_OF_TASKS: u32 = 100;
const FIRST_TRY: u32 = 10_000;

const CLIENTS: usize = 4;
const TASKS: u32 = 8;
/// The calls of each task.
const ROUNDS: u32 = 12;
