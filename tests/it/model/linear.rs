//! Histories of calls on a real server, with faults: whether a sequential object could have answered them.
//!
//! The faults are replies that are lost, commands that run twice, final unlocks that run once more long after
//! their answers, cut connections and cancelled calls. A call whose outcome is unknown takes effect at any later time, or never.
//! In the histories of locks one hold ends with its lease.
//!
//! In these histories a fair lock is a lock with one holder. `fair_histories` has a history without such faults, with
//! the queue: entries, waiters that leave, and waiters whose client is dead or stopped.

mod elections;
mod fair_histories;
mod fair_queue;
mod fair_verdicts;
mod groups;
mod latches;
mod locks;
mod objects;
mod permits;
mod programs;
mod read_write;
mod search;
mod verdicts;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::Client;

use crate::support::prelude::{SOON, ms};
use crate::support::{Action, Dice, Gate, Proxy, RedisServer, named, until_ok};
use search::{PATIENCE, Sequential, Timed, Verdict, judge, judge_until};

/// The calls of one history.
struct Record<S: Sequential> {
    start: Instant,
    command_timeout: Duration,
    calls: Mutex<Vec<Timed<S::Call>>>,
}

impl<S: Sequential> Record<S> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// A call that began then and has this answer now.
    fn answered(&self, began: u64, call: S::Call) {
        let ended = Some(self.now());
        self.calls
            .lock()
            .unwrap()
            .push(Timed { call, began, ended });
    }

    /// A call that began then and may have sent several commands: what a command without an answer
    /// acquired is undone before the next one is sent. `phantom` gives such a hold and its end.
    fn acquired(&self, began: u64, call: S::Call, phantom: impl FnMut() -> [S::Call; 2]) {
        self.phantoms(began, 0, phantom);
        self.answered(began, call);
    }

    /// As [`acquired`](Self::acquired), for a call that acquired nothing. If it waited, its time may
    /// have ended before the answer to a command that acquired.
    fn refused(
        &self,
        began: u64,
        call: S::Call,
        has_waited: bool,
        phantom: impl FnMut() -> [S::Call; 2],
    ) {
        self.phantoms(began, u64::from(has_waited), phantom);
        self.answered(began, call);
    }

    fn phantoms(&self, began: u64, least: u64, mut phantom: impl FnMut() -> [S::Call; 2]) {
        let silence = self.command_timeout.as_nanos() as u64;
        // The client's timer may be slightly early.
        let unanswered = (self.now() - began + silence / 3) / silence;
        for _ in 0..unanswered.max(least) {
            for call in phantom() {
                self.unanswered(began, call);
            }
        }
    }

    /// A call that began then and whose outcome is unknown.
    fn unanswered(&self, began: u64, call: S::Call) {
        let ended = None;
        self.calls
            .lock()
            .unwrap()
            .push(Timed { call, began, ended });
    }
}

/// What one task of a history has: its client, the name of what it uses, and where it writes down what happened.
struct Part<S: Sequential> {
    client: Client,
    name: String,
    record: Arc<Record<S>>,
    dice: Dice,
    /// Different for each task.
    number: u32,
    holds: u32,
}

impl<S: Sequential> Part<S> {
    /// A number for a new hold, different from all others.
    fn hold(&mut self) -> u32 {
        self.holds += 1;
        self.number * 10_000 + self.holds
    }

    /// How long the next call waits: not at all, or for a while.
    fn wait(&mut self) -> Option<Duration> {
        (self.dice.roll(100) < 60).then(|| ms(20 + self.dice.roll(300)))
    }

    /// Awaits a call, and sometimes cancels it. `None`: it was cancelled.
    async fn made<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        match self.dice.roll(100) {
            0..5 => {
                let most = Duration::from_micros(self.dice.roll(3_000));
                tokio::time::timeout(most, call).await.ok()
            }
            _ => Some(call.await),
        }
    }

    async fn rest(&mut self) {
        tokio::time::sleep(Duration::from_micros(self.dice.roll(6_000))).await;
    }
}

