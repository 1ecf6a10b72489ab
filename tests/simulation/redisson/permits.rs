//! Threads that use the semaphore whose permits have leases.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::{RedissonPlan, RedissonThread};
use crate::simulation::network::Network;
use crate::simulation::permits::command::{CHANNEL, IN_USE, KEY};

/// Takes permits, and releases those whose leases have not ended.
pub(in crate::simulation) async fn run(network: Arc<Network>, plan: RedissonPlan, number: u64) {
    let mut thread = RedissonThread::new(&network, plan, number, EPOCH_MS);
    for round in 0..thread.chance.within(1, 5) {
        thread.rest(400).await;
        let ids: Vec<String> = (0..thread.chance.within(1, 2))
            .map(|i| format!("{IDS}{number}-{round:02}-{i}"))
            .collect();
        if !wait(&mut thread, &ids).await {
            continue;
        }
        thread.rest(400).await;
        match &ids[..] {
            [id] => {
                let args = [&**id, "1", &thread.now_ms().to_string(), "publish"];
                thread.run(RELEASE, &[KEY, CHANNEL, IN_USE], &args).await;
            }
            ids => {
                let now = thread.now_ms().to_string();
                let count = ids.len().to_string();
                let args = [&*count, &now, "publish"].into_iter();
                let args: Vec<&str> = args.chain(ids.iter().map(String::as_str)).collect();
                thread
                    .run(RELEASE_ALL, &[KEY, CHANNEL, IN_USE], &args)
                    .await;
                // If one of the leases has ended, the thread releases the others.
                for id in ids {
                    let args = [&**id, "1", &now, "publish"];
                    thread.run(RELEASE, &[KEY, CHANNEL, IN_USE], &args).await;
                }
            }
        }
    }
}

async fn wait(thread: &mut RedissonThread, ids: &[String]) -> bool {
    let until = thread.patience();
    let has_lease = thread.chance.percent(70);
    let count = ids.len().to_string();
    loop {
        let now = thread.now_ms();
        let lease: i64 = thread.lease().parse().unwrap_or_default();
        let ends = match has_lease {
            true => (now + lease).to_string(),
            false => NEVER.to_owned(),
        };
        let now = now.to_string();
        let args = [&*count, &ends, &now, NEVER, "publish"].into_iter();
        let args: Vec<&str> = args.chain(ids.iter().map(String::as_str)).collect();
        let answer = thread.run(ACQUIRE, &[KEY, IN_USE, CHANNEL], &args).await;
        if answer == Some(Value::Okay) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread.pause(until).await;
    }
}

/// The beginning of the ids of its permits.
pub(in crate::simulation) const IDS: &str = "redisson-";
/// The time of the server's clock at the start. Redisson's clock may be behind it, and no score is
/// below zero.
pub(in crate::simulation) const EPOCH_MS: u64 = 1_800_000_000_000;
const NEVER: &str = "922337203685477";

/// KEYS: the number, the set, the channel; ARGV: how many, the end of their lease, now, the largest end, command, ids.
pub(super) const ACQUIRE: &str = "\
    local over = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1]) \
    if #over > 0 then \
        redis.call('zrem', KEYS[2], unpack(over)) \
        local free = redis.call('incrby', KEYS[1], #over) \
        if free > 0 then redis.call(ARGV[5], KEYS[3], free) end \
    end \
    local free = redis.call('get', KEYS[1]) \
    if free and tonumber(free) >= tonumber(ARGV[1]) then \
        redis.call('decrby', KEYS[1], ARGV[1]) \
        for i = 6, #ARGV do redis.call('zadd', KEYS[2], ARGV[2], ARGV[i]) end \
        local left = redis.call('pttl', KEYS[1]) \
        if left > 0 then redis.call('pexpire', KEYS[2], left) end \
        return { ok = 'OK' } \
    end \
    local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES') \
    if first[1] and first[2] ~= ARGV[4] then return ':' .. first[2] end \
    return nil";
/// KEYS: the number, the channel, the set; ARGV: id, 1, now, command.
pub(super) const RELEASE: &str = "\
    local ends = redis.call('zscore', KEYS[3], ARGV[1]) \
    local removed = redis.call('zrem', KEYS[3], ARGV[1]) \
    if removed ~= 1 then return 0 end \
    local free = redis.call('incrby', KEYS[1], ARGV[2]) \
    redis.call(ARGV[4], KEYS[2], free) \
    if tonumber(ends) <= tonumber(ARGV[3]) then return 0 end \
    return 1";
/// KEYS as above; ARGV: how many, now, command, ids.
pub(super) const RELEASE_ALL: &str = "\
    local ids = {} \
    for i = 4, #ARGV do \
        local ends = redis.call('zscore', KEYS[3], ARGV[i]) \
        if not ends or tonumber(ends) <= tonumber(ARGV[2]) then return 0 end \
        ids[#ids + 1] = ARGV[i] \
    end \
    local over = redis.call('zrangebyscore', KEYS[3], 0, ARGV[2], 'limit', 0, -1) \
    if #over > 0 then \
        redis.call('zrem', KEYS[3], unpack(over)) \
        local free = redis.call('incrby', KEYS[1], #over) \
        if free > 0 then redis.call(ARGV[3], KEYS[2], free) end \
    end \
    local removed = redis.call('zrem', KEYS[3], unpack(ids)) \
    redis.call('incrby', KEYS[1], removed) \
    redis.call(ARGV[3], KEYS[2], removed) \
    return removed";
