//! Shows that merging loses nothing, in worlds small enough to be explored without merging.
//!
//! Two states with one digest have successors with the same digests, and break the same promises. By
//! induction, an exploration that continues from only one of them misses nothing of the other.

use std::collections::{BTreeSet, HashMap, HashSet};

use stateright::Model;

use super::setting::{Setting, Spent};
use super::settings::{self, HALF, ONCE, THIRD};
use super::world::{Move, World};

/// Worlds of two instances; more would have millions of states.
fn small() -> Vec<Setting> {
    let at_once = |change: fn(&mut Spent)| {
        let mut limits = ONCE;
        change(&mut limits);
        Setting {
            instances: 2,
            ticks: 0,
            limits,
            ..settings::plain()
        }
    };
    let fenced = |setting| Setting {
        fenced: true,
        ..setting
    };
    let later = |setting, tick, ticks| Setting {
        tick,
        ticks,
        ..setting
    };
    vec![
        at_once(|it| (it.doubled, it.lengthened) = (1, 1)),
        at_once(|it| (it.failed, it.lengthened) = (1, 1)),
        at_once(|it| (it.lost, it.lengthened) = (1, 1)),
        at_once(|it| it.begun = 3),
        fenced(at_once(|it| it.lost = 1)),
        fenced(at_once(|it| it.restarted = 1)),
        later(at_once(|_| ()), HALF, 2),
        later(at_once(|it| it.renewed = 1), THIRD, 1),
    ]
}

/// Exploring without merging and tidying, and then merging and tidying the result, reaches the same
/// states.
#[test]
fn merging_does_not_change_the_reachable_states() {
    for setting in small() {
        let (apart, all) = reached(&setting, World::exact, false);
        let (merged, fewer) = reached(&setting, World::digest, true);
        println!("{:?}: {all} states are {fewer}", setting.limits);
        assert!(fewer * 4 < all, "nothing is merged");
        let (more, less) = (apart.difference(&merged), merged.difference(&apart));
        assert_eq!((more.count(), less.count()), (0, 0), "{:?}", setting.limits);
    }
}

/// All states after they are tidied, and the number of distinct states before.
fn reached(setting: &Setting, digest: fn(&World) -> u64, tidy: bool) -> (HashSet<u64>, usize) {
    let mut tidied: HashSet<u64> = setting.init_states().iter().map(World::digest).collect();
    let known = walk(setting, digest, |world, moves| {
        let next = moves.iter().map(|step| {
            let mut next = world.clone();
            next.make(setting, *step);
            let mut neat = next.clone();
            neat.tidy(setting);
            tidied.insert(neat.digest());
            if tidy { neat } else { next }
        });
        next.collect()
    });
    (tidied, known)
}

/// Each successor of one of several merged states is a successor of all of them, and a promise that one
/// of them breaks is broken by all.
#[test]
fn merged_states_have_the_same_successors() {
    for setting in small() {
        let mut futures = HashMap::new();
        let known = walk(&setting, World::exact, |world, moves| {
            let follow = |step: &Move| setting.next_state(world, *step);
            let next: Vec<World> = moves.iter().filter_map(follow).collect();
            let digests: BTreeSet<u64> = next.iter().map(World::digest).collect();
            let future = (world.broken(&setting), digests);
            let entry = futures.entry(world.digest());
            let known = entry.or_insert_with(|| future.clone());
            assert_eq!(*known, future, "{:?}: {world:#?}", setting.limits);
            next
        });
        println!("{:?}: {known} states are {}", setting.limits, futures.len());
        assert!(futures.len() * 2 < known, "nothing is merged");
    }
}

/// Visits every state; returns the number of states.
fn walk(
    setting: &Setting,
    digest: fn(&World) -> u64,
    mut follow: impl FnMut(&World, &[Move]) -> Vec<World>,
) -> usize {
    let mut open = setting.init_states();
    let mut known: HashSet<u64> = open.iter().map(digest).collect();
    let mut moves = Vec::new();
    while let Some(world) = open.pop() {
        moves.clear();
        setting.actions(&world, &mut moves);
        let next = follow(&world, &moves).into_iter();
        open.extend(next.filter(|it| known.insert(digest(it))));
    }
    known.len()
}