/// Runs a few histories under faults, side by side, and judges them. `forge` gives what makes a legal one illegal, if it
/// has a hold whose end is known.
async fn are_legal<S, F>(
    start: S,
    part: impl Fn(Part<S>) -> F,
    forge: impl Fn(&[Timed<S::Call>]) -> Option<Timed<S::Call>>,
) where
    S: Sequential + Send + Sync + 'static,
    S::Call: Send + Sync,
    F: Future<Output = ()> + Send + 'static,
{
    let mut dice = Dice::from_environment();
    let mut command_timeout = COMMAND_TIMEOUT;
    let mut usable: Vec<Vec<Timed<S::Call>>> = Vec::new();
    for _ in 0..ATTEMPTS {
        let (found, faults) = histories(&start, &part, &mut dice, command_timeout).await;
        println!("{faults} faults took place");
        if faults >= LEAST_FAULTS {
            let is_usable = |calls: &Vec<_>| has_answers(calls) && forge(calls).is_some();
            usable.extend(found.into_iter().filter(is_usable));
        }
        if usable.len() >= HISTORIES as usize {
            break;
        }
        // On a busy machine most commands may time out.
        command_timeout *= 2;
    }
    assert!(
        !usable.is_empty(),
        "{ATTEMPTS} times each history had too few faults, too few answers, or no hold whose end is known"
    );
    let histories = usable.len();
    let (mut decided, mut refused) = (0, 0);
    for mut calls in usable {
        match verdict(&start, &calls) {
            Verdict::Legal => decided += 1,
            Verdict::Illegal => {
                calls.sort_by_key(|call| call.began);
                panic!("no order explains {calls:#?}");
            }
            Verdict::Undecided => {}
        }
        // The search can refuse a history: it never accepts this forged one.
        let forged = forge(&calls);
        calls.extend(Some(
            forged.expect("a hold ended, and its client has seen the end"),
        ));
        match judge(&start, &calls, PATIENCE) {
            Verdict::Legal => panic!("a forged history is legal: {calls:#?}"),
            Verdict::Illegal => refused += 1,
            Verdict::Undecided => {}
        }
    }
    assert!(
        decided > 0,
        "the search decides no history, and no beginning of one"
    );
    // Of forty forged histories it leaves one undecided.
    assert!(
        refused > 0 || histories == 1,
        "the search refuses no forged history"
    );
}

/// The verdict on the history. If the search does not decide it, as with many calls without answers, the verdict on
/// a half of it, or less.
fn verdict<S: Sequential>(start: &S, calls: &[Timed<S::Call>]) -> Verdict {
    let mut ends: Vec<u64> = calls.iter().filter_map(|call| call.ended).collect();
    ends.sort_unstable();
    let mut patience = PATIENCE;
    for part in [1, 2, 4, 8] {
        let explained = ends.len() / part;
        let verdict = judge_until(start, calls, ends[explained - 1], patience);
        println!("the first {explained} answers: {verdict:?}");
        if verdict != Verdict::Undecided {
            return verdict;
        }
        patience.attempts = PATIENCE.attempts / 4;
    }
    Verdict::Undecided
}

/// Whether enough calls were answered.
fn has_answers<C>(calls: &[Timed<C>]) -> bool {
    let answered = calls.iter().filter(|call| call.ended.is_some()).count();
    println!("{answered} of {} calls were answered", calls.len());
    answered as u32 > TASKS * CALLS / 3
}

