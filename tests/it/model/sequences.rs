//! Random sequences of calls on a real server, compared with the model after each.

mod hand_over;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog::{Client, Error, Guard, Lock, Owner, Unlocked};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};

use crate::hand_over::transfers;
use crate::model::state::{Acquired, Ended, Model};
use crate::support::prelude::{SOON, poll_once};
use crate::support::{Redis, RedisServer, eventually};

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire {
        owner: usize,
        fixed: bool,
    },
    Unlock(usize),
    Drop(usize),
    Forget(usize),
    UnlockForgotten(usize),
    /// An acquire with a lease that is waited out.
    RunOut(usize),
    /// Another program lets the key expire.
    Expire,
    Delete,
    Force(usize),
    /// Waits until the watchdog has renewed the lease.
    Renew,
    /// Calls that are sent and not waited for.
    CancelAcquire(usize),
    CancelUnlock(usize),
    /// The holder unlocks while this owner waits; either call may be cancelled on its way.
    HandOver {
        to: usize,
        unlock: Fate,
        wait: Fate,
    },
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Ends,
    IsCancelled,
}

fn step() -> impl Strategy<Value = Step> {
    let owner = || 0..3_usize;
    let acquire = (owner(), proptest::bool::ANY);
    let fate = || prop_oneof![3 => Just(Fate::Ends), 1 => Just(Fate::IsCancelled)];
    let hand_over = (owner(), fate(), fate());
    prop_oneof![
        30 => acquire.prop_map(|(owner, fixed)| Step::Acquire { owner, fixed }),
        15 => owner().prop_map(Step::Unlock),
        10 => owner().prop_map(Step::Drop),
        8 => owner().prop_map(Step::Forget),
        8 => owner().prop_map(Step::UnlockForgotten),
        2 => owner().prop_map(Step::RunOut),
        3 => Just(Step::Expire),
        3 => Just(Step::Delete),
        4 => owner().prop_map(Step::Force),
        1 => Just(Step::Renew),
        8 => owner().prop_map(Step::CancelAcquire),
        8 => owner().prop_map(Step::CancelUnlock),
        20 => hand_over.prop_map(|(to, unlock, wait)| Step::HandOver { to, unlock, wait }),
    ]
}

/// Owners 0 and 1 are the first client's, owner 2 is the second's.
struct World {
    clients: [Client; 2],
    redis: Redis,
}

/// One sequence on a lock of its own.
struct Case<'a> {
    world: &'a World,
    name: String,
    owners: [Owner; 3],
    guards: [Vec<Guard>; 3],
    model: Model,
}

impl<'a> Case<'a> {
    fn new(world: &'a World) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            world,
            name: format!("sequence:{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            owners: [(); 3].map(|()| Owner::new()),
            guards: [(); 3].map(|()| Vec::new()),
            model: Model::default(),
        }
    }

