//! What ended the wait of a call that then acquires, for observers.

use super::Contender;
use super::contest::Contest;
use crate::observe::{ClientEvent, WokenBy};

impl<C: Contender> Contest<C> {
    /// Notes what ended the wait that is just over.
    pub(super) fn note_wake_up(&mut self) {
        let by = match &self.place {
            Some(place) => place.waiter.woken_by(),
            None => WokenBy::Timer,
        };
        self.woken_by = Some(match by {
            WokenBy::Timer if !self.awaits_message => WokenBy::Pause,
            by => by,
        });
    }

    pub(super) fn notify_woken(&self) {
        let (Some(by), Some(lock)) = (self.woken_by, self.contender.shown()) else {
            return;
        };
        let observers = self.contender.observers();
        observers.notify(|| ClientEvent::Woken { lock, by });
    }
}
