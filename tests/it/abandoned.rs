//! Every public future is polled some times and then abandoned, while all other calls continue (design:
//! invariant 14). `public::PUBLIC` lists the futures. `case` describes what has to continue. A future is
//! abandoned after its first poll, after its second, and so on until it ends. It is polled only when it was
//! woken.

mod case;
mod fixture;
mod listed;
mod public;
mod site;
mod stalls;
mod steps;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::Logs;
use crate::support::child::is_alone;
use case::{Case, Mode, Network};
use fixture::Shape;
use public::{PUBLIC, Public};
use site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_does_no_harm() {
    if is_alone("abandoned::each_abandoned_future_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Plain], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_does_no_harm_during_reconnects() {
    if is_alone("abandoned::each_abandoned_future_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Plain], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_multi_lock_does_no_harm() {
    if is_alone("abandoned::each_abandoned_future_of_a_multi_lock_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Multi], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_multi_lock_does_no_harm_during_reconnects() {
    if is_alone("abandoned::each_abandoned_future_of_a_multi_lock_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Multi], Network::Cut, |_| true).await;
    }
}

/// Also as the first in the server's queue, and behind another waiter of its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_fair_lock_does_no_harm() {
    if is_alone("abandoned::each_abandoned_future_of_a_fair_lock_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Fair], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_fair_lock_does_no_harm_during_reconnects() {
    if is_alone("abandoned::each_abandoned_future_of_a_fair_lock_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Fair], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_of_values_does_no_harm() {
    if is_alone("abandoned::each_abandoned_future_of_a_lock_of_values_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Group], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_of_values_does_no_harm_during_reconnects() {
    if is_alone(
        "abandoned::each_abandoned_future_of_a_lock_of_values_does_no_harm_during_reconnects",
    ) {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Group], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_on_three_servers_does_no_harm() {
    if is_alone("abandoned::each_abandoned_future_of_a_lock_on_three_servers_does_no_harm") {
        let site = Site::servers(3).await;
        run_all(site, &[Shape::Quorum], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_on_three_servers_does_no_harm_during_reconnects() {
    let name = "abandoned::each_abandoned_future_of_a_lock_on_three_servers_does_no_harm_during_reconnects";
    if is_alone(name) {
        let site = Site::servers(3).await;
        run_all(site, &[Shape::Quorum], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_abandoned_at_a_sentinel_master_do_no_harm() {
    if is_alone("abandoned::acquires_abandoned_at_a_sentinel_master_do_no_harm") {
        let site = Site::sentinels().await;
        run_all(site, &[Shape::Plain], Network::Cut, |it| it.everywhere).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_abandoned_at_a_cluster_do_no_harm() {
    if is_alone("abandoned::acquires_abandoned_at_a_cluster_do_no_harm") {
        let site = Site::cluster().await;
        run_all(site, &[Shape::Plain], Network::Cut, |it| it.everywhere).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_future_abandoned_at_a_sentinel_master_does_no_harm() {
    if is_alone("abandoned::every_future_abandoned_at_a_sentinel_master_does_no_harm") {
        let site = Site::sentinels().await;
        run_all(site, &ONE_KEY, Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_future_abandoned_at_a_sentinel_master_does_no_harm_during_reconnects() {
    if is_alone(
        "abandoned::every_future_abandoned_at_a_sentinel_master_does_no_harm_during_reconnects",
    ) {
        let site = Site::sentinels().await;
        run_all(site, &ONE_KEY, Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_future_abandoned_at_a_cluster_does_no_harm() {
    if is_alone("abandoned::every_future_abandoned_at_a_cluster_does_no_harm") {
        let site = Site::cluster().await;
        run_all(site, &ONE_KEY, Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_future_abandoned_at_a_cluster_does_no_harm_during_reconnects() {
    if is_alone("abandoned::every_future_abandoned_at_a_cluster_does_no_harm_during_reconnects") {
        let site = Site::cluster().await;
        run_all(site, &ONE_KEY, Network::Cut, |_| true).await;
    }
}

/// Runs every case of these futures, and fails with all failures together. A failure on a busy machine
/// proves nothing, so that case runs again, with fewer cases at the same time in each round.
async fn run_all(site: Site, shapes: &[Shape], network: Network, which: impl Fn(&Public) -> bool) {
    let began = Instant::now();
    let logs = Logs::warnings_of_this_process();
    let only = std::env::var(ONLY).unwrap_or_default();
    let site = Arc::new(site);
    let of_shape = |shape: Shape| PUBLIC.iter().map(move |public| (public, shape));
    let all = shapes.iter().copied().flat_map(of_shape);
    let chosen = all.filter(|(public, shape)| public.shapes.contains(shape) && which(public));
    let named = chosen.filter(|(public, _)| public.name.contains(&only));
    let mut work: Vec<Work> = named
        .map(|(public, shape)| {
            Work::EachStep(Case {
                site: site.clone(),
                public,
                shape,
                network,
                mode: Mode::Left,
                polls: MOST_POLLS,
            })
        })
        .collect();
    let mut done = Done::default();
    for at_once in AT_ONCE {
        run_round(&mut done, std::mem::take(&mut work), at_once).await;
        work = done.again();
        if work.is_empty() {
            break;
        }
        site.stalls.calm(STALL).await;
    }
    let stall = site.stalls.longest(began);
    let Done {
        cases,
        doubts,
        mut failures,
        repeated,
    } = done;
    failures.extend(doubts.into_iter().map(|(_, why)| why));
    failures.sort();
    let warnings = logs.at_least(tracing::Level::WARN);
    let mut warnings: Vec<String> = warnings.into_iter().map(|line| line.text).collect();
    // Each case shuts its clients down while it holds a lock.
    warnings.retain(|text| !text.contains("reason=\"shut_down\""));
    if network == Network::Cut || stall >= STALL {
        // These messages are expected when connections break or answers are late.
        warnings.retain(|text| !TRUE_IN_TROUBLE.iter().any(|it| text.contains(it)));
    }
    if stall >= TIMEOUT / 4 {
        // With others before and after it, a command has no answer or no connection in its time, and a release
        // is tried again.
        let late = ["failure=silent: no answer in", "failure=unsent: timed out"];
        warnings.retain(|text| !late.iter().any(|it| text.contains(it)));
    }
    if repeated > 0 {
        warnings.retain(|text| !TRUE_OF_REPEATED.iter().any(|it| text.contains(it)));
    }
    println!(
        "{cases} cases in {:?}, {} failed, {repeated} repeated; the machine was frozen for {stall:?} at most",
        began.elapsed(),
        failures.len(),
    );
    assert!(
        failures.is_empty(),
        "{} of {cases} cases failed:\n{}\n{} warnings:\n{}",
        failures.len(),
        failures.join("\n"),
        warnings.len(),
        warnings.join("\n")
    );
    assert!(
        warnings.is_empty(),
        "false warnings:\n{}",
        warnings.join("\n")
    );
    assert!(cases > 0, "there is no case");
}

/// Work that can be repeated.
enum Work {
    /// Counts the polls of the future until it ends, and leaves it after each poll.
    EachStep(Case),
    Once(Case),
}

/// The results of the cases.
#[derive(Default)]
struct Done {
    cases: usize,
    /// The failures on a busy machine.
    doubts: Vec<(Work, String)>,
    failures: Vec<String>,
    /// The number of these failures in all rounds.
    repeated: usize,
}

impl Done {
    /// `began` is when the work began.
    fn failed(&mut self, work: Work, began: Instant, why: String) {
        let (Work::EachStep(case) | Work::Once(case)) = &work;
        match case.site.stalls.longest(began) >= STALL {
            true => self.doubts.push((work, why)),
            false => self.failures.push(why),
        }
    }

    /// The failures that the next round repeats.
    fn again(&mut self) -> Vec<Work> {
        for (_, why) in &self.doubts {
            println!("on a busy machine: {why}");
        }
        self.repeated += self.doubts.len();
        self.doubts.drain(..).map(|(work, _)| work).collect()
    }

    fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.doubts.extend(other.doubts);
        self.failures.extend(other.failures);
    }
}

async fn run_round(done: &mut Done, work: Vec<Work>, at_once: usize) {
    let room = Arc::new(Semaphore::new(at_once));
    let mut running = JoinSet::new();
    for work in work {
        match work {
            Work::EachStep(case) => running.spawn(run_each_step(case, room.clone())),
            Work::Once(case) => running.spawn(run_case(case, room.clone())),
        };
    }
    while let Some(one) = running.join_next().await {
        done.add(one.expect("a case reports what fails and does not panic"));
    }
}

async fn run_case(case: Case, room: Arc<Semaphore>) -> Done {
    let _room = room.acquire().await;
    let mut done = Done {
        cases: 1,
        ..Done::default()
    };
    let began = Instant::now();
    let running = tokio::spawn({
        let case = case.clone();
        async move { timeout(MOST, case.run()).await }
    });
    let why = match running.await {
        Ok(Ok(Ok(()))) => return done,
        Ok(Ok(Err(why))) => why,
        Ok(Err(_)) => format!("no end within {MOST:?}"),
        Err(panic) => panic.to_string(),
    };
    let Case { mode, polls, .. } = case;
    let why = format!("{case}, {mode:?} after {polls}: {why}");
    done.failed(Work::Once(case), began, why);
    done
}

async fn run_each_step(case: Case, room: Arc<Semaphore>) -> Done {
    let mut done = Done::default();
    let began = Instant::now();
    let counted = {
        let _room = room.acquire().await;
        timeout(MOST, case.polls_to_the_end()).await
    };
    let why = match counted {
        Ok(Ok(polls)) if (polls == 0) == case.public.at_once => {
            run_steps(&mut done, &case, polls, room).await;
            return done;
        }
        Ok(Ok(polls)) => {
            let why = format!("{case}: pending {polls} times");
            match polls {
                // The answer came during the first poll. That happens on an idle machine, too.
                0 => done.doubts.push((Work::EachStep(case), why)),
                _ => done.failures.push(why),
            }
            return done;
        }
        Ok(Err(why)) => format!("{case}, to the end: {why}"),
        Err(_) => format!("{case}, to the end: no end within {MOST:?}"),
    };
    done.failed(Work::EachStep(case), began, why);
    done
}

/// Leaves the future after each poll, in each way.
async fn run_steps(done: &mut Done, case: &Case, polls: usize, room: Arc<Semaphore>) {
    let mut cases = JoinSet::new();
    for mode in [Mode::Left, Mode::Resumed, Mode::Dropped, Mode::Idle] {
        for polls in 1..=polls {
            let case = Case {
                mode,
                polls,
                ..case.clone()
            };
            cases.spawn(run_case(case, room.clone()));
        }
    }
    while let Some(one) = cases.join_next().await {
        done.add(one.expect("a case reports what fails and does not panic"));
    }
}

/// The shapes that any deployment has.
const ONE_KEY: [Shape; 3] = [Shape::Plain, Shape::Fair, Shape::Group];
/// After this many polls a future that waits for other owners repeats the same step.
const MOST_POLLS: usize = 4;
/// How many cases run at the same time. Cases mostly wait. With more than the first number the machine is
/// busy with these cases alone. The other numbers are for the repetitions.
const AT_ONCE: [usize; 5] = [72, 12, 4, 2, 1];
/// Names the futures to which a run is limited.
const ONLY: &str = "LOCKDOG_TEST_ABANDONED";

/// A stall of this length may make calls time out: an instance of a quorum has 200 ms to answer, a
/// twentieth of the lease, and a call passes several threads and two processes, each of which can stall.
const STALL: Duration = Duration::from_millis(50);
const TRUE_IN_TROUBLE: [&str; 3] = [
    "renewal failing",
    "quorum in jeopardy",
    "replicas do not acknowledge",
];
/// Messages that are expected of a repeated case.
const TRUE_OF_REPEATED: [&str; 2] = ["lock lost", "quorum lost"];

const TIMEOUT: Duration = Duration::from_secs(2);
const POLL_CAP: Duration = Duration::from_millis(250);
/// The watchdog's lease.
const LEASE: Duration = Duration::from_secs(4);
/// A future without progress for this time is stuck.
const MOST: Duration = Duration::from_secs(120);
/// A lease that is longer than every case, so that only the client frees the lock.
const LONG: Duration = Duration::from_secs(60);