    fn client(&self, owner: usize) -> &'a Client {
        &self.world.clients[owner / 2]
    }

    fn lock(&self, owner: usize) -> Lock {
        self.client(owner).lock(&self.name)
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire { owner, fixed } => self.acquire(owner, fixed).await,
            Step::Unlock(owner) => {
                if let Some(guard) = self.guards[owner].pop() {
                    let expected = self.model.unlock(owner);
                    check_ended(guard.unlock().await, expected);
                }
            }
            Step::Drop(owner) => {
                if self.guards[owner].pop().is_some() {
                    self.model.unlock(owner);
                }
            }
            Step::Forget(owner) => {
                if let Some(guard) = self.guards[owner].pop() {
                    guard.forget();
                    self.model.forget(owner);
                }
            }
            Step::UnlockForgotten(owner) => {
                let expected = self.model.unlock_forgotten(owner);
                let ended = self.lock(owner).unlock().owner(&self.owners[owner]).await;
                check_ended(ended, expected);
            }
            Step::RunOut(owner) => self.run_out(owner).await,
            Step::Expire => self.vanish(&["PEXPIRE", &self.name.clone(), "1"]).await,
            Step::Delete => self.vanish(&["DEL", &self.name.clone()]).await,
            Step::Force(owner) => self.force(owner).await,
            Step::Renew => self.renew().await,
            Step::CancelAcquire(owner) => {
                let request = self.lock(owner).try_lock().owner(&self.owners[owner]);
                poll_once(request.into_future()).await;
            }
            Step::CancelUnlock(owner) => {
                if let Some(guard) = self.guards[owner].pop() {
                    self.model.unlock(owner);
                    poll_once(guard.unlock()).await;
                }
            }
            Step::HandOver { to, unlock, wait } => self.hand_over(to, unlock, wait).await,
        }
    }

    async fn acquire(&mut self, owner: usize, fixed: bool) {
        let mut request = self.lock(owner).try_lock().owner(&self.owners[owner]);
        if fixed {
            request = request.lease(Duration::from_secs(60));
        }
        let acquired = request.await;
        match (self.model.acquire(owner), acquired) {
            (Acquired::Guard, Ok(Some(guard))) => self.guards[owner].push(guard),
            (Acquired::Busy, Ok(None)) | (Acquired::Lost, Err(Error::Lost(_))) => {}
            (expected, acquired) => panic!("owner {owner}: {acquired:?} instead of {expected:?}"),
        }
    }

    async fn run_out(&mut self, owner: usize) {
        let idle = self.model.owners[owner].count() == 0;
        if !idle || self.model.holder().is_some() {
            return;
        }
        let request = self.lock(owner).try_lock().owner(&self.owners[owner]);
        // A machine that stalls for longer than the lease gets no grant.
        let Ok(Some(guard)) = request.lease(Duration::from_millis(200)).await else {
            return;
        };
        guard.lost().await;
        self.model.acquire(owner);
        self.guards[owner].push(guard);
        eventually(SOON, "the key expires", async || {
            !self.world.redis.exists(&self.name).await
        })
        .await;
        self.model.vanish();
    }

    async fn vanish(&mut self, command: &[&str]) {
        eventually(SOON, "the key is gone", async || {
            self.world.redis.cmd(command).await;
            !self.world.redis.exists(&self.name).await
        })
        .await;
        self.model.vanish();
    }

    async fn force(&mut self, by: usize) {
        let holder = self.model.holder();
        let freed = self
            .lock(by)
            .force_unlock()
            .await
            .expect("the server is up");
        assert_eq!(freed, holder.is_some());
        self.model.vanish();
        if let Some((holder, _)) = holder
            && holder / 2 == by / 2
        {
            let valid = self.guards[holder].iter().any(Guard::is_valid);
            assert!(!valid, "a holder of the same client is notified at once");
        }
    }

    async fn renew(&self) {
        let before = self.world.redis.pttl(&self.name).await;
        // A longer lease of an inner acquire needs no renewal for a long time.
        let Some((holder, _)) = self.model.holder() else {
            return;
        };
        let holds = self.client(holder).holds();
        let watched = holds
            .iter()
            .any(|hold| hold.lock == self.name && hold.watched);
        if !watched || before > WATCHDOG_LEASE.as_millis() as i64 {
            return;
        }
        eventually(SOON, "the lease is renewed", async || {
            let now = self.world.redis.pttl(&self.name).await;
            // A TTL falls between two queries. Only a renewal raises it.
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.world.redis.pttl(&self.name).await > now
        })
        .await;
    }

    /// Waits until Redis shows what the model says, and asks the public API about it.
    async fn compare(&self) {
        let expected = self.model.holder().map(|(owner, count)| {
            let client = self.client(owner).id();
            (format!("{client}:o{}.", self.owners[owner].id()), count)
        });
        let what = format!("Redis has {expected:?} under {}", self.name);
        eventually(SOON, &what, async || {
            let hash = self.world.redis.hash(&self.name).await;
            match &expected {
                None => hash.is_empty(),
                Some((prefix, count)) => {
                    let fits = |(field, found): (&String, &String)| {
                        field.starts_with(prefix) && *found == count.to_string()
                    };
                    hash.len() == 1 && hash.iter().all(fits)
                }
            }
        })
        .await;
        for (i, own) in self.model.owners.iter().enumerate() {
            let lock = self.lock(i);
            let is_held = lock.is_held_by(&self.owners[i]).await;
            let holds = expected.is_some() && self.model.holder().is_some_and(|(o, _)| o == i);
            assert_eq!(is_held.expect("the server is up"), holds, "owner {i}");
            if holds {
                for guard in &self.guards[i] {
                    assert!(guard.is_valid(), "owner {i}");
                    assert_eq!(guard.hold_count(), own.count(), "owner {i}");
                }
            }
        }
        let is_locked = self.lock(0).is_locked().await;
        assert_eq!(is_locked.expect("the server is up"), expected.is_some());
    }
}

fn check_ended(ended: Result<Unlocked, Error>, expected: Ended) {
    let fits = match (&ended, expected) {
        (Ok(Unlocked::Released), Ended::Released) => true,
        (Ok(Unlocked::StillHeld { count }), Ended::StillHeld(left)) => *count == left,
        (Err(Error::Lost(_)), Ended::Lost | Ended::Nothing) => true,
        (Err(Error::NotHeld(_)), Ended::NotHeld | Ended::Nothing) => true,
        _ => false,
    };
    assert!(fits, "{ended:?} instead of {expected:?}");
}

/// Sends what a call sends at its first poll, and cancels it.

#[test]
fn any_sequence_of_calls_matches_the_model() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads can be started");
    let (server, world) = runtime.block_on(async {
        let server = RedisServer::start().await;
        let client = || {
            let client = Client::builder().url(server.url());
            client.watchdog_lease(WATCHDOG_LEASE).build()
        };
        let clients = [client().await.unwrap(), client().await.unwrap()];
        let redis = server.redis().await;
        (server, Arc::new(World { clients, redis }))
    });
    let handle = runtime.handle().clone();
    // Most of a case is waiting, so several run side by side.
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            let (handle, world) = (handle.clone(), world.clone());
            scope.spawn(move || {
                let config = Config {
                    cases: CASES / SIDE_BY_SIDE,
                    failure_persistence: None,
                    max_shrink_iters: 200,
                    ..Config::default()
                };
                let outcome = TestRunner::new(config).run(&vec(step(), 20..30), |steps| {
                    handle.block_on(async {
                        let mut case = Case::new(&world);
                        for step in steps {
                            case.take(step).await;
                            case.compare().await;
                        }
                    });
                    Ok(())
                });
                if let Err(failure) = outcome {
                    panic!("{failure}");
                }
            });
        }
    });
    runtime.block_on(async {
        for client in &world.clients {
            client.shutdown().await;
        }
        let handed = transfers(&world.redis).await;
        println!("{handed} hand-overs");
        assert!(handed >= u64::from(CASES / 2), "only {handed} hand-overs");
        world.redis.assert_clean().await;
    });
    drop(server);
}

const CASES: u32 = 100;
const SIDE_BY_SIDE: u32 = 4;
/// Long enough that a busy machine loses no lock, short enough to see a renewal.
const WATCHDOG_LEASE: Duration = Duration::from_secs(6);
