//! Lost, late and repeated commands, cut connections and cancelled campaigns, all at once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

use super::*;
use crate::nemesis::Nemesis;
use crate::support::{Cell, Dice, named};

/// LE1, LE2 and LE3 under faults, and LE4 after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_has_one_leader_and_growing_terms_under_a_nemesis() {
    let test = Fixture::start().await;
    let run = Arc::new(Run::default());
    let mut nemesis = Nemesis::start(&test.server, |it| {
        it.watchdog_lease(LEASE).fair_absence(ms(800))
    })
    .await;
    let mut tasks = JoinSet::new();
    for client in &nemesis.clients {
        for _ in 0..3 {
            let dice = Dice::of(nemesis.dice.roll(u64::MAX) | 1);
            tasks.spawn(contend(client.election(NAME), run.clone(), dice));
        }
    }
    let watching = tokio::spawn(watch(test.another().await, run.clone()));
    nemesis
        .inject_faults(LASTS, named("evalsha"), || run.is_enough())
        .await;
    run.is_over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("none panics");
    }
    watching.await.expect("it saw no term after a later one");
    println!("{}", run.shown());
    run.assert_one_led_at_a_time();
    let lead = test.election.campaign("last").wait(SOON).await.unwrap();
    let lead = lead.expect("it is free soon");
    assert!(lead.term() > run.last.load(Ordering::Relaxed));
    lead.resign().await.unwrap();
    test.eventually_over().await;
}

/// What the candidates share.
#[derive(Default)]
pub(super) struct Run {
    pub(super) is_over: AtomicBool,
    /// The terms of all leaderships.
    terms: Mutex<BTreeSet<u64>>,
    /// How many of these terms an observer saw.
    observed: AtomicUsize,
    written: AtomicU64,
    /// The term of the leader that wrote last.
    last: AtomicU64,
    cell: Cell,
}

impl Run {
    /// How many leaderships there were.
    pub(super) fn leaderships(&self) -> usize {
        self.terms.lock().expect("no thread panicked").len()
    }

    fn is_enough(&self) -> bool {
        self.leaderships() >= 20 && self.observed.load(Ordering::Relaxed) >= 5
    }

    fn shown(&self) -> String {
        let observed = self.observed.load(Ordering::Relaxed);
        format!(
            "{} leaderships, {observed} of them observed",
            self.leaderships()
        )
    }

    /// LE2: two leaders at the same time lose an update.
    pub(super) fn assert_one_led_at_a_time(&self) {
        let written = self.written.load(Ordering::Relaxed);
        assert_eq!(self.cell.value(), written as i64, "two led at a time");
    }
}

/// Campaigns repeatedly, and checks the terms.
pub(super) async fn contend(election: Election, run: Arc<Run>, mut dice: Dice) {
    while !run.is_over.load(Ordering::Relaxed) {
        let campaign = election.campaign(dice.roll(99).to_string());
        let campaign = campaign
            .owner(&Owner::new())
            .wait(ms(100 + dice.roll(2_000)));
        let elected = match dice.roll(4) {
            // The caller drops the campaign at a random time.
            0 => {
                let limit = ms(dice.roll(60));
                tokio::time::timeout(limit, campaign.into_future()).await
            }
            _ => Ok(campaign.await),
        };
        let Ok(Ok(Some(lead))) = elected else {
            tokio::time::sleep(ms(5)).await;
            continue;
        };
        let term = lead.term();
        let is_new = run.terms.lock().expect("no thread panicked").insert(term);
        assert!(is_new, "two leaders have term {term}");
        let before = run.last.load(Ordering::Relaxed);
        let has_written = run.cell.bump_while(ms(dice.roll(30)), || lead.is_valid());
        if has_written.await {
            run.written.fetch_add(1, Ordering::Relaxed);
            assert!(lead.term() > before, "{} after {before}", lead.term());
            run.last.fetch_max(lead.term(), Ordering::Relaxed);
        }
        match dice.roll(4) {
            0 => drop(lead),
            1 => drop(lead.proclaim("again").await),
            // The outcome may be unknown.
            _ => drop(lead.resign().await),
        }
    }
}

/// Observes, and checks that no term comes after a later one.
async fn watch(election: Election, run: Arc<Run>) {
    let mut leaders = election.observe();
    let mut last = 0;
    while !run.is_over.load(Ordering::Relaxed) {
        let next = tokio::time::timeout(ms(500), leaders.next()).await;
        let Ok(Ok(Some(leader))) = next else { continue };
        if let Some(term) = leader.term {
            assert!(term >= last, "{term} was seen after {last}");
            let is_new = usize::from(term > last);
            run.observed.fetch_add(is_new, Ordering::Relaxed);
            last = term;
        }
    }
}

const LASTS: Duration = Duration::from_secs(8);
/// A lost leader is notified.
pub(super) const LEASE: Duration = Duration::from_millis(1_500);