/// What the calls of each history were, and how many faults took place.
async fn histories<S, F>(
    start: &S,
    part: &impl Fn(Part<S>) -> F,
    dice: &mut Dice,
    command_timeout: Duration,
) -> (Vec<Vec<Timed<S::Call>>>, u64)
where
    S: Sequential + Send + Sync + 'static,
    S::Call: Send + Sync,
    F: Future<Output = ()> + Send + 'static,
{
    let server = RedisServer::start().await;
    let (mut clients, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let proxy = Proxy::start(&server).await;
        let client = Client::builder()
            .url(proxy.url())
            .command_timeout(command_timeout)
            .poll_cap(ms(60))
            .fair_absence(ms(400));
        clients.push(until_ok(SOON, async || client.clone().build().await).await);
        proxies.push(proxy);
    }
    for history in 0..HISTORIES {
        if let Some(number) = start.number() {
            let (name, number) = (format!("history:{history}"), number.to_string());
            server.redis().await.cmd(&["SET", &name, &number]).await;
        }
    }
    let mut tasks = tokio::task::JoinSet::new();
    let records: Vec<_> = (0..HISTORIES)
        .map(|history| {
            let record = Arc::new(Record {
                start: Instant::now(),
                command_timeout,
                calls: Mutex::default(),
            });
            let name = format!("history:{history}");
            for number in 0..TASKS {
                tasks.spawn(part(Part {
                    client: clients[number as usize].clone(),
                    name: name.clone(),
                    record: record.clone(),
                    dice: Dice::of(dice.roll(u64::MAX)),
                    number,
                    holds: 0,
                }));
            }
            record
        })
        .collect();
    let over = Arc::new(AtomicBool::new(false));
    let injection = tokio::spawn(inject_faults(
        proxies,
        Dice::of(dice.roll(u64::MAX)),
        over.clone(),
    ));
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics");
    }
    over.store(true, Ordering::Relaxed);
    let faults = injection.await.expect("no fault panics");
    let calls = records.into_iter().map(|record| {
        let calls = record.calls.lock().unwrap();
        calls.clone()
    });
    (calls.collect(), faults)
}

/// Causes faults until `over` is set. Returns the number of faults that took place.
async fn inject_faults(proxies: Vec<Proxy>, mut dice: Dice, over: Arc<AtomicBool>) -> u64 {
    let mut rules = Vec::new();
    let mut gates: Vec<(Instant, Gate)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let proxy = &proxies[dice.roll(proxies.len() as u64) as usize];
        let rule = match dice.roll(8) {
            0 => proxy.on(named("evalsha"), Action::DropReply),
            1..3 => proxy.on(named("evalsha"), Action::ExecuteThenCut).times(2),
            3..5 => proxy.on(named("evalsha"), Action::Twice).times(3),
            5..7 => {
                let gate = Gate::new();
                gates.push((Instant::now() + ms(dice.roll(200)), gate.clone()));
                proxy.on(is_final, Action::TwiceLate(gate)).times(3)
            }
            _ => {
                proxy.cut_all();
                continue_after(&mut dice).await;
                continue;
            }
        };
        rules.push(rule);
        let now = Instant::now();
        gates.retain(|(at, gate)| {
            let waits = *at > now;
            if !waits {
                gate.open();
            }
            waits
        });
        continue_after(&mut dice).await;
    }
    for (_, gate) in gates {
        gate.open();
    }
    rules.iter().map(|rule| rule.hits()).sum()
}

async fn continue_after(dice: &mut Dice) {
    tokio::time::sleep(ms(5 + dice.roll(25))).await;
}

/// Whether a command ends a hold: its target is 0. A late copy of an inner unlock would set a smaller
/// count until the hold's next command, and a late copy of an acquire would set the hold again.
fn is_final(args: &[String]) -> bool {
    let keys = args.get(2).and_then(|keys| keys.parse::<usize>().ok());
    let target = keys.and_then(|keys| args.get(3 + keys + 1));
    named("evalsha")(args) && target.is_some_and(|target| target == "0")
}

/// At first.
const COMMAND_TIMEOUT: Duration = ms(150);
/// In the histories of an attempt together.
const LEAST_FAULTS: u64 = 10;
const CLIENTS: usize = 8;
const HISTORIES: u32 = 3;
/// For each history, one of each client, and how many calls each makes.
const TASKS: u32 = CLIENTS as u32;
const CALLS: u32 = 28;
/// How often the histories begin again on a busy machine.
const ATTEMPTS: u32 = 5;
