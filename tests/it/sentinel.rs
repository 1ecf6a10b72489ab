//! A lock whose server is the master of a sentinel set-up: switched, killed, frozen, cut off.

mod acceptance;
mod connect;
mod election;
mod failover;
mod fair;
mod foreign;
mod group;
mod latch;
mod named;
mod permits;
mod read_write;
mod red_lock;
mod redisson;
mod secrets;
mod semaphore;

use crate::support::prelude::{SOON, ms};
