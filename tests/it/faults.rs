//! Faults of the network and of the server, as callers see them: an answer that never comes, a command that
//! arrives twice, a dropped future, a server that refuses.

mod bad_input;
mod batches;
mod cancelled;
mod fixture;
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
mod too_late;
mod unanswered;
mod unpolled;
mod waits;

use crate::support::prelude::WITHIN_A_LEASE as SOON;
