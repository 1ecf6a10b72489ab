//! Threads that use the read/write lock.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::fair::RENEW;
use super::{RedissonPlan, RedissonThread};
use crate::simulation::network::Network;
use crate::simulation::read_write::command::KEY;

/// Reads and writes a few times.
pub(in crate::simulation) async fn run(network: Arc<Network>, plan: RedissonPlan, number: u64) {
    let mut thread = RedissonThread::new(&network, plan, number, 0);
    for _ in 0..thread.chance.within(1, 4) {
        thread.rest(600).await;
        match thread.chance.percent(60) {
            true => {
                if wait(&mut thread, READ).await {
                    let (timeouts, owner, lease) =
                        (timeouts_of(&thread), thread.owner.clone(), thread.lease());
                    let again = thread.chance.percent(20) && acquire(&mut thread, READ).await;
                    thread
                        .hold(RENEW_READS, &[KEY, BEFORE], &[&lease, "1", &owner])
                        .await;
                    for _ in 0..=u8::from(again) {
                        unlock_read(&mut thread, &timeouts).await;
                    }
                }
            }
            false => {
                if wait(&mut thread, WRITE).await {
                    write(&mut thread).await;
                }
            }
        }
    }
}

/// Some writers acquire the write lock again meanwhile, or continue as readers.
async fn write(thread: &mut RedissonThread) {
    let (lease, field) = (thread.lease(), format!("{}:write", thread.owner));
    let again = thread.chance.percent(20) && acquire(thread, WRITE).await;
    thread.hold(RENEW, &[KEY], &[&lease, &field]).await;
    let reads = thread.chance.percent(30) && acquire(thread, READ).await;
    for _ in 0..=u8::from(again) {
        let args = ["1", &lease, &field, "publish"];
        thread.run(UNLOCK_WRITE, &[KEY, CHANNEL], &args).await;
    }
    if reads {
        thread.rest(100).await;
        let timeouts = timeouts_of(thread);
        unlock_read(thread, &timeouts).await;
    }
}

async fn unlock_read(thread: &mut RedissonThread, timeouts: &str) {
    let owner = thread.owner.clone();
    let keys = [KEY, CHANNEL, timeouts, BEFORE];
    thread
        .run(UNLOCK_READ, &keys, &["0", &owner, "publish"])
        .await;
}

fn timeouts_of(thread: &RedissonThread) -> String {
    format!("{BEFORE}:{}:rwlock_timeout", thread.owner)
}

/// What it reads or writes with.
type Mode = &'static str;

async fn acquire(thread: &mut RedissonThread, mode: Mode) -> bool {
    let (lease, owner) = (thread.lease(), thread.owner.clone());
    let (timeouts, writes) = (timeouts_of(thread), format!("{owner}:write"));
    let answer = match mode {
        READ => {
            let args = [&*lease, &owner, &writes];
            thread.run(ACQUIRE_READ, &[KEY, &timeouts], &args).await
        }
        _ => thread.run(ACQUIRE_WRITE, &[KEY], &[&lease, &writes]).await,
    };
    answer == Some(Value::Nil)
}

async fn wait(thread: &mut RedissonThread, mode: Mode) -> bool {
    let until = thread.patience();
    loop {
        if acquire(thread, mode).await {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread.pause(until).await;
    }
}

const READ: Mode = "read";
const WRITE: Mode = "write";
const BEFORE: &str = "{doc}";
const CHANNEL: &str = "redisson_rwlock:{doc}";

/// KEYS: the hash, the prefix of the owner's timeout keys; ARGV: lease, owner, the owner as a writer.
pub(super) const ACQUIRE_READ: &str = "\
    local mode = redis.call('hget', KEYS[1], 'mode') \
    if not mode then \
        redis.call('hset', KEYS[1], 'mode', 'read') \
        redis.call('hset', KEYS[1], ARGV[2], 1) \
        redis.call('set', KEYS[2] .. ':1', 1) \
        redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]) \
        redis.call('pexpire', KEYS[1], ARGV[1]) \
        return nil \
    end \
    if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[3]) == 1 then \
        local own = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1) \
        redis.call('set', own, 1) \
        redis.call('pexpire', own, ARGV[1]) \
        local left = redis.call('pttl', KEYS[1]) \
        redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1]))) \
        return nil \
    end \
    return redis.call('pttl', KEYS[1])";
/// KEYS: the hash; ARGV: lease, the owner as a writer.
pub(super) const ACQUIRE_WRITE: &str = "\
    local mode = redis.call('hget', KEYS[1], 'mode') \
    if not mode then \
        redis.call('hset', KEYS[1], 'mode', 'write') \
        redis.call('hset', KEYS[1], ARGV[2], 1) \
        redis.call('pexpire', KEYS[1], ARGV[1]) \
        return nil \
    end \
    if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
        redis.call('hincrby', KEYS[1], ARGV[2], 1) \
        redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + tonumber(ARGV[1])) \
        return nil \
    end \
    return redis.call('pttl', KEYS[1])";
