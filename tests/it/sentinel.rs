//! A lock whose server is the master of a sentinel set-up: switched, killed, frozen, cut off.

mod acceptance;
mod connect;
mod failover;
mod foreign;
mod red_lock;
mod redisson;

use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}
