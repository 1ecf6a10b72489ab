//! Every public future, polled some times and then left where it stands, while all others continue
//! (design: invariant 14).
//!
//! `public::PUBLIC` lists the futures, `case` says what has to continue. A future is left after its first
//! poll, after its second, and so on until it ends; it is polled only when it was woken.

mod case;
mod listed;
mod public;
mod site;
mod stalls;
mod stand;
mod steps;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::Logs;
use crate::support::child::is_alone;
use case::{Case, Mode, Network};
use public::{PUBLIC, Public};
use site::Site;
use stand::Shape;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_does_no_harm() {
    if is_alone("left::each_abandoned_future_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Plain], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_does_no_harm_during_reconnects() {
    if is_alone("left::each_abandoned_future_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Plain], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_multi_lock_does_no_harm() {
    if is_alone("left::each_abandoned_future_of_a_multi_lock_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Multi], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_multi_lock_does_no_harm_during_reconnects() {
    if is_alone("left::each_abandoned_future_of_a_multi_lock_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Multi], Network::Cut, |_| true).await;
    }
}

/// As the first in the server's queue, and behind another waiter of its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_fair_lock_does_no_harm() {
    if is_alone("left::each_abandoned_future_of_a_fair_lock_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Fair], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_fair_lock_does_no_harm_during_reconnects() {
    if is_alone("left::each_abandoned_future_of_a_fair_lock_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Fair], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_of_values_does_no_harm() {
    if is_alone("left::each_abandoned_future_of_a_lock_of_values_does_no_harm") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Group], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_of_values_does_no_harm_during_reconnects() {
    if is_alone("left::each_abandoned_future_of_a_lock_of_values_does_no_harm_during_reconnects") {
        let site = Site::servers(1).await;
        run_all(site, &[Shape::Group], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_on_three_servers_does_no_harm() {
    if is_alone("left::each_abandoned_future_of_a_lock_on_three_servers_does_no_harm") {
        let site = Site::servers(3).await;
        run_all(site, &[Shape::Quorum], Network::Well, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_abandoned_future_of_a_lock_on_three_servers_does_no_harm_during_reconnects() {
    let name =
        "left::each_abandoned_future_of_a_lock_on_three_servers_does_no_harm_during_reconnects";
    if is_alone(name) {
        let site = Site::servers(3).await;
        run_all(site, &[Shape::Quorum], Network::Cut, |_| true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_abandoned_at_a_sentinel_master_do_no_harm() {
    if is_alone("left::acquires_abandoned_at_a_sentinel_master_do_no_harm") {
        let site = Site::sentinels().await;
        run_all(site, &[Shape::Plain], Network::Cut, |it| it.everywhere).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_abandoned_at_a_cluster_do_no_harm() {
    if is_alone("left::acquires_abandoned_at_a_cluster_do_no_harm") {
        let site = Site::cluster().await;
        run_all(site, &[Shape::Plain], Network::Cut, |it| it.everywhere).await;
    }
}

/// Runs every case of these futures, and fails with all that went wrong.
async fn run_all(site: Site, shapes: &[Shape], network: Network, which: impl Fn(&Public) -> bool) {
    let began = Instant::now();
    let logs = Logs::warnings_of_this_process();
    let only = std::env::var(ONLY).unwrap_or_default();
    let site = Arc::new(site);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut chains = JoinSet::new();
    let of_shape = |shape: Shape| PUBLIC.iter().map(move |public| (public, shape));
    let all = shapes.iter().copied().flat_map(of_shape);
    let chosen = all.filter(|(public, shape)| public.shapes.contains(shape) && which(public));
    for (public, shape) in chosen.filter(|(public, _)| public.name.contains(&only)) {
        let case = Case {
            site: site.clone(),
            public,
            shape,
            network,
            mode: Mode::Left,
            polls: MOST_POLLS,
        };
        chains.spawn(run_each_step(case, room.clone()));
    }
    let (mut cases, mut failures) = (0, Vec::new());
    while let Some(chain) = chains.join_next().await {
        let done = chain.expect("a case reports what fails and does not panic");
        cases += done.cases;
        failures.extend(done.failures);
    }
    failures.sort();
    let warnings = logs.at_least(tracing::Level::WARN);
    let mut warnings: Vec<String> = warnings.into_iter().map(|line| line.text).collect();
    // Each case shuts its clients down while it holds a lock.
    warnings.retain(|text| !text.contains("reason=\"shut_down\""));
    if network == Network::Cut || site.stalls.longest(began) >= STALL {
        // These are true where connections break, or nothing is answered in time.
        warnings.retain(|text| !TRUE_IN_TROUBLE.iter().any(|it| text.contains(it)));
    }
    println!(
        "{cases} cases in {:?}, {} failed; the machine stood still for {:?} at most",
        began.elapsed(),
        failures.len(),
        site.stalls.longest(began)
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

/// What came of all cases of one future.
#[derive(Default)]
struct Done {
    cases: usize,
    failures: Vec<String>,
}

/// Finds out how often a future is polled until it ends, and then leaves it after each poll.
async fn run_each_step(case: Case, room: Arc<Semaphore>) -> Done {
    let mut done = Done::default();
    let mut polls = Ok(0);
    for _ in 0..ATTEMPTS {
        let _room = room.acquire().await;
        let counted = timeout(MOST, case.polls_to_the_end()).await;
        polls = counted.unwrap_or_else(|_| Err(format!("no end within {MOST:?}")));
        // On a busy machine an answer may come during the first poll.
        if polls != Ok(0) || case.public.at_once {
            break;
        }
    }
    let polls = match polls {
        Ok(polls) if (polls == 0) == case.public.at_once => polls,
        Ok(polls) => {
            done.failures.push(format!("{case}: pending {polls} times"));
            return done;
        }
        Err(why) => {
            done.failures.push(format!("{case}, to the end: {why}"));
            return done;
        }
    };
    let mut cases = JoinSet::new();
    for mode in [Mode::Left, Mode::Resumed, Mode::Dropped, Mode::Idle] {
        for polls in 1..=polls {
            let case = Case {
                mode,
                polls,
                ..case.clone()
            };
            let room = room.clone();
            cases.spawn(async move {
                let _room = room.acquire().await;
                let outcome = timeout(MOST, case.run()).await;
                let outcome = outcome.unwrap_or_else(|_| Err(format!("no end within {MOST:?}")));
                outcome.map_err(|why| format!("{case}, {mode:?} after {polls}: {why}"))
            });
        }
    }
    while let Some(outcome) = cases.join_next().await {
        done.cases += 1;
        match outcome {
            Ok(outcome) => done.failures.extend(outcome.err()),
            Err(panic) => done.failures.push(format!("{case}: {panic}")),
        }
    }
    done
}

/// A future that waits for others continues from poll to poll without a new step.
const MOST_POLLS: usize = 4;
/// On a busy machine some outcomes say nothing.
const ATTEMPTS: usize = 4;
/// Cases wait most of the time. With more of them the machine is busy with these cases alone.
const AT_ONCE: usize = 72;
/// Names the futures that a run is limited to, when a failure is looked into.
const ONLY: &str = "LOCKDOG_TEST_LEFT";

/// A stall of this length may cost calls their time: an instance of a quorum has 200 ms to answer, a
/// twentieth of the lease.
const STALL: Duration = Duration::from_millis(100);
const TRUE_IN_TROUBLE: [&str; 3] = [
    "renewal failing",
    "quorum in jeopardy",
    "replicas do not acknowledge",
];

const TIMEOUT: Duration = Duration::from_secs(2);
const POLL_CAP: Duration = Duration::from_millis(250);
/// The watchdog's.
const LEASE: Duration = Duration::from_secs(4);
/// A future that makes no progress for this time is stuck.
const MOST: Duration = Duration::from_secs(120);
/// A lease that outlasts every case: a lock that is taken for it comes free by the client alone.
const LONG: Duration = Duration::from_secs(60);
