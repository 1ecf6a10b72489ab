//! Threads that use the semaphore whose permits have no leases.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::{RedissonPlan, RedissonThread};
use crate::simulation::network::Network;
use crate::simulation::semaphore::command::{CHANNEL, KEY};

/// Takes permits, and releases all of them.
pub(in crate::simulation) async fn run(network: Arc<Network>, plan: RedissonPlan, number: u64) {
    let mut thread = RedissonThread::new(&network, plan, number, 0);
    for _ in 0..thread.chance.within(1, 5) {
        thread.rest(300).await;
        let taken = match thread.chance.percent(20) {
            true => match thread.run(DRAIN, &[KEY], &[]).await {
                Some(Value::BulkString(taken)) => {
                    String::from_utf8_lossy(&taken).parse().unwrap_or(0)
                }
                _ => 0,
            },
            false => {
                let permits = thread.chance.within(1, 3);
                match wait(&mut thread, permits).await {
                    true => permits as i64,
                    false => 0,
                }
            }
        };
        if taken > 0 {
            thread.rest(300).await;
            let args = [&*taken.to_string(), "publish"];
            thread.run(RELEASE, &[KEY, CHANNEL], &args).await;
        }
    }
}

async fn wait(thread: &mut RedissonThread, permits: u64) -> bool {
    let until = thread.patience();
    loop {
        let answer = thread.run(ACQUIRE, &[KEY], &[&permits.to_string()]).await;
        if answer == Some(Value::Int(1)) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread.pause(until).await;
    }
}

/// KEYS: the number; ARGV: how many.
pub(super) const ACQUIRE: &str = "\
    local free = redis.call('get', KEYS[1]) \
    if free and tonumber(free) >= tonumber(ARGV[1]) then \
        redis.call('decrby', KEYS[1], ARGV[1]) \
        return 1 \
    end \
    return 0";
/// KEYS: the number, the channel; ARGV: how many, command.
pub(super) const RELEASE: &str = "\
    local free = redis.call('incrby', KEYS[1], ARGV[1]) \
    redis.call(ARGV[2], KEYS[2], free)";
/// KEYS: the number.
pub(super) const DRAIN: &str = "\
    local free = redis.call('get', KEYS[1]) \
    if not free then return 0 end \
    redis.call('set', KEYS[1], 0) \
    return free";