/// KEYS: the hash, the channel, the prefix of the owner's timeout keys, that of all; ARGV: message, owner, command.
pub(super) const UNLOCK_READ: &str = "\
    local mode = redis.call('hget', KEYS[1], 'mode') \
    if not mode then \
        redis.call(ARGV[3], KEYS[2], ARGV[1]) \
        return nil \
    end \
    if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end \
    local count = redis.call('hincrby', KEYS[1], ARGV[2], -1) \
    if count == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end \
    redis.call('del', KEYS[3] .. ':' .. (count + 1)) \
    if redis.call('hlen', KEYS[1]) > 1 then \
        local longest = -3 \
        local fields = redis.call('hkeys', KEYS[1]) \
        local now_in = redis.call('hget', KEYS[1], 'mode') \
        for _, field in ipairs(fields) do \
            if field ~= 'mode' then \
                for i = tonumber(redis.call('hget', KEYS[1], field)), 1, -1 do \
                    local left = redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i) \
                    longest = math.max(left, longest) \
                end \
            end \
        end \
        if longest > 0 then \
            redis.call('pexpire', KEYS[1], longest) \
            return 0 \
        end \
        if now_in == 'write' then return 0 end \
    end \
    redis.call('del', KEYS[1]) \
    redis.call(ARGV[3], KEYS[2], ARGV[1]) \
    return 1";
/// KEYS: the hash, the channel; ARGV: message, lease, the owner as a writer, command.
pub(super) const UNLOCK_WRITE: &str = "\
    local mode = redis.call('hget', KEYS[1], 'mode') \
    if not mode then \
        redis.call(ARGV[4], KEYS[2], ARGV[1]) \
        return nil \
    end \
    if mode ~= 'write' then return nil end \
    if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end \
    if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then \
        redis.call('pexpire', KEYS[1], ARGV[2]) \
        return 0 \
    end \
    redis.call('hdel', KEYS[1], ARGV[3]) \
    if redis.call('hlen', KEYS[1]) == 1 then \
        redis.call('del', KEYS[1]) \
        redis.call(ARGV[4], KEYS[2], ARGV[1]) \
    else \
        redis.call('hset', KEYS[1], 'mode', 'read') \
    end \
    return 1";
/// KEYS: the hash and the prefix of all timeout keys of each lock; ARGV: lease, and for each lock how many owners,
/// and the owners.
pub(super) const RENEW_READS: &str = "\
    local answers, at = {}, 2 \
    for i = 1, #KEYS, 2 do \
        local renewed = 0 \
        for n = at + 1, at + tonumber(ARGV[at]) do \
            local count = redis.call('hget', KEYS[i], ARGV[n]) \
            if count then \
                renewed = 1 \
                for hold = tonumber(count), 1, -1 do \
                    redis.call('pexpire', KEYS[i + 1] .. ':' .. ARGV[n] .. ':rwlock_timeout:' .. hold, ARGV[1]) \
                end \
            end \
        end \
        at = at + 1 + tonumber(ARGV[at]) \
        if renewed == 1 then redis.call('pexpire', KEYS[i], ARGV[1]) end \
        answers[#answers + 1] = renewed \
    end \
    return answers";
