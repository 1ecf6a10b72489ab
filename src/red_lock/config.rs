//! What the handles and requests of one lock share.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::Rules;

use super::lock_instance::LockInstance;
use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};
use crate::hold::Terms;
use crate::key::LockKey;
use crate::lease;
use crate::lock::Lock;
use crate::lock_request::AcquireOptions;
use crate::observe::{LockRef, Observers};
use crate::owner::Owner;

/// What the handles and requests of one lock share.
#[derive(Clone)]
pub(crate) struct RedLockConfig {
    /// In the order in which the caller gave them.
    pub(super) locks: Arc<[Lock]>,
    /// Sorted by client and name.
    instances: Arc<[LockInstance]>,
    /// For each given lock, in order, its index in `instances`.
    pub(super) given: Arc<[usize]>,
    /// Invalid locks are reported by each request.
    pub(super) refused: Option<Error>,
    pub(super) name: Arc<str>,
    /// Identifies this lock among all locks of this process.
    pub(super) id: Arc<str>,
    /// The key of its queue.
    pub(super) queue: Arc<LockKey>,
    pub(super) masked: usize,
    pub(super) fenced: bool,
    pub(super) max_lease: Duration,
    pub(super) min_validity: Duration,
}

impl RedLockConfig {
    pub(super) fn new(locks: Vec<Lock>) -> Self {
        let mut refused = None;
        let mut instances = Vec::with_capacity(locks.len());
        for (waiter, lock) in locks.iter().enumerate() {
            match lock.key() {
                Ok(key) => instances.push((
                    waiter,
                    LockInstance::new(lock.session().clone(), key.clone(), lock.own_backoff()),
                )),
                Err(error) => {
                    refused.get_or_insert_with(|| error.in_lock(waiter));
                }
            }
        }
        instances.sort_by(|(_, one), (_, other)| one.waiter().cmp(&other.waiter()));
        let mut pairs = instances.windows(2);
        if locks.is_empty() {
            refused = Some(Error::no_locks());
        } else if let Some(pair) = pairs.find(|pair| pair[0].1.is(&pair[1].1)) {
            refused.get_or_insert_with(|| Error::same_lock(pair[0].1.key().name()));
        } else if let Some((place, error)) =
            (instances.iter()).find_map(|(place, it)| Some((*place, refusal(it.key())?)))
        {
            refused.get_or_insert_with(|| error.in_lock(place));
        } else if !run_together(&instances) {
            let why = "all their clients must use the same clock, but some use the machine's and \
                       some tokio's, or that of another runtime";
            refused.get_or_insert_with(|| Error::invalid("locks", why.to_owned()));
        }
        let mut given: Vec<usize> = (0..instances.len()).collect();
        given.sort_by_key(|instance| instances[*instance].0);
        let mut names: Vec<&str> = Vec::new();
        for lock in &locks {
            if !names.contains(&lock.name()) {
                names.push(lock.name());
            }
        }
        Self {
            instances: instances
                .into_iter()
                .map(|(_, instance)| instance)
                .collect(),
            given: given.into(),
            refused,
            name: names.join(", ").into(),
            locks: locks.into(),
            id: "".into(),
            queue: Arc::new(LockKey::of_several("")),
            masked: 0,
            fenced: false,
            max_lease: DEFAULT_MAX_LEASE,
            min_validity: Duration::ZERO,
        }
    }

    /// With the id that follows from its settings.
    pub(super) fn identified(mut self) -> Self {
        let mut id = format!("{}{}", self.masked, if self.fenced { "!" } else { "" });
        for instance in &*self.instances {
            let (client, key) = (instance.core().id, instance.key());
            // Locks of different kinds under the same keys are different locks.
            id.push_str(&format!(" {client} {:?} {:?}", key.kind(), key.key()));
        }
        self.queue = Arc::new(LockKey::of_several(&id));
        self.id = id.into();
        self
    }

