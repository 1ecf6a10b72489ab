//! Every test runs against servers of its own; `tests/setup` installs what they need.

#![allow(
    clippy::disallowed_methods,
    reason = "tests measure and spawn as they like; the bans are for the library"
)]

mod abandoned;
mod cluster;
mod crowd;
mod diagnose;
mod election;
mod examples;
mod fair;
mod faults;
mod fixture;
mod group;
mod hand_over;
mod harness;
mod interop;
mod kinds;
mod latch;
mod lock;
mod model;
mod multi_lock;
mod nemesis;
mod permits;
mod read_write;
mod recorded;
mod red_lock;
mod redisson_driver;
mod regressions;
mod replicas;
mod runtimes;
mod semaphore;
mod sentinel;
mod settings;
mod support;
mod survey;
mod turn;
mod watchdog;
