//! Redisson's distributed locks for tokio services, on the same Redis keys as the Java services
//! beside them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lockdog::Result<()> {
//! let client = lockdog::Client::connect("redis://127.0.0.1:6379").await?;
//! let lock = client.lock("orders:42");
//!
//! let guard = lock.lock().await?; // waits; the watchdog keeps the lease alive
//! guard.unlock().await?; // or just drop it
//!
//! let busy = lock.try_lock().wait(Duration::from_secs(1)).await?.is_none();
//! # Ok(())
//! # }
//! ```
//!
//! # Words
//!
//! A *lock* is a name on a server. An *owner*, as a rule a tokio task, *holds* it: its *hold* counts
//! how often it acquired the lock. Redis keeps a hold for a *lease*; the client's *watchdog* renews
//! the lease of a hold that was acquired without one. A *guard* stands for one acquire. A hold that
//! is gone against its owner's will is *lost*.

#[macro_use]
mod mutant;

mod client;
mod clock;
mod error;
mod guard;
mod hold;
mod key;
mod lease;
mod lock;
mod owner;
mod script;
mod server;
mod session;
#[cfg(test)]
mod simulation;
mod wait;
mod watchdog;

pub use client::{Client, ClientBuilder, ShutdownReport};
pub use error::{Error, Lost, LostReason, NotHeld, Result, UnlockUnconfirmed};
pub use guard::{Guard, Held};
pub use lock::{
    ForceUnlockRequest, HoldInfo, HolderInfo, Lock, LockRequest, TryLockRequest, Ttl, UnlockRequest,
};
pub use owner::Owner;
pub use session::Unlocked;
pub use wait::{Backoff, Wake};
