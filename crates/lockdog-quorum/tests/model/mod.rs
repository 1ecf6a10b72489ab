//! Explores the quorum: every order of all events that a small world allows, on the real core.
//!
//! Two clients drive the core as the driver in `red_lock` does. Three or four instances do what the Lua
//! scripts do. Messages between them arrive in any order, at any time or never. Instances lose the lock
//! or all data. Time passes in a few coarse steps, at any point; a client without events for a while is
//! a frozen one. The clocks of the instances run one percent faster than the clients', and no wall
//! clock helps the tokens. In every reachable state:
//!
//! - at most one client relies on the lock;
//! - a client that relies on it has it on as many instances as are needed, up to its deadline, not
//!   counting instances that lost it, and its margin is not larger than the truth: so no client
//!   releases a lock of another;
//! - it asks to be woken before its deadline and learns of the loss then, or whenever it wakes later,
//!   and no late message revives it;
//! - no instance is asked for longer than its time limit;
//! - a client that relies on it knows of as many instances as are needed that have it;
//! - tokens are unique, and larger than all that were shown before their acquisition began;
//! - for everything that an acquisition leaves behind, a release is under way.
//!
//! The worlds are in `settings`. They are small enough because states that differ only in what has no
//! effect any more are merged (`digest`, and `tidy`). `merging` shows that this loses nothing.

mod bag;
mod client;
mod digest;
mod instance;
mod merging;
mod promises;
mod reached;
mod setting;
mod settings;
mod step;
mod tidy;
mod world;

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use reached::{ALL, Sight};
use setting::Setting;

/// Far above the size of any setting; a setting that comes near has grown out of control.
const MOST: usize = 8_000_000;

#[test]
fn no_order_of_events_breaks_a_guarantee() {
    let settings = settings::all();
    let unique: usize = settings.iter().map(explore).sum();
    let count = |sight| settings.iter().map(|it| it.reached.count(sight)).sum();
    println!("{unique} unique states in sum");
    for sight in ALL {
        let times: u64 = count(sight);
        println!("{times:>10}  {sight:?}");
    }
    assert!(unique >= 1_000_000, "{unique} states are too few");
    // An exploration that never meets a fault would prove nothing.
    let missing: Vec<Sight> = ALL.into_iter().filter(|it| count(*it) == 0).collect();
    assert!(missing.is_empty(), "never come across: {missing:?}");
}

#[expect(clippy::disallowed_methods, reason = "it says how long it took")]
/// Visits every state; returns the number of states.
fn explore(setting: &Setting) -> usize {
    let began = Instant::now();
    let checker = setting.clone().checker().threads(2);
    let checker = checker
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(MOST)
        .spawn_dfs()
        .join();
    let (generated, unique) = (checker.state_count(), checker.unique_state_count());
    println!(
        "{:20} generated={generated} unique={unique} depth={} seconds={:.1}\n  {}",
        setting.name,
        checker.max_depth(),
        began.elapsed().as_secs_f32(),
        setting.reached.table(),
    );
    if !checker.discoveries().is_empty() {
        fail(setting);
    }
    // Every known state was expanded.
    let expanded = setting.reached.expanded() as usize;
    assert_eq!(expanded, unique, "{} is not exhausted", setting.name);
    assert!(generated < MOST, "{} is not exhausted", setting.name);
    let mut wanted = setting.wanted.iter();
    let missing = wanted.find(|sight| setting.reached.count(**sight) == 0);
    assert_eq!(missing, None, "{} never came across it", setting.name);
    unique
}

/// Reports the shortest path to a broken promise and fails the test.
fn fail(setting: &Setting) -> ! {
    // One thread; with more, the path may not be the shortest.
    let checker = setting.clone().checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
    let found = checker.join().discoveries().into_values().next();
    let path = found.expect("it was found before");
    let broken = path.last_state().broken(setting);
    let moves = path.into_actions();
    for step in &moves {
        println!("{step:?}");
    }
    panic!("{}: {broken:?} after {} steps", setting.name, moves.len());
}