    pub(super) fn instances(&self) -> &[LockInstance] {
        &self.instances
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    pub(super) fn longest_lease(&self) -> Duration {
        self.max_lease
    }

    /// The instance that the caller gave first. Its client is used for work that one client can do for all, such as
    /// clock and events.
    pub(super) fn home_instance(&self) -> &LockInstance {
        &self.instances[self.given[0]]
    }

    /// The lock as one, for observers.
    pub(super) fn shown(&self, owner: Owner) -> LockRef<'_> {
        let keys = self.instances.iter().map(|instance| &**instance.key());
        LockRef::of_several(&self.name, "red lock", keys, owner)
    }

    pub(super) fn observers(&self) -> &Observers {
        self.home_instance().core().observers()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.home_instance().core().clock
    }

    pub(super) fn rules(&self, terms: &Terms, max_until: Moment) -> Rules {
        let members = self.instances.len();
        Rules {
            members,
            need: Rules::need(members, self.masked),
            reads: if self.fenced {
                Rules::reads(members, self.masked)
            } else {
                0
            },
            lease: terms.lease,
            renewed: terms.watched,
            min_validity: self.min_validity,
            max_until,
        }
    }

    /// The terms of a request for this lock. Checks everything that can be checked before a command is
    /// sent.
    pub(super) fn terms(&self, options: &AcquireOptions) -> Result<Terms> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let members = self.instances.len();
        if Rules::need(members, self.masked) > members {
            let why = format!("too many for {members} instances, got={}", self.masked);
            return Err(Error::invalid("masking", why));
        }
        lease::check("max_lease", self.max_lease, Duration::MAX)?;
        let mut shortest: Option<Terms> = None;
        for instance in self.instances() {
            let terms = options.terms(&instance.core().settings)?;
            if shortest.is_none_or(|found| terms.lease < found.lease) {
                shortest = Some(terms);
            }
        }
        let terms = shortest.ok_or(Error::Closed)?;
        if terms.watched && terms.lease > self.max_lease {
            let (got, most) = (terms.lease, self.max_lease);
            let why = format!("it must be at most RedLock::max_lease={most:?}, got={got:?}");
            return Err(Error::invalid("watchdog_lease", why));
        }
        lease::check_lease("lease", terms.lease, self.max_lease)?;
        let gone = self.min_validity.saturating_add(lease::drift(terms.lease));
        if gone >= terms.lease {
            let why = format!(
                "it must be less than the lease={:?} minus 1 % and 2 ms for clock drift, got={:?}",
                terms.lease, self.min_validity
            );
            return Err(Error::invalid("min_validity", why));
        }
        Ok(terms)
    }

    /// An error if too many of its clients were shut down, so that no quorum is left.
    pub(super) fn ensure_open(&self) -> Result<()> {
        let open = self
            .instances
            .iter()
            .filter(|instance| instance.core().ensure_open().is_ok());
        if open.count() < Rules::need(self.instances.len(), self.masked) {
            return Err(Error::Closed);
        }
        Ok(())
    }
}

/// Why a lock with this key cannot be an instance.
fn refusal(key: &LockKey) -> Option<Error> {
    let name = key.name();
    if !key.kind().reentrant {
        Some(Error::not_reentrant(name))
    } else if key.server_queue().is_some() {
        Some(Error::has_server_queue(name))
    } else if key.counter().is_some() {
        Some(Error::own_tokens(name))
    } else if key.mode().is_some() {
        Some(Error::has_mode(name))
    } else if !key.values().is_empty() {
        Some(Error::has_values(name))
    } else {
        None
    }
}

/// Whether all clients share one clock. The deadlines of the whole lock are also used for its instances.
fn run_together(instances: &[(usize, LockInstance)]) -> bool {
    let mut instances = instances.iter().map(|(_, instance)| &instance.core().clock);
    let first = instances.next();
    first.is_none_or(|first| instances.all(|clock| clock.runs_with(first)))
}

const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(120);
