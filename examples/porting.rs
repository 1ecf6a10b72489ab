//! Every method of Redisson's `RLock` but the listeners, and those that `RedissonMultiLock` has, Java on
//! the left and Rust on the right.
//!
//! ```text
//! cargo run --example porting -- redis://127.0.0.1:6379
//! ```
//!
//! It runs each call on the server that is named, and fails if one does not do what the Java call
//! does. `docs/porting-from-redisson.md` has the same as a table, with the traps.

use std::time::Duration;

use lockdog::report::Ttl;
use lockdog::{Client, Error, Lock, MultiLock, Owner, Result};

/// For new code: each acquire returns a guard, which ends it.
#[rustfmt::skip]
async fn with_guards(redisson: &Client) -> Result<()> {
    /* RLock lock = redisson.getLock(ORDERS);   */ let lock = redisson.lock(ORDERS);
    /* lock.getName();                          */ is("getName", lock.name(), ORDERS);

    /* lock.lock();                             */ let guard = lock.lock().await?;
    /* lock.isLocked();                         */ is("isLocked", lock.is_locked().await?, true);
    /* lock.isHeldByCurrentThread();            */ is("isHeldByCurrentThread", lock.is_held().await?, true);
    /* lock.getHoldCount();                     */ is("getHoldCount", lock.hold_count().await?, 1);
    /* lock.remainTimeToLive();                 */ is("remainTimeToLive", lives(&lock, 30).await?, true);
    /* lock.unlock();                           */ guard.unlock().await?;

    /* lock.lock(10, SECONDS);                  */ let guard = lock.lock().lease(secs(10)).await?;
    /*                                          */ is("lock(lease)", lives(&lock, 10).await?, true);
    /* lock.unlock();                           */ guard.unlock().await?;

    // Java interrupts a thread. Here the caller drops the future: by a timeout, or in a `select!`.
    /* lock.lockInterruptibly();                */ let guard = lock.lock().await?;
    /* other.lockInterruptibly(); // interrupted */ let cut = tokio::time::timeout(secs(1) / 10, as_other(&lock)).await;
    /*                                          */ is("lockInterruptibly", cut.is_err(), true);
    /* lock.unlock();                           */ guard.unlock().await?;
    /* lock.lockInterruptibly(10, SECONDS);     */ let guard = lock.lock().lease(secs(10)).await?;
    /*                                          */ is("lockInterruptibly(lease)", lives(&lock, 10).await?, true);
    /* lock.unlock();                           */ guard.unlock().await?;

    // Java's false is None, and a server that does not answer is an error, never None.
    /* lock.tryLock();                          */ let guard = lock.try_lock().await?.expect("no owner has it");
    /* other.tryLock();                         */ let busy = lock.try_lock().owner(&Owner::new()).await?;
    /*                                          */ is("tryLock", busy.is_none(), true);
    /* other.tryLock(1, SECONDS);               */ let busy = lock.try_lock().wait(secs(1)).owner(&Owner::new()).await?;
    /*                                          */ is("tryLock(wait)", busy.is_none(), true);
    /* lock.unlock();                           */ guard.unlock().await?;
    /* lock.tryLock(1, 10, SECONDS);            */ let guard = lock.try_lock().wait(secs(1)).lease(secs(10)).await?;
    /*                                          */ is("tryLock(wait, lease)", lives(&lock, 10).await?, true);
    /* lock.unlock();                           */ drop(guard); // releases in the background
    /*                                          */ // Another owner waits for that release.
    /*                                          */ drop(lock.lock().owner(&Owner::new()).await?);

    // Re-entry: the count is the same, each guard ends one.
    /* lock.lock(); lock.lock();                */ let (a, b) = (lock.lock().await?, lock.lock().await?);
    /* lock.getHoldCount();                     */ is("getHoldCount, twice", lock.hold_count().await?, 2);
    /* lock.unlock(); lock.unlock();            */ b.unlock().await?; a.unlock().await?;

    /* lock.lock();                             */ let guard = lock.lock().await?;
    /* lock.forceUnlock();                      */ is("forceUnlock", lock.force_unlock().await?, true);
    /* lock.forceUnlock();                      */ is("forceUnlock, free", lock.force_unlock().await?, false);
    /* lock.unlock(); // IllegalMonitorState... */ is("unlock, lost", guard.unlock().await.is_err_and(|e| e.is_lost()), true);

    /* lock.newCondition(); // Unsupported...   */ // There is none here either.
    Ok(())
}

/// For code that locks in one place and unlocks in another: it forgets the guard.
#[rustfmt::skip]
async fn without_guards(redisson: &Client) -> Result<()> {
    let lock = redisson.lock("example:porting:legacy");
    /* lock.lock();                             */ lock.lock().await?.forget();
    /* lock.unlock();                           */ lock.unlock().await?;
    /* lock.unlock(); // IllegalMonitorState... */ is("unlock, not held", matches!(lock.unlock().await, Err(Error::NotHeld(_))), true);

    // A throttle: one owner gets the lock and keeps it, so no other owner gets it for ten seconds. `forget` lets
    // this owner re-enter, as in Java. New code uses `guard.leave_to_lease()`, which a shutdown does not end.
    /* lock.tryLock(0, 10, SECONDS);            */ let got = lock.try_lock().lease(secs(10)).await?;
    /*                                          */ is("tryLock(0, lease)", got.is_some(), true);
    /*                                          */ if let Some(guard) = got { guard.forget(); }
    /* other.tryLock(0, 10, SECONDS);           */ let got = lock.try_lock().lease(secs(10)).owner(&Owner::new()).await?;
    /*                                          */ is("tryLock(0, lease), again", got.is_none(), true);
    /* lock.unlock();                           */ lock.unlock().await?;
    Ok(())
}

