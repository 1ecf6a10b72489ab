//! Every public future of the crate, in every situation in which it waits for another party.

use std::sync::Arc;

use lockdog::config::Reentry;
use lockdog::report::ShutdownReport;
use lockdog::request::{LockRequest, TryLockRequest};
use lockdog::{
    Client, Error, Guard, LeasedPermit, Lock, Owner, Permit, PermitId, PermitSemaphore, Result,
    Uuid,
};
use tokio::task::JoinHandle;

use super::LONG;
use super::fixture::{AnyLock, Boxed, Checked, Fixture, Shape};

/// A future, and the situation in which it is polled.
pub(super) struct Public {
    pub(super) name: &'static str,
    /// The name of the function or type, as `listed` finds it in the source.
    pub(super) is: &'static [&'static str],
    pub(super) shapes: &'static [Shape],
    /// It also runs with sentinels and clusters.
    pub(super) everywhere: bool,
    /// It ends at its first poll.
    pub(super) at_once: bool,
    pub(super) make: fn(Arc<Fixture>) -> Boxed<Made>,
}

/// A future before its first poll.
pub(super) struct Made {
    pub(super) future: Boxed<End>,
    /// Guards of the lock that exist beside it, the outermost first.
    pub(super) guards: Vec<Guard>,
    /// Other waiters for the lock.
    pub(super) waiters: Vec<JoinHandle<Checked<()>>>,
    pub(super) situation: Situation,
}

/// What the future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Situation {
    Nothing,
    /// Another process has the lock.
    Busy,
    /// Another process may hold the lock. The future frees it.
    Freeing,
    /// Another owner of the client holds the lock, by the guards.
    BusyByGuards,
    /// It ends when its client does.
    UntilClosed,
    /// It closes its client.
    Closing,
}

/// The result of a future.
pub(super) enum End {
    Acquired(Guard),
    Client(Client),
    Report(ShutdownReport),
    Done,
    Failed(Error),
}

impl Public {
    const fn new(
        name: &'static str,
        is: &'static [&'static str],
        shapes: &'static [Shape],
        make: fn(Arc<Fixture>) -> Boxed<Made>,
    ) -> Self {
        Self {
            name,
            is,
            shapes,
            everywhere: false,
            at_once: false,
            make,
        }
    }

    const fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    const fn at_once(mut self) -> Self {
        self.at_once = true;
        self
    }
}

impl Made {
    fn new(future: Boxed<End>) -> Self {
        Self {
            future,
            guards: Vec::new(),
            waiters: Vec::new(),
            situation: Situation::Nothing,
        }
    }

    /// A call that returns no guard.
    fn call<T>(call: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self::new(Box::pin(async move {
            match call.await {
                Ok(_) => End::Done,
                Err(error) => End::Failed(error),
            }
        }))
    }

    fn lock(request: LockRequest) -> Self {
        Self::new(Box::pin(async move {
            match request.await {
                Ok(guard) => End::Acquired(guard),
                Err(error) => End::Failed(error),
            }
        }))
    }

    fn try_lock(request: TryLockRequest) -> Self {
        Self::new(Box::pin(async move {
            match request.await {
                Ok(Some(guard)) => End::Acquired(guard),
                Ok(None) => End::Done,
                Err(error) => End::Failed(error),
            }
        }))
    }

    fn client(building: impl Future<Output = Result<Client>> + Send + 'static) -> Self {
        Self::new(Box::pin(async move {
            match building.await {
                Ok(client) => End::Client(client),
                Err(error) => End::Failed(error),
            }
        }))
    }

