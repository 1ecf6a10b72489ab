//! The model: who holds one lock with which count.

/// The state of one owner.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Own {
    pub(super) guards: u32,
    pub(super) forgotten: u32,
    /// The hold is gone in Redis, whether or not its owner was notified.
    pub(super) gone: bool,
    /// Forgotten claims of a hold that is gone. The client may have removed them already.
    pub(super) ghost: bool,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Model {
    pub(super) owners: [Own; 3],
}

/// The required outcome of an acquire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Acquired {
    Guard,
    Busy,
    Lost,
}

/// The required outcome of an unlock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    Released,
    StillHeld(u32),
    Lost,
    NotHeld,
    /// `Lost` or `NotHeld`, depending on whether the background has already processed the loss.
    Nothing,
}

impl Own {
    pub(super) fn count(&self) -> u32 {
        self.guards + self.forgotten
    }

    fn holds(&self) -> bool {
        self.count() > 0 && !self.gone
    }

    /// A hold that is gone and has no guard left is forgotten for good.
    fn tidy(&mut self) {
        if self.gone && self.guards == 0 {
            *self = Self {
                ghost: self.forgotten > 0 || self.ghost,
                ..Self::default()
            };
        }
    }
}

impl Model {
    /// The holder in Redis and its count.
    pub(super) fn holder(&self) -> Option<(usize, u32)> {
        let holder = self.owners.iter().position(Own::holds)?;
        Some((holder, self.owners[holder].count()))
    }

    pub(super) fn acquire(&mut self, owner: usize) -> Acquired {
        let free = self.holder().is_none();
        let own = &mut self.owners[owner];
        if own.guards > 0 && own.gone {
            return Acquired::Lost;
        }
        if !free && !own.holds() {
            return Acquired::Busy;
        }
        own.guards += 1;
        Acquired::Guard
    }

    /// Ends the newest guard of an owner that has one.
    pub(super) fn unlock(&mut self, owner: usize) -> Ended {
        let own = &mut self.owners[owner];
        own.guards -= 1;
        own.ended()
    }

    pub(super) fn unlock_forgotten(&mut self, owner: usize) -> Ended {
        let own = &mut self.owners[owner];
        if own.forgotten == 0 {
            // A lost hold gives either error, depending on whether the client knows of the loss.
            return if (own.ghost && own.guards == 0) || (own.gone && own.guards > 0) {
                Ended::Nothing
            } else {
                Ended::NotHeld
            };
        }
        own.forgotten -= 1;
        own.ended()
    }

    pub(super) fn forget(&mut self, owner: usize) {
        let own = &mut self.owners[owner];
        own.guards -= 1;
        own.forgotten += 1;
        own.tidy();
    }

    /// The key is removed: it expires, is deleted, or is freed by force.
    pub(super) fn vanish(&mut self) {
        if let Some((holder, _)) = self.holder() {
            self.owners[holder].gone = true;
            self.owners[holder].tidy();
        }
    }
}

impl Own {
    fn ended(&mut self) -> Ended {
        if self.gone {
            self.tidy();
            return Ended::Lost;
        }
        match self.count() {
            0 => Ended::Released,
            count => Ended::StillHeld(count),
        }
    }
}
