//! A lock on a Sentinel master that is switched, killed, frozen or disconnected.

mod acceptance;
mod connect;
mod election;
mod failover;
mod fair;
mod fenced;
mod foreign;
mod group;
mod latch;
mod named;
mod nemesis;
mod permits;
mod read_write;
mod red_lock;
mod redisson;
mod secrets;
mod semaphore;

use crate::support::prelude::{SOON, ms};
