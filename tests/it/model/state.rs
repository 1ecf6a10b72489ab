//! Who holds one lock with what count: the small model that the real thing is compared with.

/// One owner, as it sees itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Own {
    pub(super) guards: u32,
    pub(super) forgotten: u32,
    /// Redis has it no more, whether or not its owner has been told.
    pub(super) gone: bool,
    /// Forgotten claims of a hold that is gone: they may have been cleared away already.
    pub(super) ghost: bool,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Model {
    pub(super) owners: [Own; 3],
}

/// What an acquire must come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Acquired {
    Guard,
    Busy,
    Lost,
}

/// What an unlock must come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    Released,
    StillHeld(u32),
    Lost,
    NotHeld,
    /// `Lost` or `NotHeld`: the background may or may not have seen to it yet.
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
            // Of a lost hold it says either, as the client knows of the loss already or not.
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

    /// The key goes: it expires, is deleted, or freed by force.
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
