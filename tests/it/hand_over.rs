//! A lock that one command hands from owner to owner of one client: its cost, the shares of the owners, and
//! the view of other clients.

mod counts;
mod others;
mod shares;
mod unseen;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockdog::{Client, Lock, Owner};
use tokio::task::JoinSet;

use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Cell, Redis};

/// A lock that crowds of owners acquire in a loop until there were enough pairs. Nothing in it has a fixed
/// duration, so its counts do not depend on the speed of the machine.
struct Race {
    enough: u64,
    done: AtomicU64,
    /// The number of crowds, and the number of pairs of each that is enough, too.
    crowds: Option<(u64, u64)>,
    served: AtomicU64,
    cell: Cell,
}

impl Race {
    fn of(pairs: u64) -> Arc<Self> {
        Self::new(pairs, None)
    }

    /// Ends when each of these crowds has `each` pairs, or when all together have `most`.
    fn until_all_have(each: u64, crowds: u64, most: u64) -> Arc<Self> {
        Self::new(most, Some((crowds, each)))
    }

    fn new(enough: u64, crowds: Option<(u64, u64)>) -> Arc<Self> {
        Arc::new(Self {
            enough,
            done: AtomicU64::new(0),
            crowds,
            served: AtomicU64::new(0),
            cell: Cell::new(),
        })
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        let served = self.served.load(Ordering::SeqCst);
        self.done() >= self.enough || self.crowds.is_some_and(|(crowds, _)| served >= crowds)
    }

    /// This number of owners lock and unlock until the race is over. Returns the number of pairs of each
    /// owner.
    async fn run(self: &Arc<Self>, lock: &Lock, owners: usize) -> Vec<u64> {
        let all = Arc::new(AtomicU64::new(0));
        let mut crowd = JoinSet::new();
        for _ in 0..owners {
            let (race, lock, all) = (self.clone(), lock.clone(), all.clone());
            crowd.spawn(async move {
                let owner = Owner::new();
                let mut pairs = 0;
                while !race.is_over() {
                    let guard = lock.lock().owner(&owner).await.expect("the server answers");
                    if !race.is_over() {
                        race.cell.bump_at_once().await;
                        race.done.fetch_add(1, Ordering::SeqCst);
                        pairs += 1;
                        let all = all.fetch_add(1, Ordering::SeqCst) + 1;
                        if race.crowds.is_some_and(|(_, each)| all == each) {
                            race.served.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    guard.unlock().await.expect("it is held");
                }
                pairs
            });
        }
        crowd.join_all().await
    }

    /// Checks that no two owners held the lock at the same time.
    fn assert_exclusive(&self) {
        self.cell.assert_exclusive(self.done() as i64);
    }
}

/// The number of hand-overs that the server executed: no other script of a plain lock calls ZCARD.
pub(crate) async fn transfers(redis: &Redis) -> u64 {
    let stats = redis.commandstats().await;
    stats.get("zcard").copied().unwrap_or(0)
}

/// Loads every script that a crowd needs, and resets the statistics.
async fn warm_up(client: &Client, redis: &Redis) {
    let race = Race::of(10);
    race.run(&client.lock("warm-up"), 2).await;
    redis.reset_stats().await;
}

const CHANNEL: &str = "redisson_lock__channel:{l}";
