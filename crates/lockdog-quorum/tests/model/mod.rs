//! The quorum explored: every order of everything that a small world allows, over the real core.
//!
//! Two clients drive the core as the driver in `red_lock` does; three or four instances do what the
//! Lua scripts do. Between them messages are under way, which arrive in any order, at any time or
//! never; instances lose the lock or all data. Time goes on in a few coarse steps, whenever it likes;
//! a client that is not heard of for a while is one that froze. The clocks of the instances run one
//! percent faster than the clients', and no wall clock helps the tokens. In every state that can be
//! reached:
//!
//! - at most one client believes in the lock;
//! - whoever believes in it is kept by as many instances as are needed, up to its deadline, those apart
//!   that lost it, and its margin is not larger than the truth: so nobody gives back what is another's;
//! - it wants to be woken before its deadline, is told then that it is lost, or whenever later it
//!   wakes, and nothing that comes late revives it;
//! - no instance is asked for longer than its time;
//! - whoever believes in it knows of as many instances as are needed that have it;
//! - tokens are unique, and larger than all that were shown before their acquisition began;
//! - what an acquisition leaves behind is on its way to be given back, wherever it may stand.
//!
//! The worlds are in `settings`. What makes them small enough: states that differ in what cannot
//! matter any more are one (`digest`, and `tidy`). `merging` shows that nothing is lost by that.

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

/// Far above what any setting takes: one that comes near has grown out of hand.
const MOST: usize = 8_000_000;

#[test]
fn no_order_of_events_breaks_a_promise() {
    let settings = settings::all();
    let unique: usize = settings.iter().map(explore).sum();
    let count = |sight| settings.iter().map(|it| it.reached.count(sight)).sum();
    println!("{unique} unique states in sum");
    for sight in ALL {
        let times: u64 = count(sight);
        println!("{times:>10}  {sight:?}");
    }
    assert!(unique >= 1_000_000, "{unique} states are too few");
    // An exploration that never comes by a fault would prove nothing.
    let missing: Vec<Sight> = ALL.into_iter().filter(|it| count(*it) == 0).collect();
    assert!(missing.is_empty(), "never come across: {missing:?}");
}

#[expect(clippy::disallowed_methods, reason = "it says how long it took")]
/// Goes everywhere; says how many states there are.
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
    // Every state that is known was gone on from.
    let expanded = setting.reached.expanded() as usize;
    assert_eq!(expanded, unique, "{} is not exhausted", setting.name);
    assert!(generated < MOST, "{} is not exhausted", setting.name);
    let mut wanted = setting.wanted.iter();
    let missing = wanted.find(|sight| setting.reached.count(**sight) == 0);
    assert_eq!(missing, None, "{} never came across it", setting.name);
    unique
}

/// Tells the shortest way to a broken promise and ends the test.
fn fail(setting: &Setting) -> ! {
    // One thread, or it may not be the shortest.
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
