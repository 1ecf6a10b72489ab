//! The locks of a multi lock, checked and sorted.

use std::num::NonZeroU64;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use crate::error::{Error, Instance, InstanceState, Result};
use crate::hold::{Hold, HoldPhase};
use crate::key::{LockKey, QueueSide};
use crate::lock::Lock;
use crate::observe::LockRef;
use crate::owner::Owner;
use crate::session::{Core, Session};
use crate::slot::slot;
use crate::wait::Backoff;

/// The members, sorted by client, slot of a cluster, and name. In a slot, those that need a command of their own
/// come last. So every multi lock of this process with the same members has the same order. One command acquires
/// all members of one client whose kinds share an acquire script. On a cluster (also behind one address) it
/// acquires only members of one slot.
pub(super) struct MemberGroups {
    list: Vec<LockMember>,
    groups: Vec<Range<usize>>,
}

/// One member.
#[derive(Clone)]
pub(super) struct LockMember {
    pub(super) session: Arc<Session>,
    pub(super) key: Arc<LockKey>,
    /// Its handle's own pauses.
    own_backoff: Option<Backoff>,
    /// Its position in the list that the caller gave.
    pub(super) given: usize,
}

impl MemberGroups {
    pub(super) fn of(locks: &[Lock]) -> Result<Self> {
        let member = |(given, lock): (usize, &Lock)| {
            let key = lock.key().map_err(|error| error.in_lock(given))?;
            Ok(LockMember {
                session: lock.session().clone(),
                key: key.clone(),
                own_backoff: lock.own_backoff(),
                given,
            })
        };
        let list: Result<Vec<LockMember>> = locks.iter().enumerate().map(member).collect();
        let mut list = list?;
        if list.is_empty() {
            return Err(Error::no_locks());
        }
        list.sort_by(|one, other| one.order().cmp(&other.order()));
        if let Some(pair) = list
            .windows(2)
            .find(|pair| pair[0].order() == pair[1].order())
        {
            return Err(Error::same_lock(pair[0].key.name()));
        }
        // Members with a command of their own come last, so that they do not separate those that share one.
        list.sort_by_key(LockMember::rank);
        Ok(Self::grouped(list))
    }

    fn grouped(list: Vec<LockMember>) -> Self {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (at, member) in list.iter().enumerate() {
            match groups.last_mut() {
                Some(last) if list[last.start].may_share_a_command(member) => last.end = at + 1,
                _ => groups.push(at..at + 1),
            }
        }
        Self { list, groups }
    }

    /// The same members in new groups, if a server has reported since that it does not accept some of
    /// them in one command.
    pub(super) fn regrouped(&self) -> Option<Self> {
        let is_together = |group: &Range<usize>| {
            let mut pairs = self.list[group.clone()].windows(2);
            pairs.all(|pair| pair[0].may_share_a_command(&pair[1]))
        };
        let is_current = self.groups.iter().all(is_together);
        (!is_current).then(|| Self::grouped(self.list.clone()))
    }

    /// The multi lock as one lock, for observers.
    pub(super) fn shown<'a>(&'a self, name: &'a str, owner: Owner) -> LockRef<'a> {
        let keys = self.list.iter().map(|member| &*member.key);
        LockRef::of_several(name, "multi lock", keys, owner)
    }

    /// The member that the caller gave first.
    pub(super) fn first(&self) -> &LockMember {
        let first = self.list.iter().min_by_key(|member| member.given);
        first.unwrap_or(&self.list[0])
    }

    pub(super) fn list(&self) -> &[LockMember] {
        &self.list
    }

    /// The members that one command acquires, as ranges of the list. There is at least one group.
    pub(super) fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    pub(super) fn group_of(&self, member: usize) -> usize {
        let found = self.groups.iter().position(|group| group.contains(&member));
        found.unwrap_or_default()
    }

    /// Adds to an error the names of the members that it is about: one, or a whole group.
    pub(super) fn about(&self, members: Range<usize>, error: Error) -> Error {
        let members = &self.list[members];
        let names: Vec<String> = members
            .iter()
            .map(|member| format!("{:?}", member.key.name()))
            .collect();
        let server = members.first().map(LockMember::server).unwrap_or_default();
        error.of_part(&names.join(","), &server)
    }
}

impl LockMember {
    pub(super) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }

    /// Whether its waiters are in a queue on the server.
    pub(super) fn has_server_queue(&self) -> bool {
        self.key.kind().queue == QueueSide::Server
    }

    /// The pauses between two attempts; `None` if messages announce its release.
    pub(super) fn backoff(&self) -> Option<Backoff> {
        let own = self.own_backoff;
        own.or_else(|| self.core().backoff(&self.key))
    }

    /// Equal for two members that are one lock on the server.
    fn order(&self) -> (uuid::Uuid, &str) {
        (self.core().id, self.key.key())
    }

    /// Members that share a command are adjacent in the list.
    fn rank(&self) -> (uuid::Uuid, u16, bool) {
        let core = self.core();
        let slot = if core.server.is_cluster() {
            slot(self.key.key())
        } else {
            0
        };
        let is_alone = self.key.kind().scripts.acquire_all.is_none();
        (core.id, slot, is_alone)
    }

    fn may_share_a_command(&self, other: &Self) -> bool {
        let (core, key) = (self.core(), self.key.key());
        let script = |member: &Self| member.key.kind().scripts.acquire_all.map(ptr::from_ref);
        core.id == other.core().id
            && script(self).is_some()
            && script(self) == script(other)
            && core.server.may_share(key, other.key.key())
    }

    /// Adds this member's name and server to an error.
    pub(super) fn about(&self, error: Error) -> Error {
        error.of_part(&format!("{:?}", self.key.name()), &self.server())
    }

    fn server(&self) -> String {
        self.core().server.address()
    }

    /// The state of this member in the whole lock, now or when the whole hold ended. `hold` is its
    /// hold.
    pub(super) fn instance(&self, hold: &Hold, is_over: bool) -> Instance {
        let now = self.core().clock.now();
        let state = hold.state();
        let (is_held, is_ended) = (state.is_valid(now), state.phase == HoldPhase::Ended);
        let token = state.token.map(NonZeroU64::get);
        drop(state);
        Instance {
            lock: self.key.name().to_owned(),
            server: self.server(),
            state: match (is_held, is_ended) {
                (true, false) if !is_over => InstanceState::Acquired,
                (true, _) | (_, true) => InstanceState::GivenBack,
                (false, false) => InstanceState::Lost,
            },
            token,
        }
    }
}
