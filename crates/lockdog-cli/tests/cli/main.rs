//! The command `lockdog` as users run it, on servers of its own.

#![allow(
    clippy::disallowed_methods,
    reason = "tests measure and spawn as they like; the bans are for the library"
)]

mod bench;
mod configuration;
mod doctor;
mod exit_codes;
mod loss;
mod manual;
mod output;
mod program;
mod release;
mod run;
mod secrets;
mod shown;
mod signals;
/// The private servers and faulty networks of the library's integration tests.
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "not all of it is needed here"
)]
#[path = "../../../../tests/it/support/mod.rs"]
mod support;
mod terminal;
mod watch;
