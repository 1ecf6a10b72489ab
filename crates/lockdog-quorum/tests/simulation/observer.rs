//! Who sees all sides at once, and what must be true there.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::Attempt;
use super::client::Client;
use super::instance::Instance;
use super::world::World;
use crate::Moment;
use crate::member::MemberState;

/// What must be true of a client after each of its steps.
pub(super) fn look_at_client(
    index: usize,
    clients: &mut [Client<'_>],
    instances: &[Instance],
    world: &mut World<'_>,
) {
    if clients[index].dead {
        return;
    }
    // M: a belief begins with a step of its own, so whoever stepped is compared with the others.
    if clients[index].believes(world) {
        let mut others = (0..clients.len()).filter(|other| *other != index);
        let another = others.find(|other| clients[*other].believes(world));
        world.claim(another.is_none(), || {
            format!("client {index} and client {another:?} have the lock")
        });
    }
    let client = &mut clients[index];
    let (now, need) = (client.now(world), need(world));
    // Whoever thaws hears in any order of what it missed.
    let is_frozen = client.frozen_until >= world.now && client.frozen_until > 0;
    for attempt in &mut client.attempts {
        // F: a token that was never shown never will be.
        let is_shown = attempt.acquired.is_none() && attempt.quorum.token().is_some();
        world.claim(!is_shown, || {
            format!("client {index} shows a token without the lock: {attempt:?}")
        });
        if !attempt.quorum.is_living() {
            continue;
        }
        // L: its owner is told in time.
        let is_told = is_frozen || now < attempt.quorum.deadline();
        world.claim(is_told, || {
            format!("client {index} is not told at its deadline: {attempt:?}")
        });
        // Q: no instance is asked for longer than its time, whatever became of the caller.
        for (known, member) in attempt.quorum.members.iter().zip(&attempt.members) {
            let is_asked = known.stand == MemberState::Asked;
            let is_bounded = attempt.quorum.wake_at() <= member.gives_up;
            // Timers come up to a millisecond late.
            let is_in_time = is_frozen || now < member.gives_up + LATE;
            world.claim(!is_asked || (is_bounded && is_in_time), || {
                format!("client {index} asks an instance for too long: {attempt:?}")
            });
        }
        // V: whoever is valid is so by what it knows itself.
        let held = attempt.quorum.members.iter();
        let held = held
            .filter(|known| known.stand == MemberState::Held)
            .count();
        world.claim(held >= need, || {
            format!("client {index} knows that too few have it, and does not say so: {attempt:?}")
        });
        let deadline = attempt.quorum.deadline();
        let is_proved = deadline <= attempt.proved || attempt.rounds.prove(deadline, need);
        world.claim(is_proved, || {
            format!("no round gave client {index} its deadline: {attempt:?}")
        });
        attempt.proved = deadline;
        let is_as_wanted = attempt.is_as_wanted(world.now);
        world.claim(is_as_wanted, || {
            format!("client {index} re-entered, and nothing is longer: {attempt:?}")
        });
        world.claim(deadline <= attempt.bound, || {
            format!("client {index} is to have it beyond its bound: {attempt:?}")
        });
    }
    for (member, instance) in instances.iter().enumerate() {
        compare(index, &clients[index], member, instance, world);
    }
}

/// What must be true of an instance after each of its commands.
pub(super) fn look_at_instance(
    member: usize,
    clients: &[Client<'_>],
    instance: &Instance,
    world: &mut World<'_>,
) {
    for (index, client) in clients.iter().enumerate() {
        compare(index, client, member, instance, world);
    }
}

/// Where a quorum counts on an instance, that one keeps the lock for it, and for long enough.
fn compare(
    index: usize,
    client: &Client<'_>,
    member: usize,
    instance: &Instance,
    world: &mut World<'_>,
) {
    if client.dead {
        return;
    }
    let now = client.now(world);
    for attempt in &client.attempts {
        let known = &attempt.quorum.members[member];
        let id = attempt.members[member].id;
        if attempt.is_over() || known.stand != MemberState::Held || now >= known.until {
            continue;
        }
        let counted_on = client.clock.truly(known.until) - world.now;
        let kept = instance.keeps(id, world.now);
        let is_right = kept >= counted_on || instance.lost.contains(&id);
        world.claim(is_right, || {
            format!(
                "client {index} counts on {id} at instance {member} for {counted_on} ns, and it \
                 is kept for {kept}: {attempt:?}"
            )
        });
    }
}

/// The acknowledgements without which nobody has the lock. Reckoned here, not by the core.
fn need(world: &World<'_>) -> usize {
    (world.plan.instances + world.plan.masked) / 2 + 1
}

/// Looks at what must be so soon where nothing goes wrong.
#[derive(Default)]
pub(super) struct Sweeper {
    /// For each instance, what nobody wanted at the last looks, and at how many of them.
    unwanted: Vec<(u32, u32)>,
    /// For each client and instance, at how many looks a holder did not have it that could.
    missing: BTreeMap<(usize, usize), u64>,
}

impl Sweeper {
    pub(super) fn sweep(
        &mut self,
        clients: &[Client<'_>],
        instances: &[Instance],
        world: &mut World<'_>,
    ) {
        self.look_for_unwanted(clients, instances, world);
        for client in clients.iter().filter(|client| !client.dead) {
            self.look_for_missing(client, instances, world);
        }
    }

    /// What is renewed is taken where it is free.
    fn look_for_missing(
        &mut self,
        client: &Client<'_>,
        instances: &[Instance],
        world: &mut World<'_>,
    ) {
        for (member, instance) in instances.iter().enumerate() {
            let missing = client.living().filter(|attempt| {
                let rules = attempt.quorum.rules();
                let lasts = attempt.acquired.is_some() && rules.renewed;
                let is_bounded = attempt.bound != Moment::NEVER;
                let could_have_it = !client.is_out_of_reach(member, world);
                lasts && !is_bounded && could_have_it && !attempt.quorum.has(member)
            });
            let looks = self.missing.entry((client.number, member)).or_default();
            let Some(attempt) = missing.filter(|_| instance.is_free(world.now)) else {
                *looks = 0;
                continue;
            };
            *looks += 1;
            let period = attempt.quorum.rules().lease / 3;
            let most = period.as_millis() as u64 / SWEEP_MS + 4;
            world.claim(*looks <= most, || {
                format!("instance {member} is free, and its holder does not take it: {attempt:?}")
            });
        }
    }

    /// O: what nobody wants any more is gone long before its lease is over.
    fn look_for_unwanted(
        &mut self,
        clients: &[Client<'_>],
        instances: &[Instance],
        world: &mut World<'_>,
    ) {
        self.unwanted.resize(instances.len(), (0, 0));
        for (instance, unwanted) in instances.iter().zip(&mut self.unwanted) {
            let standing = instance.standing(world.now).map(|lock| lock.id);
            let left = standing.filter(|id| {
                let owner = world.owner(*id);
                !clients[owner].dead && !clients[owner].wants(*id) && !world.is_closed(*id)
            });
            *unwanted = match left {
                Some(id) if unwanted.0 == id => (id, unwanted.1 + 1),
                Some(id) => (id, 1),
                None => (0, 0),
            };
            let (id, looks) = *unwanted;
            world.claim(looks < PATIENCE, || {
                format!("nobody wants acquisition {id}, and nobody gives it back")
            });
        }
    }
}

/// What must be true when every lease is over.
pub(super) fn look_at_the_end(instances: &[Instance], world: &mut World<'_>) {
    for (index, instance) in instances.iter().enumerate() {
        let left = instance.standing(world.now).map(|lock| lock.id);
        world.claim(left.is_none(), || {
            format!("left behind on instance {index}: acquisition {left:?}")
        });
    }
}

/// What a client has to have done by then.
pub(super) fn look_at_progress(clients: &[Client<'_>], world: &mut World<'_>) {
    for (index, client) in clients.iter().enumerate() {
        let living = client.living().map(|attempt: &Attempt| &attempt.quorum);
        world.claim(client.is_done(), || {
            format!("client {index} does not get the lock: {living:?}")
        });
    }
}

const LATE: Duration = Duration::from_millis(2);
/// How often the sweeper looks.
pub(super) const SWEEP_MS: u64 = 50;
/// So many looks in a row.
const PATIENCE: u32 = 3;
