//! The work for other callers continues whatever one future or one runtime does (design: invariant 14).

mod outage;
mod outside;
mod refused;
mod two;
mod unpolled;

use std::pin::Pin;

use crate::support::eventually;
use crate::support::prelude::{SOON, ms};

/// Polls a future whenever it is woken until `then` holds, and then abandons it. The future must not
/// complete.
async fn poll_until<F: Future + ?Sized>(mut future: Pin<&mut F>, then: impl Fn() -> bool) {
    tokio::select! {
        biased;
        () = eventually(SOON, "the future got to its point", async || then()) => {}
        _ = future.as_mut() => panic!("it ended before"),
    }
}