/// The `...Async(threadId)` calls: the owner is a number that the caller chooses. The calls without a
/// thread id are those above, because every call of lockdog is asynchronous.
#[rustfmt::skip]
async fn with_thread_ids(redisson: &Client) -> Result<()> {
    let lock = redisson.lock("example:porting:async");
    let (id7, id8) = (Owner::from_id(7), Owner::from_id(8));
    /* lock.lockAsync(7);                       */ lock.lock().owner(&id7).await?.forget();
    /* lock.isHeldByThread(7);                  */ is("isHeldByThread", lock.is_held_by(&id7).await?, true);
    /* lock.isHeldByThreadAsync(8);             */ is("isHeldByThreadAsync", lock.is_held_by(&id8).await?, false);
    /* lock.tryLockAsync(8);                    */ is("tryLockAsync(id)", lock.try_lock().owner(&id8).await?.is_none(), true);
    /* lock.unlockAsync(7);                     */ lock.unlock().owner(&id7).await?;

    /* lock.lockAsync(10, SECONDS, 7);          */ lock.lock().lease(secs(10)).owner(&id7).await?.forget();
    /* lock.tryLockAsync(1, 10, SECONDS, 8);    */ let got = lock.try_lock().wait(secs(1)).lease(secs(10)).owner(&id8).await?;
    /*                                          */ is("tryLockAsync(wait, lease, id)", got.is_none(), true);
    /* lock.unlockAsync(7);                     */ lock.unlock().owner(&id7).await?;

    // A scope sets the owner of many calls. It does not cross `tokio::spawn`: wrap the child too.
    id7.scope(async {
        /* lock.lockAsync();                    */ let guard = lock.lock().await?;
        /* lock.getHoldCountAsync();            */ is("getHoldCountAsync", lock.hold_count().await?, 1);
        /* lock.isLockedAsync();                */ is("isLockedAsync", lock.is_locked().await?, true);
        /* lock.remainTimeToLiveAsync();        */ is("remainTimeToLiveAsync", lives(&lock, 30).await?, true);
        /* lock.unlockAsync();                  */ guard.unlock().await?;
        /* lock.lockAsync(10, SECONDS);         */ let guard = lock.lock().lease(secs(10)).await?;
        /* lock.forceUnlockAsync();             */ is("forceUnlockAsync", lock.force_unlock().await?, true);
        /*                                      */ drop(guard);
        /* lock.tryLockAsync();                 */ let guard = lock.try_lock().await?;
        /* lock.tryLockAsync(1, SECONDS);       */ let again = lock.try_lock().wait(secs(1)).await?;
        /* lock.tryLockAsync(1, 10, SECONDS);   */ let third = lock.try_lock().wait(secs(1)).lease(secs(10)).await?;
        /* lock.getHoldCountAsync();            */ is("getHoldCountAsync, three times", lock.hold_count().await?, 3);
        /*                                      */ drop((third, again, guard));
        Ok(())
    })
    .await
}

/// Several locks that are held together.
#[rustfmt::skip]
async fn with_several(redisson: &Client) -> Result<()> {
    let [a, b] = ["example:porting:account:1", "example:porting:account:2"].map(|name| redisson.lock(name));
    /* RLock all = new RedissonMultiLock(a, b); */ let all = MultiLock::new([a.clone(), b.clone()]);
    /* all.lock();                              */ let guard = all.lock().await?;
    /* all.isHeldByCurrentThread();             */ is("multi isHeldByCurrentThread", all.is_held().await?, true);
    /* a.isLocked() && b.isLocked();            */ is("multi, members", a.is_locked().await? && b.is_locked().await?, true);
    /* all.unlock();                            */ guard.unlock().await?;

    // If another owner holds one member, the call fails and holds none.
    /* b.lock(); // another thread              */ let busy = b.lock().owner(&Owner::new()).await?;
    /* all.tryLock(1, 10, SECONDS);             */ let none = all.try_lock().wait(secs(1)).lease(secs(10)).await?;
    /*                                          */ is("multi tryLock", none.is_none() && !a.is_locked().await?, true);
    /* b.unlock();                              */ busy.unlock().await?;

    /* all.lock(10, SECONDS);                   */ all.lock().lease(secs(10)).await?.forget();
    /* all.isHeldByThread(7);                   */ is("multi isHeldByThread", all.is_held_by(&Owner::from_id(7)).await?, false);
    /* all.unlock();                            */ all.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    /* Redisson.create(config); */
    let redisson = Client::connect(url).await?;
    with_guards(&redisson).await?;
    without_guards(&redisson).await?;
    with_thread_ids(&redisson).await?;
    with_several(&redisson).await?;
    /* redisson.shutdown(); */
    redisson.shutdown().await;
    println!("every call did what the Java call does");
    Ok(())
}

/// In Java, another thread would do this.
async fn as_other(lock: &Lock) -> Result<()> {
    lock.lock().owner(&Owner::new()).await?.unlock().await?;
    Ok(())
}

/// Whether the key's TTL is at most `seconds`, and more than half of that.
async fn lives(lock: &Lock, seconds: u64) -> Result<bool> {
    let ttl = lock.remaining_ttl().await?;
    Ok(matches!(ttl, Some(Ttl::Expires(left)) if left <= secs(seconds) && left > secs(seconds) / 2))
}

/// Prints the answer of a call; panics if Java answers something else.
fn is<T: PartialEq + std::fmt::Debug>(call: &str, got: T, java: T) {
    assert_eq!(got, java, "{call}");
    println!("{call}: {got:?}");
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A name that no other program uses: some calls free the lock by force.
const ORDERS: &str = "example:porting:orders";
