//! Threads that use the plain lock, the spin lock, the fenced lock or the non-reentrant lock. Each subscribes
//! on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::fair::RENEW;
use super::{RedissonPlan, RedissonThread};
use crate::simulation::network::{Network, RedissonListener};
use crate::simulation::observer::{CHANNEL, KEY};
use crate::simulation::plan::LockKind;

/// Takes the lock a few times. Some threads die while they hold it.
pub(in crate::simulation) async fn run(
    network: Arc<Network>,
    plan: RedissonPlan,
    lock: LockKind,
    number: u64,
) {
    let thread = RedissonThread::new(&network, plan, number, 0);
    let mut user = User {
        thread,
        network,
        lock,
        unlocks: 0,
    };
    for _ in 0..user.thread.chance.within(1, 4) {
        user.thread.rest(600).await;
        let is_held = match user.thread.chance.percent(20) {
            true => user.acquire().await == Acquired::Held,
            false => user.wait().await,
        };
        if !is_held {
            continue;
        }
        let again = user.thread.chance.percent(20) && user.acquire().await == Acquired::Held;
        let (lease, owner) = (user.thread.lease(), user.thread.owner.clone());
        user.thread.hold(RENEW, &[KEY], &[&lease, &owner]).await;
        if user.thread.chance.percent(10) {
            return;
        }
        for _ in 0..=u8::from(again) {
            user.unlock().await;
        }
    }
}

struct User {
    thread: RedissonThread,
    network: Arc<Network>,
    lock: LockKind,
    unlocks: u64,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Acquired {
    Held,
    /// The lock's TTL in milliseconds; below zero if it has none.
    Busy(i64),
    /// The call got no answer, or was refused. Redisson throws an exception.
    Failed,
}

impl User {
    async fn acquire(&mut self) -> Acquired {
        let (lease, owner) = (self.thread.lease(), self.thread.owner.clone());
        let thread = &mut self.thread;
        let answer = match self.lock {
            LockKind::NonReentrant => {
                let args = [&*lease, &owner, REFUSAL];
                thread.run_again(ACQUIRE_NON_REENTRANT, &[KEY], &args).await
            }
            LockKind::Fenced(_) => {
                let keys = [KEY, COUNTER];
                thread
                    .run_again(ACQUIRE_FENCED, &keys, &[&lease, &owner])
                    .await
            }
            _ => thread.run_again(ACQUIRE, &[KEY], &[&lease, &owner]).await,
        };
        match answer {
            Some(Value::Nil) => Acquired::Held,
            Some(Value::Int(ttl)) => Acquired::Busy(ttl),
            _ => Acquired::Failed,
        }
    }

    /// `tryLock(wait, unit)`: waits for a message or the end of the lock's TTL, and in a spin lock for a while.
    async fn wait(&mut self) -> bool {
        let until = self.thread.patience();
        match self.acquire().await {
            Acquired::Held => return true,
            Acquired::Failed => return false,
            Acquired::Busy(_) if Instant::now() >= until => return false,
            Acquired::Busy(_) => {}
        }
        let mut listener = match self.lock {
            LockKind::Spin => None,
            _ => match RedissonListener::new(&self.network, CHANNEL).await {
                None => return false,
                listening => listening,
            },
        };
        loop {
            let ttl = match self.acquire().await {
                Acquired::Held => return true,
                Acquired::Failed => return false,
                Acquired::Busy(ttl) => ttl,
            };
            if Instant::now() >= until {
                return false;
            }
            match &mut listener {
                None => self.thread.pause(until).await,
                Some(listener) => {
                    let ends = u64::try_from(ttl).ok();
                    let ends = ends.map(|ms| Instant::now() + Duration::from_millis(ms.max(1)));
                    listener.receive(ends.unwrap_or(until).min(until)).await;
                }
            }
        }
    }

    async fn unlock(&mut self) {
        let (lease, owner) = (self.thread.lease(), self.thread.owner.clone());
        self.unlocks += 1;
        let latch = format!("redisson_unlock_latch:{{{KEY}}}:{owner}-{}", self.unlocks);
        let thread = &mut self.thread;
        let answer = match self.lock {
            LockKind::Spin => {
                let args = [&*lease, &owner, LATCH_MS];
                thread.run_again(UNLOCK_SPIN, &[KEY, &latch], &args).await
            }
            _ => {
                let args = ["0", &lease, &owner, "publish", LATCH_MS];
                thread
                    .run_again(UNLOCK, &[KEY, CHANNEL, &latch], &args)
                    .await
            }
        };
        if answer.is_some() {
            thread.delete(&latch).await;
        }
    }
}

/// How long an unlock is remembered.
const LATCH_MS: &str = "16000";
const REFUSAL: &str = "NON_REENTRANT_REACQUIRE";
/// The last token of the fenced lock.
const COUNTER: &str = "redisson_lock_token:{lock}";

/// KEYS: the hash; ARGV: lease, owner.
pub(super) const ACQUIRE: &str = "\
    if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
        redis.call('hincrby', KEYS[1], ARGV[2], 1) \
        redis.call('pexpire', KEYS[1], ARGV[1]) \
        return nil \
    end \
    return redis.call('pttl', KEYS[1])";
/// KEYS: the hash, the counter of the tokens; ARGV: lease, owner. The script of `lock` and `tryLock`, which do not
/// return the token.
pub(super) const ACQUIRE_FENCED: &str = "\
    if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
        redis.call('incr', KEYS[2]) \
        redis.call('hincrby', KEYS[1], ARGV[2], 1) \
        redis.call('pexpire', KEYS[1], ARGV[1]) \
        return nil \
    end \
    return redis.call('pttl', KEYS[1])";
/// KEYS: the hash; ARGV: lease, owner, the refusal.
pub(super) const ACQUIRE_NON_REENTRANT: &str = "\
    if redis.call('exists', KEYS[1]) == 0 then \
        redis.call('hincrby', KEYS[1], ARGV[2], 1) \
        redis.call('pexpire', KEYS[1], ARGV[1]) \
        return nil \
    end \
    if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then return { err = ARGV[3] } end \
    return redis.call('pttl', KEYS[1])";

/// Ends one of the owner's acquires, once for each latch.
macro_rules! unlock {
    ($latch:literal, $lease:literal, $owner:literal, $kept:literal, $freed:literal) => {
        concat!(
            "local done = redis.call('get', KEYS[",
            $latch,
            "]) \
             if done then return tonumber(done) end \
             if redis.call('hexists', KEYS[1], ARGV[",
            $owner,
            "]) == 0 then return nil end \
             if redis.call('hincrby', KEYS[1], ARGV[",
            $owner,
            "], -1) > 0 then \
                redis.call('pexpire', KEYS[1], ARGV[",
            $lease,
            "]) \
                redis.call('set', KEYS[",
            $latch,
            "], 0, 'px', ARGV[",
            $kept,
            "]) \
                return 0 \
             end \
             redis.call('del', KEYS[1]) ",
            $freed,
            "redis.call('set', KEYS[",
            $latch,
            "], 1, 'px', ARGV[",
            $kept,
            "]) \
             return 1"
        )
    };
}

/// KEYS: the hash, the channel, the latch; ARGV: message, lease, owner, command, how long the latch lasts.
pub(super) const UNLOCK: &str =
    unlock!("3", "2", "3", "5", "redis.call(ARGV[4], KEYS[2], ARGV[1]) ");
/// KEYS: the hash, the latch; ARGV: lease, owner, how long the latch lasts.
pub(super) const UNLOCK_SPIN: &str = unlock!("2", "1", "2", "3", "");
