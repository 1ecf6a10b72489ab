//! Shorter plans for one kind of lock, for the search for the shortest failing plan.

use super::plan;
use super::redisson::RedissonPlan;

/// The common parts of the plans of all kinds.
pub(super) struct Parts<'a, T> {
    pub(super) world: &'a mut plan::Plan,
    pub(super) tasks: &'a mut Vec<T>,
    pub(super) redisson: &'a mut Option<RedissonPlan>,
}

/// Every plan that is one change shorter than this one.
pub(super) fn plans<P: Clone, T, S>(
    plan: &P,
    parts: fn(&mut P) -> Parts<'_, T>,
    steps: fn(&mut T) -> &mut Vec<S>,
) -> Vec<P> {
    let mut plans = Vec::new();
    let mut add = |change: &dyn Fn(Parts<'_, T>)| {
        let mut plan = plan.clone();
        change(parts(&mut plan));
        plans.push(plan);
    };
    let mut whole = plan.clone();
    let whole = parts(&mut whole);
    for (i, task) in whole.tasks.iter_mut().enumerate() {
        add(&|it| drop(it.tasks.remove(i)));
        for j in (0..steps(task).len()).rev() {
            add(&|it| drop(steps(&mut it.tasks[i]).remove(j)));
        }
    }
    if whole.redisson.is_some() {
        add(&|it| *it.redisson = None);
    }
    for world in whole.world.smaller() {
        add(&|it| *it.world = world.clone());
    }
    plans
}
