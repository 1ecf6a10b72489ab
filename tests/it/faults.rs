//! Faults of the network and of the server, as callers see them: an answer that never comes, a command that
//! arrives twice, a dropped future, a server that refuses.

mod bad_input;
mod cancelled;
mod half_open;
mod hand_over;
mod holders;
mod lost_replies;
mod messages;
mod nemesis;
mod no_room;
mod passing_states;
mod planted;
pub(crate) mod poll;
mod refusals;
mod relock;
mod repeated;
pub(crate) mod scripts;
mod stand;
mod too_late;
mod unheard;
mod unpolled;
mod waits;

use std::time::Duration;

/// As the prelude's, but below the default lease of 30 s, so a lock that is free by then was released.
const SOON: Duration = Duration::from_secs(10);