    fn beside(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    fn in_situation(mut self, situation: Situation) -> Self {
        self.situation = situation;
        self
    }
}

async fn held(test: &Fixture, owner: &Owner) -> Guard {
    let guard = test.lock().lock().owner(owner).await;
    guard.expect("the lock is free and the server well")
}

/// A wait for a lock while another owner holds it, or its other mode. It ends without the lock.
async fn waits_for(lock: Lock, held: Lock) -> Made {
    let held = held.lock().owner(&Owner::new()).await;
    let held = held.expect("no owner has it and the server is well");
    let waiting = lock.try_lock().owner(&Owner::new());
    let waiting = waiting.wait(super::POLL_CAP / 5).into_future();
    Made::call(async move {
        let none = waiting.await;
        drop(held);
        none
    })
}

async fn forgotten(test: &Fixture, owner: &Owner) {
    held(test, owner).await.forget();
}

async fn two_permits(test: &Fixture) -> LeasedPermit {
    let seats = test.seats(2).await;
    let permits = seats.acquire_many(2).await;
    permits.expect("they are free and the server well")
}

async fn counted_permits(test: &Fixture) -> Permit {
    let permits = test.counted(2).await.acquire_many(2).await;
    permits.expect("they are free and the server well")
}

/// A free permit.
async fn left_permit(test: &Fixture) -> (PermitSemaphore, PermitId) {
    let seats = test.left_seats(1).await;
    let permit = seats.acquire().lease(LONG).await;
    let ids = permit.expect("it is free and the server well").into_ids();
    (seats, ids[0])
}

/// A call about a lock that the current owner holds.
fn asked<T: 'static>(
    test: Arc<Fixture>,
    ask: impl Fn(AnyLock, Owner) -> Boxed<Result<T>> + Send + 'static,
) -> Boxed<Made> {
    Box::pin(async move {
        let owner = Owner::new();
        let guard = held(&test, &owner).await;
        let call = owner.scope(ask(test.lock(), owner));
        Made::call(call).beside(guard)
    })
}

macro_rules! made {
    (|$test:ident| $made:expr) => {
        |$test| Box::pin(async move { $made })
    };
}

macro_rules! question {
    (|$lock:ident, $owner:ident| $call:expr) => {
        |test| {
            asked(test, |lock, owner| {
                Box::pin(async move {
                    let $owner = owner;
                    let _ = &$owner;
                    match lock {
                        AnyLock::Plain($lock) => $call.await,
                        AnyLock::Multi($lock) => $call.await,
                        AnyLock::Quorum(_) => unreachable!("it has no such question"),
                    }
                })
            })
        }
    };
}

macro_rules! plain_question {
    (|$lock:ident| $call:expr) => {
        |test| {
            let $lock = test.plain();
            asked(test, move |_, _| {
                let $lock = $lock.clone();
                Box::pin(async move { $call.await })
            })
        }
    };
}

const ALL: &[Shape] = &[
    Shape::Plain,
    Shape::Fair,
    Shape::Group,
    Shape::Multi,
    Shape::Quorum,
];
const PLAIN: &[Shape] = &[Shape::Plain];
const PLAIN_AND_MULTI: &[Shape] = &[Shape::Plain, Shape::Multi];
const QUORUM: &[Shape] = &[Shape::Quorum];

const LOCK: &[&str] = &["LockRequest"];
const TRY_LOCK: &[&str] = &["TryLockRequest"];
const WITH: &[&str] = &[
    "Lock::with",
    "MultiLock::with",
    "RedLock::with",
    "LockRequest::with",
];

