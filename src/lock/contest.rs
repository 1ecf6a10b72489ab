//! A waiter's place in the queue, and what it remembers while it waits.

use std::sync::Arc;

use super::beside::Beside;
use crate::clock::Moment;
use crate::hold::Hold;
use crate::session::{Acquiring, Claim, Session};
use crate::wait::Place;

/// A place in the queue. Left while the lock is being handed to it, it gives that back.
pub(super) struct Seat<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) place: Place,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(handed) = self.place.decline()
            && !mutant!("declined_grant_stays")
        {
            drop(Acquiring::handed(self.session, handed));
        }
    }
}

/// What a look at the lock came to.
pub(super) enum Step {
    Acquired(Claim),
    Again,
    /// Look again at this moment, or when told.
    Wait(Moment),
}

/// What a waiter remembers from one look to the next.
#[derive(Default)]
pub(super) struct Contest {
    /// It has had its look, however short its wait is.
    pub(super) looked: bool,
    /// When this call last knew, somebody else had the lock or was before it in the queue.
    pub(super) is_busy: bool,
    /// An acquire that was answered with a clear no, to be sent again.
    pub(super) spare: Option<Acquiring>,
    /// A subscription could not be had.
    pub(super) is_deaf: bool,
    pub(super) attempts: u32,
    /// Since when a release by this client itself is waited for.
    pub(super) release_awaited: Option<Moment>,
    pub(super) beside: Beside,
    /// The hold of the last attempt, if it was granted after its own deadline.
    pub(super) too_late: Option<Arc<Hold>>,
}
