//! Every call of Redisson's lock has a counterpart that does the same.

use super::program::Program;
use crate::support::RedisServer;

#[tokio::test]
async fn every_rlock_call_has_a_port_with_the_same_effect() {
    let server = RedisServer::start().await;
    let output = Program::run("porting", &[&server.url()]).await;
    let last = output.last().map(String::as_str);
    assert_eq!(last, Some("every call did what the Java call does"));
    let redis = server.redis().await;
    redis.assert_clean().await;
    assert_eq!(redis.keys().await, [""; 0]);
}

/// The left column is complete: the test fails if Redisson has a method that this list lacks, or lacks one
/// of the list.
#[test]
fn the_left_column_names_every_rlock_method() {
    let source = include_str!("../../../examples/porting.rs");
    let java: Vec<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("/*")?.split_once("*/"))
        .flat_map(|(left, _)| left.split(';').map(str::trim))
        .collect();
    for call in METHODS {
        let named = java.iter().any(|line| line.ends_with(call));
        assert!(named, "{call} is not ported");
    }
}

/// `Lock`, `RLock` and `RLockAsync` as of Redisson 4.7, each overload with example arguments; the
/// listeners of `RObservable` have no counterpart.
const METHODS: [&str; 35] = [
    "lock.forceUnlock()",
    "lock.forceUnlockAsync()",
    "lock.getHoldCount()",
    "lock.getHoldCountAsync()",
    "lock.getName()",
    "lock.isHeldByCurrentThread()",
    "lock.isHeldByThread(7)",
    "lock.isHeldByThreadAsync(8)",
    "lock.isLocked()",
    "lock.isLockedAsync()",
    "lock.lock()",
    "lock.lock(10, SECONDS)",
    "lock.lockAsync()",
    "lock.lockAsync(10, SECONDS)",
    "lock.lockAsync(10, SECONDS, 7)",
    "lock.lockAsync(7)",
    "lock.lockInterruptibly()",
    "lock.lockInterruptibly(10, SECONDS)",
    "lock.newCondition()",
    "lock.remainTimeToLive()",
    "lock.remainTimeToLiveAsync()",
    "lock.tryLock()",
    "lock.tryLock(0, 10, SECONDS)",
    "lock.tryLock(1, 10, SECONDS)",
    "lock.tryLockAsync()",
    "lock.tryLockAsync(1, 10, SECONDS)",
    "lock.tryLockAsync(1, 10, SECONDS, 8)",
    "lock.tryLockAsync(1, SECONDS)",
    "lock.tryLockAsync(8)",
    "lock.unlock()",
    "lock.unlockAsync()",
    "lock.unlockAsync(7)",
    "other.lockInterruptibly()",
    "other.tryLock()",
    "other.tryLock(1, SECONDS)",
];
