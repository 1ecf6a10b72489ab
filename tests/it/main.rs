//! Every test runs against servers of its own; `tests/setup` installs what they need.

mod examples;
mod faults;
mod harness;
mod interop;
mod lock;
mod model;
mod redisson_driver;
mod review;
mod support;
mod watchdog;
