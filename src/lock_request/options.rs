//! The options of an acquire.

use std::time::Duration;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::hold::Terms;
use crate::key::LockKey;
use crate::lease;
use crate::owner::Owner;
use crate::session::{ClientSettings, Reentry};

/// The options that a caller set for an acquire. [`AcquireOptions::terms`] checks them and adds the
/// client's settings for the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AcquireOptions {
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) owner: OwnerChoice,
    pub(crate) reentry: Option<Reentry>,
}

/// The owner that acquires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum OwnerChoice {
    /// The current owner at the first poll.
    #[default]
    Current,
    /// A new owner for each acquire, so that none re-enters.
    New,
    Given(Owner),
}

impl AcquireOptions {
    pub(super) fn of(owner: OwnerChoice) -> Self {
        Self {
            owner,
            ..Self::default()
        }
    }

    /// The owner that acquires, the same at each call. Called at the first poll of an acquire. Fails outside a
    /// tokio runtime.
    pub(crate) fn owner(&mut self) -> Result<Owner> {
        ensure_runtime()?;
        let owner = match self.owner {
            OwnerChoice::Current => Owner::current(),
            OwnerChoice::New => Owner::new(),
            OwnerChoice::Given(owner) => owner,
        };
        self.owner = OwnerChoice::Given(owner);
        Ok(owner)
    }

    /// As [`AcquireOptions::terms`], for one lock, which may keep its key after its end.
    pub(crate) fn terms_of(&self, key: &LockKey, settings: &ClientSettings) -> Result<Terms> {
        let Some(at_least) = self.hold_at_least else {
            return self.terms(settings);
        };
        let refuse = |why: &str| Err(Error::invalid(HOLD_AT_LEAST, why.to_owned()));
        lease::check_lease(HOLD_AT_LEAST, at_least, settings.max_lease)?;
        if self.max_hold.is_some_and(|max_hold| max_hold < at_least) {
            return refuse("it must not be longer than max_hold");
        }
        if !key.ends_with_its_hold() {
            return refuse("not supported for read/write locks and locks of a group");
        }
        let others = Self {
            hold_at_least: None,
            ..*self
        };
        let terms = others.terms(settings)?;
        Ok(Terms {
            // So the lock stays for this time even if the client dies.
            lease: terms.lease.max(lease::whole_or_more(at_least)),
            local: false,
            at_least: Some(at_least),
            ..terms
        })
    }

    /// The terms of the acquire for a client with these settings. Checks all options, because nothing may
    /// be sent for an invalid request.
    pub(crate) fn terms(&self, settings: &ClientSettings) -> Result<Terms> {
        if self.hold_at_least.is_some() {
            let why = "not supported for a lock of several locks".to_owned();
            return Err(Error::invalid(HOLD_AT_LEAST, why));
        }
        if let Some(lease) = self.lease {
            lease::check_lease("lease", lease, settings.max_lease)?;
        }
        if let Some(max_hold) = self.max_hold {
            lease::check("max_hold", max_hold, Duration::MAX)?;
        }
        let lease = self.lease.unwrap_or(settings.watchdog_lease);
        let reentry = self.reentry.unwrap_or(settings.reentry);
        Ok(Terms {
            lease: lease::whole(lease.min(self.max_hold.unwrap_or(lease))),
            watched: self.lease.is_none(),
            max_hold: self.max_hold,
            local: reentry == Reentry::Local && self.max_hold.is_none(),
            at_least: None,
        })
    }
}

const HOLD_AT_LEAST: &str = "hold_at_least";
