//! Threads that use locks of values of the group.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::{RedissonPlan, RedissonThread};
use crate::simulation::group::command::{CHANNEL, KEY};
use crate::simulation::network::Network;

/// Takes some of these values a few times.
pub(in crate::simulation) async fn run(
    network: Arc<Network>,
    plan: RedissonPlan,
    number: u64,
    epoch_ms: u64,
    values: Vec<String>,
) {
    let mut thread = RedissonThread::new(&network, plan, number, epoch_ms);
    for _ in 0..thread.chance.within(1, 4) {
        thread.rest(500).await;
        let mut some: Vec<&str> = values.iter().map(String::as_str).collect();
        some.retain(|_| thread.chance.percent(60));
        if !some.is_empty() && wait(&mut thread, &some).await {
            hold(&mut thread, &some).await;
            let (owner, lease, now) = (
                thread.owner.clone(),
                thread.lease(),
                thread.now_ms().to_string(),
            );
            let args = [&*owner, "0", &lease, "publish", "", &now].into_iter();
            let args: Vec<&str> = args.chain(some).collect();
            thread.run(UNLOCK, &[KEY, CHANNEL, LATCH], &args).await;
        }
    }
}

async fn wait(thread: &mut RedissonThread, values: &[&str]) -> bool {
    let until = thread.patience();
    loop {
        let (lease, owner, now) = (
            thread.lease(),
            thread.owner.clone(),
            thread.now_ms().to_string(),
        );
        let args = [&*lease, &now, &owner].into_iter();
        let args: Vec<&str> = args.chain(values.iter().copied()).collect();
        if thread.run(ACQUIRE, &[KEY], &args).await == Some(Value::Nil) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread.pause(until).await;
    }
}

/// Holds, and renews as its watchdog does.
async fn hold(thread: &mut RedissonThread, values: &[&str]) {
    for _ in 0..thread.chance.within(0, 3) {
        thread.rest(200).await;
        let (lease, owner, now) = (
            thread.lease(),
            thread.owner.clone(),
            thread.now_ms().to_string(),
        );
        let args = [&*lease, &now, &owner].into_iter();
        let args: Vec<&str> = args.chain(values.iter().copied()).collect();
        thread.run(RENEW, &[KEY], &args).await;
    }
}

const LATCH: &str = "redisson_unlock_latch:{class}:1";

/// KEYS: the hash; ARGV: lease, now, owner, values.
pub(super) const ACQUIRE: &str = "\
    local now, ends = tonumber(ARGV[2]), tonumber(ARGV[2]) + tonumber(ARGV[1]) \
    local is_there = redis.call('exists', KEYS[1]) == 1 \
    if is_there then \
        for i = 4, #ARGV do \
            local holder = redis.call('hget', KEYS[1], ARGV[i]) \
            if holder and holder ~= ARGV[3] then \
                local until_then = redis.call('hget', KEYS[1], ARGV[i] .. ':' .. holder .. ':expire_time') \
                if until_then and tonumber(until_then) > now then \
                    return tonumber(until_then) - now \
                end \
            end \
        end \
    end \
    for i = 4, #ARGV do \
        local own = ARGV[i] .. ':' .. ARGV[3] \
        redis.call('hset', KEYS[1], ARGV[i], ARGV[3]) \
        local before = redis.call('hget', KEYS[1], own .. ':expire_time') \
        if not before or tonumber(before) < ends then \
            redis.call('hset', KEYS[1], own .. ':expire_time', string.format('%.0f', ends)) \
        end \
        redis.call('HINCRBY', KEYS[1], own .. ':lock_count', 1) \
    end \
    if not is_there or redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then \
        redis.call('pexpire', KEYS[1], ARGV[1]) \
    end \
    return nil";
/// KEYS: the hash, the channel, the latch; ARGV: owner, message, lease, command, the latch's time, now, values.
pub(super) const UNLOCK: &str = "\
    if redis.call('exists', KEYS[1]) == 0 then \
        redis.call(ARGV[4], KEYS[2], ARGV[2]) \
        return nil \
    end \
    local now, found, counts = tonumber(ARGV[6]), 0, 0 \
    for i = 7, #ARGV do \
        local own = ARGV[i] .. ':' .. ARGV[1] \
        local ends = redis.call('hget', KEYS[1], own .. ':expire_time') \
        if ends and tonumber(ends) > now then \
            found = found + 1 \
            local count = redis.call('hincrby', KEYS[1], own .. ':lock_count', -1) \
            if count > 0 then \
                counts = counts + count \
                redis.call('hset', KEYS[1], own .. ':expire_time', string.format('%.0f', now + tonumber(ARGV[3]))) \
            else \
                redis.call('hdel', KEYS[1], own .. ':expire_time') \
                redis.call('hdel', KEYS[1], own .. ':lock_count') \
                redis.call('hdel', KEYS[1], ARGV[i]) \
            end \
        end \
    end \
    if found == 0 then return nil end \
    redis.call(ARGV[4], KEYS[2], ARGV[2]) \
    if counts > 0 then \
        if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then redis.call('pexpire', KEYS[1], ARGV[3]) end \
        return 0 \
    end \
    return 1";
/// KEYS: the hash; ARGV: lease, now, owner, values.
pub(super) const RENEW: &str = "\
    if redis.call('exists', KEYS[1]) == 0 then return 0 end \
    local now = tonumber(ARGV[2]) \
    for i = 4, #ARGV do \
        if redis.call('hget', KEYS[1], ARGV[i]) ~= ARGV[3] then return 0 end \
        local own = ARGV[i] .. ':' .. ARGV[3] .. ':expire_time' \
        local ends = redis.call('hget', KEYS[1], own) \
        if not ends or tonumber(ends) <= now then return 0 end \
        redis.call('hset', KEYS[1], own, string.format('%.0f', now + tonumber(ARGV[1]))) \
    end \
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then redis.call('pexpire', KEYS[1], ARGV[1]) end \
    return 1";
