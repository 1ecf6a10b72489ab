//! The state of a lock on one client, as far as that client knows.

use std::borrow::Cow;
use std::sync::Arc;

use super::holds_of_key::HoldGroup;
use super::{Hold, HoldPhase, Holds};
use crate::clock::Moment;
use crate::error::{Lost, LostReason};
use crate::key::{LockKey, Mode};
use crate::owner::Owner;

/// An owner's relation to a lock.
pub(crate) enum OwnerState {
    /// An acquire of this owner is in flight.
    Acquiring,
    /// It holds the lock: a further acquire is a re-entry.
    Holding(Arc<Hold>),
    /// It held the lock, but the lock is gone. The loss has to be reported. It has a living guard, unless only
    /// forgotten claims are left.
    Lost(Arc<Hold>, Lost),
    Nothing,
}

/// What this client has on a lock.
#[derive(Clone, Copy, Default)]
pub(crate) struct LocalHolds {
    /// This client has holds on the lock, in any state.
    pub(crate) has_holds: bool,
    /// Until when this client keeps the lock, as far as it knows.
    pub(crate) kept_until: Option<Moment>,
    /// A hold was ended to release the lock, and Redis has not answered yet.
    pub(crate) releasing: bool,
}

impl Holds {
    /// The relation of `owner` to the lock.
    pub(crate) fn owner_state(&self, key: &LockKey, owner: Owner) -> OwnerState {
        let now = self.clock.now();
        let Some(hold) = self.of_owner(key, owner) else {
            return OwnerState::Nothing;
        };
        let valid = hold.state().is_valid(now);
        if valid {
            return OwnerState::Holding(hold);
        }
        // Under one mutex, because a re-entry may be granted at the same time.
        let phase = self.change(&hold, |state| {
            state.expire(now);
            state.phase
        });
        match phase {
            HoldPhase::Pending => OwnerState::Acquiring,
            HoldPhase::Held | HoldPhase::Jeopardy => OwnerState::Holding(hold),
            HoldPhase::Lost(reason) => {
                let lost = hold.lost_as(reason, now);
                OwnerState::Lost(hold, lost)
            }
            HoldPhase::Ended => OwnerState::Nothing,
        }
    }

