//! Threads that use the fair lock.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::{RedissonPlan, RedissonThread};
use crate::simulation::fair::command::{KEY, PLACES, QUEUE};
use crate::simulation::network::Network;

/// Takes the lock a few times. Some threads die while they wait.
pub(in crate::simulation) async fn run(network: Arc<Network>, plan: RedissonPlan, number: u64) {
    let mut thread = RedissonThread::new(&network, plan, number, 0);
    for _ in 0..thread.chance.within(1, 4) {
        thread.rest(600).await;
        let is_held = match thread.chance.percent(20) {
            true => once(&mut thread).await,
            false => match wait(&mut thread).await {
                Some(is_held) => is_held,
                None => return,
            },
        };
        if is_held {
            let (lease, owner) = (thread.lease(), thread.owner.clone());
            let keys = [KEY];
            thread.hold(RENEW, &keys, &[&lease, &owner]).await;
            let now = thread.now_ms().to_string();
            let keys = [KEY, QUEUE, PLACES, CHANNEL];
            let args = ["0", &lease, &owner, &now, "publish"];
            thread.run(UNLOCK, &keys, &args).await;
        }
    }
}

/// `tryLock()`, which takes no place.
async fn once(thread: &mut RedissonThread) -> bool {
    let (lease, owner, now) = (
        thread.lease(),
        thread.owner.clone(),
        thread.now_ms().to_string(),
    );
    let args = [&*lease, &owner, &now, WORTH];
    let answer = thread.run(TRY, &[KEY, QUEUE, PLACES], &args).await;
    answer == Some(Value::Nil)
}

/// `tryLock(wait, lease, unit)`. `None` if it dies.
async fn wait(thread: &mut RedissonThread) -> Option<bool> {
    let (lease, owner) = (thread.lease(), thread.owner.clone());
    let until = thread.patience();
    let dies = thread.chance.percent(10);
    loop {
        let now = thread.now_ms().to_string();
        let worth = if dies { DIES_WORTH } else { WORTH };
        let args = [&*lease, &owner, worth, &now];
        let answer = thread.run(ACQUIRE, &[KEY, QUEUE, PLACES], &args).await;
        match answer {
            Some(Value::Nil) => return Some(true),
            _ if dies => return None,
            _ if Instant::now() >= until => {
                thread
                    .run(GIVE_UP, &[QUEUE, PLACES], &[&owner, worth])
                    .await;
                return Some(false);
            }
            _ => thread.pause(until).await,
        }
    }
}

const CHANNEL: &str = "redisson_lock__channel:{door}";
/// The time that a place adds to the score, in milliseconds, and that of a waiter that dies.
const WORTH: &str = "300000";
const DIES_WORTH: &str = "2000";

/// Removes the first waiters whose time has ended by the clock of the client.
macro_rules! stale_heads {
    ($rest:literal) => {
        concat!(
            "while true do \
                local head = redis.call('lindex', KEYS[2], 0) \
                if not head then break end \
                local ends = redis.call('zscore', KEYS[3], head) \
                if not ends or tonumber(ends) > now then break end \
                redis.call('zrem', KEYS[3], head) \
                redis.call('lpop', KEYS[2]) \
             end ",
            $rest
        )
    };
}

/// Takes the lock for the first waiter, or for an owner that has it.
macro_rules! grant {
    ($now:literal, $worth:literal, $rest:literal) => {
        concat!(
            "local now, worth = tonumber(ARGV[",
            $now,
            "]), tonumber(ARGV[",
            $worth,
            "]) ",
            stale_heads!(
                "if redis.call('exists', KEYS[1]) == 0 \
                    and (redis.call('exists', KEYS[2]) == 0 \
                        or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then \
                    redis.call('lpop', KEYS[2]) \
                    redis.call('zrem', KEYS[3], ARGV[2]) \
                    for _, other in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do \
                        redis.call('zincrby', KEYS[3], -worth, other) \
                    end \
                    redis.call('hset', KEYS[1], ARGV[2], 1) \
                    redis.call('pexpire', KEYS[1], ARGV[1]) \
                    return nil \
                 end \
                 if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
                    redis.call('hincrby', KEYS[1], ARGV[2], 1) \
                    redis.call('pexpire', KEYS[1], ARGV[1]) \
                    return nil \
                 end "
            ),
            $rest
        )
    };
}

/// KEYS: the hash, the list, the set; ARGV: lease, owner, what a place is worth, now.
pub(super) const ACQUIRE: &str = grant!(
    "4",
    "3",
    "if redis.call('zscore', KEYS[3], ARGV[2]) then \
        return math.max(0, redis.call('pttl', KEYS[1])) \
     end \
     local last, left = redis.call('lindex', KEYS[2], -1), nil \
     if last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last) then \
        left = tonumber(redis.call('zscore', KEYS[3], last)) - now \
     else \
        left = redis.call('pttl', KEYS[1]) \
     end \
     if redis.call('zadd', KEYS[3], left + worth + now, ARGV[2]) == 1 then \
        redis.call('rpush', KEYS[2], ARGV[2]) \
     end \
     return left"
);
/// KEYS as above; ARGV: lease, owner, now, what a place is worth.
pub(super) const TRY: &str = grant!("3", "4", "return 1");
/// KEYS: the list, the set; ARGV: owner, what a place is worth.
pub(super) const GIVE_UP: &str = "\
    local all, at = redis.call('lrange', KEYS[1], 0, -1), 1 \
    while at <= #all and all[at] ~= ARGV[1] do at = at + 1 end \
    for i = at + 1, #all do redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), all[i]) end \
    redis.call('zrem', KEYS[2], ARGV[1]) \
    redis.call('lrem', KEYS[1], 0, ARGV[1])";
/// KEYS: the hash, the list, the set, the channel; ARGV: message, lease, owner, now, command.
pub(super) const UNLOCK: &str = concat!(
    "local now = tonumber(ARGV[4]) \
     local function call_head() \
        local head = redis.call('lindex', KEYS[2], 0) \
        if head then redis.call(ARGV[5], KEYS[4] .. ':' .. head, ARGV[1]) end \
        return 1 \
     end ",
    stale_heads!(
        "if redis.call('exists', KEYS[1]) == 0 then return call_head() end \
         if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end \
         if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then \
            redis.call('pexpire', KEYS[1], ARGV[2]) \
            return 0 \
         end \
         redis.call('del', KEYS[1]) \
         return call_head()"
    )
);
/// KEYS: the hashes; ARGV: lease, and the owner of each.
pub(in crate::simulation) const RENEW: &str = "\
    local answers = {} \
    for i, key in ipairs(KEYS) do \
        answers[i] = redis.call('hexists', key, ARGV[i + 1]) \
        if answers[i] == 1 then redis.call('pexpire', key, ARGV[1]) end \
    end \
    return answers";
