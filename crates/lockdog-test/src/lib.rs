//! A Redis server inside a test, for code that takes the locks of
//! [lockdog](https://docs.rs/lockdog).
//!
//! [`Server`] executes the real scripts in Lua 5.1, keeps its keys' expiries by tokio's clock, and
//! has the faults that real servers and networks have, at the moment that a test chooses.
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
//! The server's clock, and that of its [clients](Server::client), is tokio's. A test that pauses it
//! (`start_paused = true`) passes hours in a moment: tokio lets the clock jump to the next timer
//! whenever nothing is left to do. That needs the runtime of one thread; on one of several threads
//! time is real, and tokio panics where it is asked to pause it. The clients' background is a task of
//! the runtime that they were built on, not a thread: a test that blocks its runtime delays renewals.
//!
//! Over TCP ([`Server::listen`]) the others live in real time, so the clock should not be paused.
//!
//! # What it is not
//!
//! It knows the commands that locks need, answers them as Redis 7.0 does, and refuses every other:
//! `ERR unknown command '...', the test server knows only what locks need`. It does not imitate
//! sentinels, clusters, replicas, persistence, access lists, TLS, unix sockets, or the memory limit.
//! Scripts find Lua's `string`, `table` and `math` and the functions of `redis`, but neither `cjson`
//! nor `struct`.
//! What depends on those belongs in a test with a real server.

mod client;
mod commands;
mod connection;
mod database;
mod faults;
mod glob;
mod keyspace;
mod number;
mod reply;
mod request;
mod script;
mod server;
mod trouble;

pub use server::{Holder, Server};
pub use trouble::{Data, Stolen};