    /// The newest hold of `owner` that has not ended.
    pub(crate) fn of_owner(&self, key: &LockKey, owner: Owner) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        table.by_key.get(key)?.of_owner(owner).cloned()
    }

    /// The holds of `owner` whose acquires are in flight. The call scans all pending holds on the lock.
    pub(crate) fn pending_of(&self, key: &LockKey, owner: Owner) -> Vec<Arc<Hold>> {
        let table = self.table.lock();
        let Some(holds) = table.by_key.get(key) else {
            return Vec::new();
        };
        let pending = holds.of(HoldGroup::Pending);
        let is_of = |hold: &&Arc<Hold>| hold.owner() == owner;
        pending.filter(is_of).cloned().collect()
    }

    /// The oldest hold with forgotten claims.
    pub(crate) fn with_forgotten(&self, key: &LockKey) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        table.by_key.get(key)?.with_forgotten().cloned()
    }

    /// The hold with this number, the one in its field, if it is still listed.
    pub(crate) fn numbered(&self, key: &LockKey, number: u64) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        table.by_key.get(key)?.numbered(number).cloned()
    }

    /// As [`Holds::numbered`], on any values of the lock's group. The call scans all locks of the client.
    pub(crate) fn numbered_in_group(&self, key: &LockKey, number: u64) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        let mut of_group = (table.by_key.iter())
            .filter(|(lock, _)| !lock.values().is_empty() && lock.key() == key.key());
        let found = of_group.find_map(|(_, holds)| holds.numbered(number));
        found.cloned()
    }

    /// What this client has on the lock, for `owner`, which wants to acquire it.
    pub(crate) fn local_holds(&self, key: &LockKey, owner: Owner) -> LocalHolds {
        if let Cow::Owned(writer) = key.queue_key() {
            return self.local_holds_of_reader(key, &writer, owner);
        }
        let table = self.table.lock();
        let Some(holds) = table.by_key.get(key) else {
            return LocalHolds::default();
        };
        let now = self.clock.now();
        let deadline_of = |hold: &Arc<Hold>| {
            let state = hold.state();
            state.is_valid(now).then_some(state.deadline)
        };
        LocalHolds {
            has_holds: true,
            kept_until: holds.of(HoldGroup::Living).filter_map(deadline_of).max(),
            releasing: holds
                .of(HoldGroup::Ended)
                .any(|hold| hold.state().is_releasing()),
        }
    }

    /// As [`Holds::local_holds`], for a read lock: only another owner that writes keeps a reader out. A reader
    /// does not wait for the release of another reader.
    fn local_holds_of_reader(&self, key: &LockKey, writer: &LockKey, owner: Owner) -> LocalHolds {
        // Unlocked before the other queries lock the table.
        let has_holds = self.table.lock().by_key.contains_key(key);
        LocalHolds {
            has_holds,
            kept_until: self.kept_from(writer, owner),
            releasing: self.releasing(key).is_some(),
        }
    }

    /// The valid hold of `owner` on the same read/write lock in the other mode.
    pub(crate) fn partner_of(&self, key: &LockKey, owner: Owner) -> Option<Arc<Hold>> {
        let hold = self.of_owner(&key.partner()?, owner)?;
        let is_valid = hold.state().is_valid(self.clock.now());
        is_valid.then_some(hold)
    }

    /// A valid hold of `owner` on another lock of the same group that has a value in common with this lock.
    pub(crate) fn overlapping(&self, key: &LockKey, owner: Owner) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        let now = self.clock.now();
        let others = table.by_value.overlapping(key);
        let holds = others.filter_map(|other| table.by_key.get(&**other));
        let mut living = holds.flat_map(|holds| holds.of(HoldGroup::Living));
        let is_own = |hold: &&Arc<Hold>| hold.owner() == owner && hold.state().is_valid(now);
        living.find(is_own).cloned()
    }

    /// Whether the lock is a read lock whose owner writes: that owner need not wait for others.
    pub(crate) fn reads_own_write(&self, key: &LockKey, owner: Owner) -> bool {
        key.mode() == Some(Mode::Read) && self.partner_of(key, owner).is_some()
    }

    /// Until when other owners of this client keep the lock, as far as the client knows; `None` if none
    /// does, or if `owner` has it.
    pub(crate) fn kept_from(&self, key: &LockKey, owner: Owner) -> Option<Moment> {
        let table = self.table.lock();
        let now = self.clock.now();
        let mut kept = None;
        for hold in table.by_key.get(key)?.of(HoldGroup::Living) {
            let state = hold.state();
            if state.is_valid(now) {
                if hold.owner() == owner {
                    return None;
                }
                kept = kept.max(Some(state.deadline));
            }
        }
        kept
    }

    /// A hold of another owner that keeps the lock, as far as this client knows.
    pub(crate) fn of_another(&self, key: &LockKey, owner: Owner) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        let now = self.clock.now();
        let keeps = |hold: &&Arc<Hold>| hold.owner() != owner && hold.state().is_valid(now);
        key.conflicting().find_map(|other| {
            let mut living = table.by_key.get(&*other)?.of(HoldGroup::Living);
            living.find(keeps).cloned()
        })
    }

    /// The newest hold that was ended to release the lock and has no answer yet, or a hold of a semaphore some
    /// of whose permits are being released.
    pub(crate) fn releasing(&self, key: &LockKey) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        key.conflicting().find_map(|other| {
            let holds = table.by_key.get(&*other)?;
            let mut ended = holds.of(HoldGroup::Ended);
            let releasing = ended.find(|hold| hold.state().is_releasing());
            releasing.or_else(|| holds.lowering()).cloned()
        })
    }

    /// Redis granted the lock to `granted`, so every other hold on it that this client considers valid
    /// is lost. Returns those holds. Their guards are notified, but the losses are not logged yet.
    pub(crate) fn supersede(&self, granted: &Arc<Hold>) -> Vec<Arc<Hold>> {
        let mut others = Vec::new();
        let table = self.table.lock();
        let key = granted.key();
        for other in key.conflicting() {
            let Some(holds) = table.by_key.get(&*other) else {
                continue;
            };
            let is_same = *other == **key;
            let is_other = |hold: &&Arc<Hold>| match is_same {
                true => !Arc::ptr_eq(hold, granted),
                // A reader may write as well, and a writer may read.
                false => hold.owner() != granted.owner(),
            };
            others.extend(holds.of(HoldGroup::Living).filter(is_other).cloned());
        }
        drop(table);
        others.retain(|other| self.change(other, |state| state.lose(LostReason::NotOurs)));
        others
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::clock::testing::ShiftedClock;
    #[cfg(target_os = "linux")]
    use crate::clock::testing::cpu_time;
    use crate::hold::{ClaimFlags, HoldState, Terms};
    use crate::key::{Value, kind};

    const FLAGS: ClaimFlags = ClaimFlags {
        watched: false,
        local: false,
        part: false,
        weight: 1,
    };

    fn held(holds: &Holds, key: &Arc<LockKey>) -> Arc<Hold> {
        let hold = holds.enter(key, Owner::new());
        grant(holds, &hold);
        hold
    }

    fn grant(holds: &Holds, hold: &Arc<Hold>) {
        let now = holds.clock.now();
        let terms = Terms::new(Duration::from_secs(10), true);
        holds.change(hold, |state| state.grant(now, &terms, now));
    }

    #[test]
    fn a_reader_waits_for_the_release_of_a_writer_and_not_of_a_reader() {
        let holds = Holds::new(Clock::default(), false);
        let [reads, writes] = [&kind::READ, &kind::WRITE]
            .map(|kind| Arc::new(LockKey::new(kind, "l", None).unwrap()));
        for (released, waits) in [(&reads, false), (&writes, true)] {
            let hold = held(&holds, released);
            holds.change(&hold, HoldState::end);
            assert!(holds.releasing(&writes).is_some());
            let seen = holds.local_holds(&reads, Owner::new());
            assert_eq!(seen.releasing, waits, "{released:?}");
            holds.remove(&hold);
        }
    }

    #[test]
    fn a_superseded_hold_is_returned_once() {
        let holds = Holds::new(Clock::default(), false);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let (old, new) = (held(&holds, &key), held(&holds, &key));
        let gone = holds.supersede(&new);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0], &old));
        assert!(holds.supersede(&new).is_empty());
    }

    /// How long it takes until this many owners have tried to acquire one lock at the same time, and
    /// the one that got it has released it.
    #[cfg(target_os = "linux")]
    fn trying(owners: usize) -> Duration {
        let holds = Holds::new(Clock::default(), false);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let look = |owner| {
            assert!(matches!(
                holds.owner_state(&key, owner),
                OwnerState::Nothing
            ));
            assert!(holds.releasing(&key).is_none());
            assert!(!holds.local_holds(&key, Owner::new()).releasing);
            assert!(holds.kept_from(&key, owner).is_none());
        };
        let began = cpu_time();
        let mut tried: Vec<Arc<Hold>> = Vec::new();
        for _ in 0..owners {
            let owner = Owner::new();
            look(owner);
            tried.push(holds.enter(&key, owner));
        }
        for hold in &tried {
            grant(&holds, hold);
            assert!(holds.supersede(hold).is_empty());
            assert!(holds.numbered(&key, hold.number()).is_some());
            assert!(holds.of_owner(&key, hold.owner()).is_some());
            holds.change(hold, HoldState::end);
            assert!(
                holds.releasing(&key).is_some() && holds.local_holds(&key, Owner::new()).releasing
            );
            assert!(holds.kept_from(&key, hold.owner()).is_none());
        }
        while let Some(hold) = tried.pop() {
            holds.remove(&hold);
            holds.change(&hold, HoldState::end);
        }
        cpu_time() - began
    }

    /// How long it takes to release this many forgotten acquires, while there are as many older holds.
    #[cfg(target_os = "linux")]
    fn giving_back(acquires: usize) -> Duration {
        let holds = Holds::new(Clock::default(), false);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let _kept: Vec<Arc<Hold>> = (0..acquires).map(|_| held(&holds, &key)).collect();
        let now = holds.clock.now();
        for _ in 0..acquires {
            let hold = held(&holds, &key);
            holds.change(&hold, |state| state.forget_claim(FLAGS, now));
        }
        let began = cpu_time();
        let mut last = 0;
        while let Some(hold) = holds.with_forgotten(&key) {
            assert!(hold.number() > last, "the oldest one is first");
            last = hold.number();
            let taken = holds.change(&hold, |state| state.take_forgotten(1));
            assert!(taken.is_some());
        }
        assert_eq!(last as usize, 2 * acquires);
        cpu_time() - began
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_cost_of_releasing_many_forgotten_acquires_is_linear() {
        let quickest = |acquires| (0..3).map(|_| giving_back(acquires)).min().unwrap();
        let [few, many] = [500, 5_000].map(quickest);
        println!("500 released in {few:?}, 5,000 in {many:?}");
        // As above.
        assert!(many < few * 35, "{few:?} and {many:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_cost_of_many_attempts_is_linear() {
        // The fastest of three runs: the first run pays for allocating the memory.
        let quickest = |owners| (0..3).map(|_| trying(owners)).min().unwrap();
        let [few, many] = [500, 5_000].map(quickest);
        println!("500 tried in {few:?}, 5,000 in {many:?}");
        // Ten times as many owners take ten times as long, and a little more for the depth of the
        // trees. When each query went through all owners, it was a hundred times.
        assert!(many < few * 35, "{few:?} and {many:?}");
    }

    fn of_values<const N: usize>(group: &str, values: [&str; N]) -> Arc<LockKey> {
        let key = LockKey::new(&kind::GROUP, group, None).unwrap();
        Arc::new(key.of_values(&values.map(Value::utf8)).unwrap())
    }

    #[test]
    fn an_owner_overlaps_with_its_valid_holds_on_other_values_of_the_same_group_only() {
        let holds = Holds::new(Clock::default(), false);
        let key = of_values("g", ["a", "b"]);
        let found = |owner| holds.overlapping(&key, owner).map(|hold| hold.number());
        let same = held(&holds, &key);
        let apart = held(&holds, &of_values("g", ["c"]));
        let elsewhere = held(&holds, &of_values("h", ["b"]));
        for hold in [&same, &apart, &elsewhere] {
            assert_eq!(found(hold.owner()), None);
        }
        let overlapping = held(&holds, &of_values("g", ["b", "c"]));
        let again = holds.enter(overlapping.key(), Owner::new());
        assert_eq!(found(overlapping.owner()), Some(overlapping.number()));
        assert_eq!(found(again.owner()), None, "it is not granted");
        // The lock stays in the index until its last hold is removed.
        holds.remove(&again);
        assert_eq!(found(overlapping.owner()), Some(overlapping.number()));
        holds.change(&overlapping, HoldState::end);
        assert_eq!(found(overlapping.owner()), None);
        for hold in [same, apart, elsewhere, overlapping] {
            holds.remove(&hold);
        }
        assert!(holds.table.lock().by_value.0.is_empty());
    }

    /// How long many lookups of overlaps take while the client has this many other locks: plain ones, and of
    /// other values of the same group.
    #[cfg(target_os = "linux")]
    fn looking(others: usize) -> Duration {
        let holds = Holds::new(Clock::default(), false);
        for number in 0..others / 2 {
            let name = number.to_string();
            let plain = LockKey::new(&kind::PLAIN, &name, None).unwrap();
            held(&holds, &Arc::new(plain));
            held(&holds, &of_values("g", [&name]));
        }
        let own = held(&holds, &of_values("g", ["a", "b"]));
        let key = of_values("g", ["b", "c"]);
        let began = cpu_time();
        for _ in 0..1_000 {
            assert!(holds.overlapping(&key, own.owner()).is_some());
            assert!(holds.overlapping(&key, Owner::new()).is_none());
        }
        cpu_time() - began
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_cost_of_a_search_for_overlaps_does_not_grow_with_the_locks() {
        let quickest = |others| (0..3).map(|_| looking(others)).min().unwrap();
        let [few, many] = [100, 10_000].map(quickest);
        println!("among 100 locks {few:?}, among 10,000 {many:?}");
        // A lookup that scans all locks takes a hundred times as long.
        assert!(many < few * 10, "{few:?} and {many:?}");
    }

    /// The expected answers of the table for a lock, found by a scan of all its holds, in the order of
    /// their numbers.
    struct Walked<'a>(&'a [Arc<Hold>], Moment);

    impl Walked<'_> {
        fn of_owner(&self, owner: Owner) -> Option<u64> {
            let phase = |hold: &&Arc<Hold>| hold.state().phase;
            let newest = self.0.iter().rev();
            let of_owner = newest.filter(|hold| hold.owner() == owner);
            let kept = of_owner.filter(|hold| phase(hold) != HoldPhase::Ended);
            let found = kept.min_by_key(|hold| phase(hold) == HoldPhase::Pending);
            found.map(|hold| hold.number())
        }

        fn releasing(&self) -> Option<u64> {
            let mut newest = self.0.iter().rev();
            let releasing = newest.find(|hold| hold.state().is_releasing());
            let is_lowering = |hold: &&Arc<Hold>| {
                let state = hold.state();
                state.is_living() && state.is_lowering
            };
            let releasing = releasing.or_else(|| self.0.iter().rev().find(is_lowering));
            releasing.map(|hold| hold.number())
        }

        fn with_forgotten(&self) -> Option<u64> {
            let has_forgotten = |hold: &&Arc<Hold>| {
                let state = hold.state();
                state.is_living() && !state.forgotten.is_empty()
            };
            let oldest = self.0.iter().find(has_forgotten);
            oldest.map(|hold| hold.number())
        }

        fn valid(&self) -> impl Iterator<Item = &Arc<Hold>> {
            self.0.iter().filter(|hold| hold.state().is_valid(self.1))
        }

        fn kept_from(&self, owner: Option<Owner>) -> Option<Moment> {
            if self.valid().any(|hold| Some(hold.owner()) == owner) {
                return None;
            }
            self.valid().map(|hold| hold.state().deadline).max()
        }
    }

    fn assert_as_walked(holds: &Holds, key: &LockKey, listed: &[Arc<Hold>], owners: &[Owner]) {
        let walked = Walked(listed, holds.clock.now());
        let number = |hold: Option<Arc<Hold>>| hold.map(|hold| hold.number());
        let mut all: Vec<u64> = holds.all().iter().map(|hold| hold.number()).collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(listed.iter().map(|it| it.number())));
        let local = holds.local_holds(key, owners[0]);
        assert_eq!(local.has_holds, !listed.is_empty());
        assert_eq!(local.kept_until, walked.kept_from(None));
        assert_eq!(
            local.releasing,
            listed.iter().any(|hold| hold.state().is_releasing())
        );
        assert_eq!(number(holds.releasing(key)), walked.releasing());
        assert_eq!(number(holds.with_forgotten(key)), walked.with_forgotten());
        for owner in owners {
            let found = number(holds.of_owner(key, *owner));
            assert_eq!(found, walked.of_owner(*owner));
            assert_eq!(holds.kept_from(key, *owner), walked.kept_from(Some(*owner)));
        }
        for hold in listed {
            let found = holds.numbered(key, hold.number());
            assert!(found.is_some_and(|found| Arc::ptr_eq(&found, hold)));
        }
    }

    proptest::proptest! {
        #[test]
        fn the_index_of_a_lock_matches_a_walk_through_its_holds(
            steps in proptest::collection::vec((0..22_u8, 0..1_000_usize), 1..150)
        ) {
            let holds = Holds::new(Clock::of(ShiftedClock::default()), false);
            let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
            let owners: Vec<Owner> = (0..4).map(|_| Owner::new()).collect();
            let mut listed: Vec<Arc<Hold>> = Vec::new();
            let mut removed: Vec<Arc<Hold>> = Vec::new();
            for (step, which) in steps {
                let one = (!listed.is_empty()).then(|| listed[which % listed.len()].clone());
                match (step, one) {
                    (0..=7, _) | (_, None) => {
                        listed.push(holds.enter(&key, owners[which % owners.len()]));
                    }
                    (8..=10, Some(hold)) => grant(&holds, &hold),
                    (11, Some(hold)) => {
                        holds.change(&hold, |state| state.lose(LostReason::Forced));
                    }
                    (12 | 13, Some(hold)) => holds.change(&hold, HoldState::end),
                    (14, Some(hold)) => {
                        let handing_on = hold.state().handing_on;
                        hold.state().handing_on = !handing_on;
                    }
                    (15, Some(hold)) => {
                        for lost in holds.supersede(&hold) {
                            assert!(!Arc::ptr_eq(&lost, &hold));
                        }
                        let others = listed.iter().filter(|it| !Arc::ptr_eq(it, &hold));
                        assert!(others.into_iter().all(|it| !it.state().is_living()));
                    }
                    (18, Some(hold)) => {
                        let now = holds.clock.now();
                        holds.change(&hold, |state| state.forget_claim(FLAGS, now));
                    }
                    (19, Some(hold)) => {
                        holds.change(&hold, |state| state.take_forgotten(1));
                    }
                    (20, Some(hold)) => {
                        holds.change(&hold, |state| state.is_lowering = !state.is_lowering);
                    }
                    (16, Some(_)) if !removed.is_empty() => {
                        // The caller that removed it may still change it.
                        holds.change(&removed[which % removed.len()], HoldState::end);
                    }
                    (_, Some(hold)) => {
                        holds.remove(&hold);
                        listed.retain(|other| !Arc::ptr_eq(other, &hold));
                        removed.push(hold);
                    }
                }
                assert_as_walked(&holds, &key, &listed, &owners);
            }
            while !listed.is_empty() {
                holds.remove(&listed.swap_remove(listed.len() / 2));
                listed.sort_by_key(|hold| hold.number());
                assert_as_walked(&holds, &key, &listed, &owners);
            }
        }
    }
}