pub(super) const PUBLIC: &[Public] = &[
    Public::new(
        "lock",
        LOCK,
        ALL,
        made!(|test| Made::lock(test.lock().lock().owner(&Owner::new()).lease(LONG))),
    )
    .everywhere(),
    Public::new(
        "lock that is watched",
        LOCK,
        ALL,
        made!(|test| Made::lock(test.lock().lock().owner(&Owner::new()))),
    ),
    Public::new(
        "lock that another process has",
        LOCK,
        ALL,
        made!(|test| {
            test.take_by_another().await;
            let request = test.lock().lock().owner(&Owner::new()).lease(LONG);
            Made::lock(request).in_situation(Situation::Busy)
        }),
    )
    .everywhere(),
    Public::new(
        "lock that another owner has",
        LOCK,
        ALL,
        made!(|test| {
            let guard = held(&test, &Owner::new()).await;
            let request = test.lock().lock().owner(&Owner::new()).lease(LONG);
            Made::lock(request)
                .beside(guard)
                .in_situation(Situation::BusyByGuards)
        }),
    ),
    Public::new(
        "lock with fencing",
        LOCK,
        QUORUM,
        made!(|test| {
            let AnyLock::Quorum(lock) = test.lock() else {
                unreachable!("its shape is that of a quorum")
            };
            Made::lock(lock.fenced().lock().owner(&Owner::new()).lease(LONG))
        }),
    ),
    Public::new(
        "try_lock",
        TRY_LOCK,
        ALL,
        made!(|test| Made::try_lock(test.lock().try_lock().owner(&Owner::new()))),
    ),
    Public::new(
        "try_lock that another process has",
        TRY_LOCK,
        ALL,
        made!(|test| {
            test.take_by_another().await;
            let request = test.lock().try_lock().owner(&Owner::new());
            Made::try_lock(request).in_situation(Situation::Busy)
        }),
    ),
    Public::new(
        "try_lock with a wait",
        TRY_LOCK,
        ALL,
        made!(|test| {
            let request = test.lock().try_lock().owner(&Owner::new());
            Made::try_lock(request.wait(LONG).lease(LONG))
        }),
    )
    .everywhere(),
    Public::new(
        "try_lock with a wait that another process has",
        TRY_LOCK,
        ALL,
        made!(|test| {
            test.take_by_another().await;
            let request = test.lock().try_lock().owner(&Owner::new());
            Made::try_lock(request.wait(LONG).lease(LONG)).in_situation(Situation::Busy)
        }),
    ),
    Public::new(
        "try_lock with a wait for a spin lock",
        TRY_LOCK,
        PLAIN,
        made!(|test| waits_for(test.spin(), test.spin()).await),
    ),
    Public::new(
        "try_lock with a wait for a non-reentrant lock",
        TRY_LOCK,
        PLAIN,
        made!(|test| waits_for(test.non_reentrant(), test.non_reentrant()).await),
    ),
    Public::new(
        "try_lock with a wait for a fenced lock",
        TRY_LOCK,
        PLAIN,
        made!(|test| waits_for(test.fenced(), test.fenced()).await),
    ),
    Public::new(
        "try_lock with a wait for reading",
        TRY_LOCK,
        PLAIN,
        made!(|test| {
            let rw = test.read_write();
            waits_for(rw.read().into(), rw.write().into()).await
        }),
    ),
    Public::new(
        "try_lock with a wait for writing",
        TRY_LOCK,
        PLAIN,
        made!(|test| {
            let rw = test.read_write();
            waits_for(rw.write().into(), rw.read().into()).await
        }),
    ),
    Public::new(
        "upgrade while another owner reads",
        &["UpgradeRequest"],
        PLAIN,
        made!(|test| {
            let rw = test.read_write();
            let reads = rw.read().lock().owner(&Owner::new()).await;
            let reads = reads.expect("no owner writes");
            let other = rw.read().lock().owner(&Owner::new()).await;
            let other = other.expect("no owner writes");
            let upgrade = reads.upgrade().wait(super::POLL_CAP / 5);
            Made::call(async move {
                let upgraded = upgrade.await;
                drop(other);
                match upgraded {
                    Ok(guard) => guard.unlock().await.map(|_| ()),
                    Err(error) => error.error().cloned().map_or(Ok(()), Err),
                }
            })
        }),
    ),
    Public::new(
        "try_lock with a short wait",
        TRY_LOCK,
        ALL,
        made!(|test| {
            let request = test.lock().try_lock().owner(&Owner::new());
            Made::try_lock(request.wait(super::POLL_CAP / 5).lease(LONG))
        }),
    ),
    Public::new(
        "nested lock",
        LOCK,
        ALL,
        made!(|test| {
            let owner = Owner::new();
            let guard = held(&test, &owner).await;
            Made::lock(test.lock().lock().owner(&owner).lease(LONG)).beside(guard)
        }),
    ),
    Public::new(
        "nested try_lock",
        TRY_LOCK,
        PLAIN_AND_MULTI,
        made!(|test| {
            let owner = Owner::new();
            let guard = held(&test, &owner).await;
            Made::try_lock(test.lock().try_lock().owner(&owner)).beside(guard)
        }),
    ),
    Public::new(
        "nested lock that is counted locally",
        LOCK,
        PLAIN_AND_MULTI,
        made!(|test| {
            let owner = Owner::new();
            let guard = held(&test, &owner).await;
            let request = test.lock().lock().owner(&owner);
            Made::lock(request.reentry(Reentry::Local)).beside(guard)
        }),
    )
    .at_once(),
    Public::new(
        "lock in a scope",
        &["Owner::scope"],
        PLAIN,
        made!(|test| {
            let locking = Owner::new().scope(test.lock().lock().lease(LONG));
            Made::new(Box::pin(async move {
                match locking.await {
                    Ok(guard) => End::Acquired(guard),
                    Err(error) => End::Failed(error),
                }
            }))
        }),
    ),
    Public::new(
        "with",
        WITH,
        ALL,
        made!(|test| Made::call(Owner::new().scope(test.lock().with(test)))),
    ),
    Public::new(
        "with of a request",
        &["TryLockRequest::with"],
        ALL,
        made!(|test| {
            let request = test.lock().try_lock().owner(&Owner::new());
            Made::call(request.with(|_| async move { test.write().await }))
        }),
    ),
    Public::new(
        "unlock of a guard",
        &["Guard::unlock"],
        ALL,
        made!(|test| {
            let guard = test.lock().lock().owner(&Owner::new()).lease(LONG).await;
            Made::call(guard.expect("the lock is free").unlock())
        }),
    ),
    Public::new(
        "extend of a guard",
        &["Guard::extend"],
        ALL,
        made!(|test| {
            let request = test.lock().lock().owner(&Owner::new());
            let guard = request.lease(LONG / 2).await.expect("the lock is free");
            Made::call(guard.extend(LONG)).beside(guard)
        }),
    ),
    Public::new(
        "unlock of an inner guard",
        &["Guard::unlock"],
        PLAIN_AND_MULTI,
        made!(|test| {
            let owner = Owner::new();
            let outer = held(&test, &owner).await;
            let inner = held(&test, &owner).await;
            Made::call(inner.unlock()).beside(outer)
        }),
    ),
    Public::new(
        "unlock with a waiter in the queue",
        &["Guard::unlock"],
        ALL,
        made!(|test| {
            let guard = held(&test, &Owner::new()).await;
            let waiter = test.site.other.spawn(test.clone().take());
            // It may not have started. Then it finds the lock free.
            tokio::time::sleep(super::POLL_CAP / 5).await;
            let mut made = Made::call(guard.unlock());
            made.waiters.push(waiter);
            made
        }),
    ),
    Public::new(
        "unlock of a forgotten hold",
        &["UnlockRequest"],
        ALL,
        made!(|test| {
            let owner = Owner::new();
            forgotten(&test, &owner).await;
            let request = test.lock().unlock().owner(&owner);
            Made::call(request.into_future())
        }),
    ),
    Public::new(
        "force_unlock",
        &["ForceUnlockRequest"],
        PLAIN,
        made!(|test| {
            test.take_by_another().await;
            let request = test.plain().force_unlock();
            Made::call(request.into_future()).in_situation(Situation::Freeing)
        }),
    ),
    Public::new(
        "is_locked",
        &["Lock::is_locked"],
        PLAIN,
        plain_question!(|lock| lock.is_locked()),
    ),
    Public::new(
        "is_held",
        &["Lock::is_held", "MultiLock::is_held"],
        PLAIN_AND_MULTI,
        question!(|lock, owner| lock.is_held()),
    ),
    Public::new(
        "is_held_by",
        &["Lock::is_held_by", "MultiLock::is_held_by"],
        PLAIN_AND_MULTI,
        question!(|lock, owner| lock.is_held_by(&owner)),
    ),
    Public::new(
        "hold_count",
        &["Lock::hold_count", "MultiLock::hold_count"],
        PLAIN_AND_MULTI,
        question!(|lock, owner| lock.hold_count()),
    ),
    Public::new(
        "last_token",
        &["Lock::last_token"],
        PLAIN,
        made!(|test| {
            let lock = test.fenced();
            Made::call(async move { lock.last_token().await })
        }),
    ),
    Public::new(
        "waiters of a fair lock",
        &["Lock::waiters"],
        PLAIN,
        made!(|test| {
            let lock = test.clients[0].fair_lock("waiters");
            Made::call(async move { lock.waiters().await })
        }),
    ),
    Public::new(
        "lock for reading and upgrade",
        &["UpgradeRequest"],
        PLAIN,
        made!(|test| {
            let reads = test.read_write().read().lock().owner(&Owner::new()).await;
            let upgrade = reads.expect("no owner has it").upgrade().wait(LONG);
            Made::call(async move {
                match upgrade.await {
                    Ok(guard) => guard.unlock().await.map(|_| ()),
                    Err(error) => error.error().cloned().map_or(Ok(()), Err),
                }
            })
        }),
    ),
    Public::new(
        "downgrade",
        &["WriteGuard::downgrade"],
        PLAIN,
        made!(|test| {
            let writes = test.read_write().write().lock().owner(&Owner::new()).await;
            let writes = writes.expect("no owner has it");
            Made::call(async move { writes.downgrade().await?.unlock().await })
        }),
    ),
    Public::new(
        "unlock of a read guard",
        &["ReadGuard::unlock"],
        PLAIN,
        made!(|test| {
            let reads = test.read_write().read().lock().owner(&Owner::new()).await;
            Made::call(reads.expect("no owner writes").unlock())
        }),
    ),
    Public::new(
        "unlock of an upgraded guard",
        &["WriteGuard::unlock"],
        PLAIN,
        made!(|test| {
            let reads = test.read_write().read().lock().owner(&Owner::new()).await;
            let writes = reads.expect("no owner has it").upgrade().await;
            Made::call(writes.expect("no other owner reads").unlock())
        }),
    ),
    Public::new(
        "holders of a read/write lock",
        &["ReadWriteLock::holders"],
        PLAIN,
        made!(|test| {
            let rw = test.read_write();
            Made::call(async move { rw.holders().await })
        }),
    ),
    Public::new(
        "acquire of a permit",
        &["PermitRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.seats(2).await;
            Made::call(seats.acquire().lease(LONG).into_future())
        }),
    ),
    Public::new(
        "acquire of endless permits",
        &["PermitRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.seats(2).await;
            Made::call(seats.acquire_many(2).forever().into_future())
        }),
    ),
    Public::new(
        "try_acquire of permits",
        &["TryPermitRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.seats(2).await;
            Made::call(seats.try_acquire_many(2).into_future())
        }),
    ),
    Public::new(
        "try_acquire of permits with a wait",
        &["TryPermitRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.seats(1).await;
            let request = seats.try_acquire_many(2).wait(super::POLL_CAP / 5);
            Made::call(request.into_future())
        }),
    ),
    Public::new(
        "release of permits",
        &["LeasedPermit::release"],
        PLAIN,
        made!(|test| {
            let permits = two_permits(&test).await;
            Made::call(permits.release())
        }),
    ),
    Public::new(
        "extend of permits",
        &["LeasedPermit::extend"],
        PLAIN,
        made!(|test| {
            let permits = two_permits(&test).await;
            Made::call(async move { permits.extend(LONG).await })
        }),
    ),
    Public::new(
        "lost of permits",
        &["LeasedPermit::lost"],
        PLAIN,
        made!(|test| {
            let permits = two_permits(&test).await;
            let lost = async move {
                let _lost = permits.lost().await;
                End::Done
            };
            Made::new(Box::pin(lost)).in_situation(Situation::UntilClosed)
        }),
    ),
    Public::new(
        "release of permits by ids",
        &["PermitSemaphore::release", "PermitSemaphore::try_release"],
        PLAIN,
        made!(|test| {
            let (seats, id) = left_permit(&test).await;
            Made::call(async move { seats.try_release(&[id]).await })
        }),
    ),
    Public::new(
        "update_lease of a permit",
        &[
            "PermitSemaphore::remove_lease",
            "PermitSemaphore::update_lease",
        ],
        PLAIN,
        made!(|test| {
            let (seats, id) = left_permit(&test).await;
            Made::call(async move { seats.update_lease(&id, LONG).await })
        }),
    ),
    Public::new(
        "lease_of a permit",
        &["PermitSemaphore::lease_of"],
        PLAIN,
        made!(|test| {
            let (seats, id) = left_permit(&test).await;
            Made::call(async move { seats.lease_of(&id).await })
        }),
    ),
    Public::new(
        "counts of permits",
        &[
            "PermitSemaphore::acquired",
            "PermitSemaphore::available",
            "PermitSemaphore::permits",
        ],
        PLAIN,
        made!(|test| {
            let seats = test.seats(2).await;
            Made::call(async move { seats.permits().await })
        }),
    ),
    Public::new(
        "set_permits",
        &[
            "PermitSemaphore::set_permits",
            "PermitSemaphore::try_set_permits",
        ],
        PLAIN,
        made!(|test| {
            let seats = test.seats(2).await;
            Made::call(async move { seats.set_permits(2).await })
        }),
    ),
    Public::new(
        "add_permits",
        &["PermitSemaphore::add_permits"],
        PLAIN,
        made!(|test| {
            let seats = test.seats(2).await;
            Made::call(async move { seats.add_permits(1).await })
        }),
    ),
    Public::new(
        "count_down",
        &["CountDownLatch::count_down"],
        PLAIN,
        made!(|test| {
            let latch = test.latch();
            Made::call(async move { latch.count_down().await })
        }),
    ),
    Public::new(
        "numbers of a latch",
        &[
            "CountDownLatch::count",
            "CountDownLatch::delete",
            "CountDownLatch::try_set_count",
        ],
        PLAIN,
        made!(|test| {
            let latch = test.latch();
            Made::call(async move {
                latch.try_set_count(1).await?;
                latch.count().await?;
                latch.delete().await
            })
        }),
    ),
    Public::new(
        "wait for a latch without a count",
        &["CountDownLatch::wait_zero"],
        PLAIN,
        made!(|test| {
            let latch = test.latch();
            Made::call(async move { latch.wait_zero().await })
        }),
    ),
    Public::new(
        "wait for a latch for some time",
        &["CountDownLatch::wait_zero_within"],
        PLAIN,
        made!(|test| {
            let latch = test.latch();
            latch.try_set_count(1).await.expect("the server is well");
            let waiting = async move {
                let opened = latch.wait_zero_within(super::POLL_CAP / 5).await;
                latch.delete().await.and(opened)
            };
            Made::call(waiting)
        }),
    ),
    Public::new(
        "campaign and what a leader does",
        &[
            "CampaignRequest",
            "Election::leader",
            "Leadership::resign",
            "Leading::proclaim",
        ],
        PLAIN,
        made!(|test| {
            let election = test.election();
            Made::call(async move {
                let lead = election.campaign("a").owner(&Owner::new()).await?;
                lead.proclaim("b").await?;
                election.leader().await?;
                lead.resign().await
            })
        }),
    ),
    Public::new(
        "campaign for some time",
        &["TimedCampaignRequest"],
        PLAIN,
        made!(|test| {
            let election = test.election();
            let lead = election.campaign("a").owner(&Owner::new()).await;
            let lead = lead.expect("the server is well");
            let waiting = election.campaign("b").owner(&Owner::new());
            let waiting = waiting.wait(super::POLL_CAP / 5).into_future();
            Made::call(async move {
                let none = waiting.await;
                drop(lead);
                none
            })
        }),
    ),
    Public::new(
        "work while leading",
        &["Election::run"],
        PLAIN,
        made!(|test| {
            let election = test.election();
            let running = async move { election.run("a", async |lead| lead.term()).await };
            Made::call(Owner::new().scope(running))
        }),
    ),
    Public::new(
        "observation of an election",
        &["Leaders::next"],
        PLAIN,
        made!(|test| {
            let mut leaders = test.election().observe();
            leaders.next().await.expect("the server is well");
            let closed = Box::pin(async move {
                match leaders.next().await {
                    Ok(_) => End::Done,
                    Err(error) => End::Failed(error),
                }
            });
            Made::new(closed).in_situation(Situation::UntilClosed)
        }),
    ),
    Public::new(
        "lost of a leadership",
        &["Leading::lost"],
        PLAIN,
        made!(|test| {
            let lead = test.election().campaign("a").owner(&Owner::new()).await;
            let lead = lead.expect("the server is well");
            let lost = Box::pin(async move {
                let _lost = lead.lost().await;
                End::Done
            });
            Made::new(lost).in_situation(Situation::UntilClosed)
        }),
    ),
    Public::new(
        "acquire of counted permits",
        &["SemaphoreRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(seats.acquire_many(2).into_future())
        }),
    ),
    Public::new(
        "try_acquire of counted permits",
        &["TrySemaphoreRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(seats.try_acquire_many(2).into_future())
        }),
    ),
    Public::new(
        "try_acquire of counted permits with a wait",
        &["TrySemaphoreRequest"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(1).await;
            let request = seats.try_acquire_many(2).wait(super::POLL_CAP / 5);
            Made::call(request.into_future())
        }),
    ),
    Public::new(
        "drain of counted permits",
        &["Semaphore::drain"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(async move { seats.drain().await })
        }),
    ),
    Public::new(
        "release of counted permits",
        &["Permit::release"],
        PLAIN,
        made!(|test| {
            let permits = counted_permits(&test).await;
            Made::call(permits.release())
        }),
    ),
    Public::new(
        "release of a part of counted permits",
        &["Permit::release"],
        PLAIN,
        made!(|test| {
            let mut permits = counted_permits(&test).await;
            let part = permits.split(1).expect("it has two");
            drop(permits);
            Made::call(part.release())
        }),
    ),
    Public::new(
        "release of forgotten permits",
        &["Semaphore::release"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            let permits = seats.acquire_many(2).await;
            permits.expect("they are free and the server well").forget();
            Made::call(async move { seats.release(3).await })
        }),
    ),
    Public::new(
        "release of permits that nobody has",
        &["Semaphore::release_if_exists"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(async move { seats.release_if_exists(1).await })
        }),
    ),
    Public::new(
        "counts of counted permits",
        &["Semaphore::available", "Semaphore::holders"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(async move { seats.holders().await })
        }),
    ),
    Public::new(
        "reclaim",
        &["Semaphore::reclaim"],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(async move { seats.reclaim(Uuid::nil()).await })
        }),
    ),
    Public::new(
        "numbers of counted permits",
        &[
            "Semaphore::add_permits",
            "Semaphore::try_set_permits",
            "Semaphore::try_set_permits_for",
        ],
        PLAIN,
        made!(|test| {
            let seats = test.counted(2).await;
            Made::call(async move {
                seats.try_set_permits(2).await?;
                seats.add_permits(1).await
            })
        }),
    ),
    Public::new(
        "remaining_ttl",
        &["Lock::remaining_ttl"],
        PLAIN,
        plain_question!(|lock| lock.remaining_ttl()),
    ),
    Public::new(
        "holder",
        &["Lock::holder"],
        PLAIN,
        plain_question!(|lock| lock.holder()),
    ),
    Public::new(
        "lost of a guard",
        &["Guard::lost"],
        ALL,
        made!(|test| {
            let guard = held(&test, &Owner::new()).await;
            let inside = test.enter();
            let lost = Box::pin(async move {
                let _lost = guard.lost().await;
                drop(inside);
                End::Done
            });
            Made::new(lost).in_situation(Situation::UntilClosed)
        }),
    ),
    Public::new(
        "lost of a view",
        &["Held::lost"],
        PLAIN,
        made!(|test| {
            let request = test.lock().lock().owner(&Owner::new());
            let working = request.with(|held| async move {
                let _inside = test.enter();
                held.lost().await
            });
            Made::call(working).in_situation(Situation::UntilClosed)
        }),
    ),
    Public::new(
        "connect",
        &["Client::connect"],
        PLAIN,
        made!(|test| {
            let url = test.site.urls[0].clone();
            Made::client(async move { Client::connect(url).await })
        }),
    )
    .everywhere(),
    Public::new(
        "build",
        &["ClientBuilder::build"],
        PLAIN,
        made!(|test| Made::client(test.site.builders("another").remove(0).build())),
    )
    .everywhere(),
    Public::new(
        "client scope",
        &["Client::scope", "ClientBuilder::scope"],
        PLAIN,
        made!(|test| {
            let builder = test.site.builders("another").remove(0);
            let name = format!("{}:it", test.name);
            let ask = async |client: Client| client.lock(name).is_locked().await;
            Made::call(builder.scope(ask))
        }),
    )
    .everywhere(),
    Public::new(
        "diagnose",
        &["Client::diagnose"],
        PLAIN,
        made!(|test| {
            let client = test.clients[0].clone();
            Made::call(async move { client.diagnose().await })
        }),
    )
    .everywhere(),
    Public::new(
        "survey",
        &["Client::connections", "Client::inspect", "Locks::next"],
        PLAIN,
        made!(|test| {
            let client = test.clients[0].clone();
            Made::call(async move {
                client.inspect("survey").await?;
                client.locks("*").next().await?;
                client.connections().await
            })
        }),
    )
    .everywhere(),
    Public::new(
        "provision",
        &["Client::provision"],
        PLAIN,
        made!(|test| {
            let client = test.clients[0].clone();
            Made::call(async move { client.provision().await })
        }),
    ),
    Public::new(
        "shutdown",
        &["Client::shutdown"],
        PLAIN,
        made!(|test| {
            let guard = held(&test, &Owner::new()).await;
            let client = test.clients[0].clone();
            let closing = Box::pin(async move { End::Report(client.shutdown().await) });
            Made::new(closing)
                .beside(guard)
                .in_situation(Situation::Closing)
        }),
    )
    .everywhere(),
    Public::new(
        "shutdown within",
        &["Client::shutdown_within"],
        PLAIN,
        made!(|test| {
            let guard = held(&test, &Owner::new()).await;
            let client = test.clients[0].clone();
            let closing = Box::pin(async move { End::Report(client.shutdown_within(LONG).await) });
            Made::new(closing)
                .beside(guard)
                .in_situation(Situation::Closing)
        }),
    ),
];
