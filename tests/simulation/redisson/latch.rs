//! Threads that use the latch.

use std::sync::Arc;

use super::{RedissonPlan, RedissonThread};
use crate::simulation::latch::command::KEY;
use crate::simulation::network::Network;

/// Sets, counts down and deletes.
pub(in crate::simulation) async fn run(network: Arc<Network>, plan: RedissonPlan, number: u64) {
    let mut thread = RedissonThread::new(&network, plan, number, 0);
    for _ in 0..thread.chance.within(2, 8) {
        thread.rest(200).await;
        match thread.chance.within(0, 9) {
            0..3 => {
                let count = thread.chance.within(0, 3).to_string();
                thread
                    .run(SET, &[KEY, CHANNEL], &["1", &count, "publish"])
                    .await;
            }
            3..9 => drop(
                thread
                    .run(COUNT_DOWN, &[KEY, CHANNEL], &["0", "publish"])
                    .await,
            ),
            _ => drop(thread.run(DELETE, &[KEY, CHANNEL], &["1", "publish"]).await),
        }
    }
}

const CHANNEL: &str = "redisson_countdownlatch__channel__{start}";

/// KEYS: the number, the channel; ARGV: message, command.
pub(in crate::simulation) const COUNT_DOWN: &str = "\
    local count = redis.call('decr', KEYS[1]) \
    if count <= 0 then redis.call('del', KEYS[1]) end \
    if count == 0 then redis.call(ARGV[2], KEYS[2], ARGV[1]) end";
/// KEYS as above; ARGV: message, count, command.
pub(in crate::simulation) const SET: &str = "\
    if redis.call('exists', KEYS[1]) == 1 then return 0 end \
    redis.call('set', KEYS[1], ARGV[2]) \
    redis.call(ARGV[3], KEYS[2], ARGV[1]) \
    return 1";
/// KEYS as above; ARGV: message, command.
pub(in crate::simulation) const DELETE: &str = "\
    if redis.call('del', KEYS[1]) == 0 then return 0 end \
    redis.call(ARGV[2], KEYS[2], ARGV[1]) \
    return 1";
