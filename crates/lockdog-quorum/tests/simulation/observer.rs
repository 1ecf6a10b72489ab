//! The observer: it sees all sides at once and checks what must be true.

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
    // M: a client begins to rely on the lock in a step of its own, so it is compared with the others
    // then.
    if clients[index].believes(world) {
        let mut others = (0..clients.len()).filter(|other| *other != index);
        let another = others.find(|other| clients[*other].believes(world));
        world.claim(another.is_none(), || {
            format!("client {index} and client {another:?} have the lock")
        });
    }
    let client = &mut clients[index];
    let (now, need) = (client.now(world), need(world));
    // After a freeze, a client receives what it missed in any order.
    let is_frozen = client.frozen_until >= world.now && client.frozen_until > 0;
    for attempt in &mut client.attempts {
        // F: a token is not shown before the lock is acquired.
        let is_shown = attempt.acquired.is_none() && attempt.quorum.token().is_some();
        world.claim(!is_shown, || {
            format!("client {index} shows a token without the lock: {attempt:?}")
        });
        if !attempt.quorum.is_living() {
            continue;
        }
        // L: its owner learns of a loss in time.
        let is_notified = is_frozen || now < attempt.quorum.deadline();
        world.claim(is_notified, || {
            format!("client {index} is not notified at its deadline: {attempt:?}")
        });
        // Q: no instance is asked for longer than its time limit, whatever happened to the caller.
        for (known, member) in attempt.quorum.members.iter().zip(&attempt.members) {
            let is_asked = known.state == MemberState::Asked;
            let is_bounded = attempt.quorum.wake_at() <= member.gives_up;
            // Timers fire up to a millisecond late.
            let is_in_time = is_frozen || now < member.gives_up + LATE;
            world.claim(!is_asked || (is_bounded && is_in_time), || {
                format!("client {index} asks an instance for too long: {attempt:?}")
            });
        }
        // V: a valid holder is valid by its own knowledge.
        let held = attempt.quorum.members.iter();
        let held = held
            .filter(|known| known.state == MemberState::Held)
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

/// If a quorum counts on an instance, that instance keeps the lock for it, and for long enough.
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
        if attempt.is_over() || known.state != MemberState::Held || now >= known.until {
            continue;
        }
        let counted_on = client.clock.true_time(known.until) - world.now;
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

/// The acknowledgements that a holder needs at least. Computed here, not by the core.
fn need(world: &World<'_>) -> usize {
    (world.plan.instances + world.plan.masked) / 2 + 1
}

/// Checks what must happen soon if there are no faults.
#[derive(Default)]
pub(super) struct Sweeper {
    /// For each instance, what no client wanted at the last checks, and the number of those checks.
    unwanted: Vec<(u32, u32)>,
    /// For each client and instance, the number of checks at which a holder lacked a free instance, and
    /// the number of grants of that instance at the last check.
    missing: BTreeMap<(usize, usize), (u64, u64)>,
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

    /// A renewed holder re-acquires an instance that is free.
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
            let (looks, grants) = self.missing.entry((client.number, member)).or_default();
            // Another client may have held it between two checks, when the holder asked for it.
            let is_free = instance.is_free(world.now) && *grants == instance.grants;
            *grants = instance.grants;
            let Some(attempt) = missing.filter(|_| is_free) else {
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

    /// O: what no client wants is released long before its lease is over.
    fn look_for_unwanted(
        &mut self,
        clients: &[Client<'_>],
        instances: &[Instance],
        world: &mut World<'_>,
    ) {
        self.unwanted.resize(instances.len(), (0, 0));
        for (instance, unwanted) in instances.iter().zip(&mut self.unwanted) {
            let holder = instance.holder(world.now).map(|lock| lock.id);
            let left = holder.filter(|id| {
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
                format!("no owner wants acquisition {id}, and no client gives it back")
            });
        }
    }
}

/// What must be true when every lease is over.
pub(super) fn look_at_the_end(instances: &[Instance], world: &mut World<'_>) {
    for (index, instance) in instances.iter().enumerate() {
        let left = instance.holder(world.now).map(|lock| lock.id);
        world.claim(left.is_none(), || {
            format!("left behind on instance {index}: acquisition {left:?}")
        });
    }
}

/// What a client must have achieved by then.
pub(super) fn look_at_progress(clients: &[Client<'_>], world: &mut World<'_>) {
    for (index, client) in clients.iter().enumerate() {
        let living = client.living().map(|attempt: &Attempt| &attempt.quorum);
        world.claim(client.is_done(), || {
            format!("client {index} does not get the lock: {living:?}")
        });
    }
}

const LATE: Duration = Duration::from_millis(2);
/// The interval of the sweeper.
pub(super) const SWEEP_MS: u64 = 50;
/// The number of checks in a row that make a violation.
const PATIENCE: u32 = 3;
