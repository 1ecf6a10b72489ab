//! A Redis server inside a test, for code that uses the locks of [lockdog](https://docs.rs/lockdog).
//!
//! [`Server`] executes the real scripts in Lua 5.1, expires keys by tokio's clock, and injects the faults
//! of real servers and networks at the moments that a test chooses.
//!
//! ```
//! use std::time::Duration;
//!
//! use lockdog_test::Server;
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // #[tokio::test(start_paused = true)]
//! async fn main() -> lockdog::Result<()> {
//!     let server = Server::new();
//!     let client = server.client().await;
//!     let guard = client.lock("nightly").lock().await?;
//!     tokio::time::sleep(Duration::from_secs(3600)).await; // renewed 360 times, in milliseconds
//!     assert!(guard.is_valid());
//!     server.lose("nightly");
//!     assert!(guard.unlock().await.is_err());
//!     server.assert_clean().await;
//!     Ok(())
//! }
//! ```
//!
//! # Time
//!
//! The server and its [clients](Server::client) use tokio's clock. A test that pauses it (`start_paused
//! = true`) passes hours in a moment: tokio advances the clock to the next timer whenever no task is
//! ready. This needs a current-thread runtime. On a multi-thread runtime time is real, and tokio panics
//! if a test pauses it. The clients' background is a task of the runtime that they were built on, not a
//! thread, so a test that blocks its runtime delays renewals.
//!
//! Let time pass with [`tokio::time::sleep`]. `tokio::time::advance` moves the clock in one step, and no
//! timer runs in between. That is what a suspended machine does: a lock whose lease ends in the step is lost.
//!
//! A test that waits for an event that never happens does not stop. It runs forever, because waiters poll and the
//! clock advances from poll to poll. Put a [`tokio::time::timeout`] around such a wait.
//!
//! The pauses of a client have random parts, also on a paused clock. So a test should assert limits, not
//! the exact moment at which a waiter has its lock.
//!
//! Over TCP ([`Server::listen`]) the clients are in real time, so the clock should not be paused.
//!
//! # What it is not
//!
//! It knows the commands that locks need, answers them as Redis 7.0 does, and refuses all others: `ERR
//! unknown command '...', the test server knows only what locks need`. It does not imitate sentinels,
//! clusters, replicas, persistence, access lists, TLS, unix sockets, or the memory limit. Scripts have
//! Lua's `string`, `table` and `math` and the functions of `redis`, but neither `cjson` nor `struct`.
//! Test what depends on those with a real server.

mod client;
mod commands;
mod connection;
mod core;
mod database;
mod faults;
mod glob;
mod keyspace;
mod lua_values;
mod number;
mod reply;
mod request;
mod script;
mod server;
mod trouble;

pub use server::{Holder, Server};
pub use trouble::{Data, Stolen};
