//! Renews leases, a third of a lease after the last grant or renewal.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::extend::{ExtendOutcome, Leases, extend, together};
use crate::clock::Moment;
use crate::error::{Error, LostReason};
use crate::hold::{Hold, HoldPhase};
use crate::observe::{ClientEvent, LockRef};
use crate::panics;
use crate::script::RenewReply;
use crate::server::Failure;
use crate::session::Core;

/// Renews and expires holds forever.
pub(super) async fn keep_renewing(core: &Arc<Core>) {
    let lease = core.settings.watchdog_lease;
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut batches = JoinSet::new();
    let mut next_batch = Moment(0);
    let mut early = Duration::ZERO;
    let mut terms = core.server.switches();
    loop {
        while let Some(done) = batches.try_join_next() {
            panics::pass_on(done);
        }
        if terms.has_changed().is_ok_and(|is_new| is_new) {
            terms.mark_unchanged();
            // After a failover, holds may be lost, so their checks cannot wait for the spread batches.
            next_batch = Moment(0);
        }
        // More batches would only wait in the connection. The loop does not wait for capacity, because it
        // also has to report expired holds while the batches in flight have no answer.
        let room = room.clone().try_acquire_owned().ok();
        let batch = if room.is_some() { BATCH } else { 0 };
        let due = core.holds.due(lease, batch, next_batch, early);
        for hold in &due.lost {
            hold.announce_lost();
            core.report_lost(hold);
        }
        for hold in &due.untaken {
            // A simulated run lets other tasks run here, because a grant may be accepted at this point.
            core.clock.gap().await;
            core.abandon(hold);
        }
        for hold in &due.slow {
            core.request_turn(hold);
        }
        for hold in due.outlived {
            core.end_outlived(hold);
        }
        if !due.renew.is_empty() {
            let now = core.clock.now();
            let is_calm = |(hold, _): &(Arc<Hold>, Duration)| {
                hold.remaining(now) > lease / 2 && !hold.state().doubted
            };
            if due.behind && due.renew.iter().all(is_calm) {
                // Spreads renewals that came due at one moment over part of the period; they stay
                // spread.
                let batches = due.renewed / BATCH + 1;
                let pause = lease / 8 / u32::try_from(batches).unwrap_or(u32::MAX);
                next_batch = next_batch.max(now) + pause;
            }
            if let Some(room) = room {
                batches.spawn(renew(core.clone(), due.renew, due.late, lease, room));
            }
            // While it runs, it also sends the renewals that are due very soon, so that the thread wakes
            // less often.
            early = lease / TOGETHER;
            continue;
        }
        drop(room);
        early = Duration::ZERO;
        tokio::select! {
            biased;
            () = core.clock.sleep_until(due.next) => core.observers().notify(|| ClientEvent::Late {
                by: core.clock.now().since(due.next),
            }),
            () = core.holds.earlier() => {}
            // There is capacity again.
            Some(done) = batches.join_next() => panics::pass_on(done),
        }
    }
}

async fn renew(
    core: Arc<Core>,
    holds: Vec<(Arc<Hold>, Duration)>,
    late: Duration,
    lease: Duration,
    room: OwnedSemaphorePermit,
) {
    let parts = together(&core, holds, |(hold, _)| hold);
    // One silent server of several must not take capacity from the renewals on the others.
    let is_one_of_several = parts.len() > 1 || core.server.is_cluster();
    let limit = if is_one_of_several { lease / 64 } else { lease };
    let mut room = Some(room);
    let mut timer = pin!(tokio::time::sleep(limit));
    let mut renewing: FuturesUnordered<_> = parts
        .into_iter()
        .map(|part| renew_together(&core, part, late, lease))
        .collect();
    loop {
        tokio::select! {
            done = renewing.next() => if done.is_none() { return },
            () = &mut timer, if room.is_some() => room = None,
        }
    }
}

/// Renews holds whose keys may be in one command.
async fn renew_together(
    core: &Core,
    holds: Vec<(Arc<Hold>, Duration)>,
    late: Duration,
    lease: Duration,
) {
    let ended = |ExtendOutcome { at, sent, answers }| {
        let holds = &holds[at..];
        notify_renewed(core, &answers, sent, late);
        report_failing(core, holds, sent, &answers);
        process_answers(core, holds, lease, sent, answers);
    };
    extend(core, &holds, lease, |_, _| {}, ended).await;
}

/// Processes the answers of a server for the first of these holds. The command was sent at `sent`. On a silent
/// connection it fails later than the next renewal succeeds on another connection. Such a failure changes nothing.
fn process_answers(
    core: &Core,
    holds: &Leases,
    lease: Duration,
    sent: Moment,
    answers: Vec<Result<RenewReply, Failure>>,
) {
    for ((hold, asked), answer) in holds.iter().zip(answers) {
        match answer {
            Ok(RenewReply::Extended) => {
                core.note_renewed(hold, sent, *asked);
                if *asked > lease {
                    // A longer lease that is renewed for its rest is renewed as often as a watched hold.
                    core.holds.change(hold, |state| {
                        state.renew_at = state.renew_at.min(sent + lease / 3);
                    });
                }
            }
            Ok(RenewReply::Missing) => {
                core.lose(hold, LostReason::NotOurs);
            }
            Ok(RenewReply::Unknown) | Err(_) => {
                let is_first = core.holds.change(hold, |state| {
                    if state.renewed > sent {
                        return false;
                    }
                    // The last claim that needs renewals may have ended meanwhile.
                    let is_first = state.phase == HoldPhase::Held && state.needs_watchdog();
                    if is_first {
                        state.phase = HoldPhase::Jeopardy;
                    }
                    let retry = (lease / 20).clamp(SOONEST_RETRY, LATEST_RETRY);
                    state.renew_at = state.renew_at.min(core.clock.now() + retry);
                    is_first && !state.is_part()
                });
                if is_first {
                    core.observers().notify(|| ClientEvent::Jeopardy {
                        lock: LockRef::of(hold.key(), hold.owner()),
                        remaining: hold.remaining(core.clock.now()),
                    });
                }
            }
        }
    }
}

/// Notifies the observers of a renewal that was sent at `sent`, this `late` after it was due.
fn notify_renewed(
    core: &Core,
    answers: &[Result<RenewReply, Failure>],
    sent: Moment,
    late: Duration,
) {
    let count = |is: fn(&Result<RenewReply, Failure>) -> bool| {
        let number = answers.iter().filter(|answer| is(answer)).count();
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    let holds = count(|answer| answer.is_err());
    core.totals.count_failed_renewals(holds);
    if core.observers().is_none() {
        return;
    }
    if answers.iter().any(Result::is_ok) {
        core.observers().notify(|| ClientEvent::Renewed {
            holds: count(|answer| matches!(answer, Ok(RenewReply::Extended))),
            gone: count(|answer| matches!(answer, Ok(RenewReply::Missing))),
            took: core.clock.now().since(sent),
            late,
        });
    }
    if let Some(failure) = answers.iter().find_map(|answer| answer.as_ref().err()) {
        let error = &Error::from(failure.clone());
        core.observers()
            .notify(|| ClientEvent::RenewalFailed { holds, error });
    }
}

/// Warns about the first of consecutive failures; the others are logged at debug. The command was sent at `sent`.
fn report_failing(
    core: &Core,
    holds: &Leases,
    sent: Moment,
    answers: &[Result<RenewReply, Failure>],
) {
    let failing = || {
        holds
            .iter()
            .zip(answers)
            .filter(|(_, answer)| answer.is_err())
    };
    let Some(((hold, _), Err(failure))) = failing().next() else {
        return;
    };
    let server = core.server.address_of(hold.key().key());
    let was_held = |((hold, _), _): &(&(Arc<Hold>, Duration), _)| {
        let state = hold.state();
        state.phase == HoldPhase::Held && state.renewed <= sent
    };
    match failing().filter(was_held).count() {
        0 => {
            let holds = failing().count();
            tracing::debug!(
                target: "lockdog::renewal",
                server, holds, %failure, "renewal still failing"
            );
        }
        failing_now => tracing::warn!(
            target: "lockdog::renewal",
            server, holds = failing_now, %failure, "renewal failing"
        ),
    }
}

/// Locks per script call.
const BATCH: usize = 100;

/// Renewals that are due within this part of a lease are sent together. Measured with 100,000 locks and
/// a lease of 30 s: 1.8 % of a core, compared with 3 % if it wakes up for each batch.
const TOGETHER: u32 = 1024;

/// Batches in flight.
const AT_ONCE: usize = 16;

const SOONEST_RETRY: Duration = Duration::from_millis(5);
const LATEST_RETRY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;

    use super::*;
    use crate::clock::Clock;
    use crate::hold::{HoldState, Terms};
    use crate::key::{LockKey, kind};
    use crate::observe::{Observer, Observers};
    use crate::owner::Owner;
    use crate::session::{disconnected, disconnected_with};
    use crate::user_code::OnEvent;

    /// A log subscriber takes its time over the first hold that is taken in, and the deadline of the second
    /// one passes meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_expires_while_the_answers_of_others_are_processed_is_lost() {
        let core = disconnected(&Clock::of_tokio());
        let holds = ["first", "second"].map(|name| {
            let hold = granted(&core, name);
            core.holds
                .change(&hold, |state| state.phase = HoldPhase::Jeopardy);
            (hold, LEASE)
        });
        tokio::time::advance(LEASE / 2).await;
        let sent = core.clock.now();
        let slow = OnEvent(|| {
            // It is done at the first poll.
            let _ = tokio::time::advance(LEASE).now_or_never();
        });
        let answers = vec![Ok(RenewReply::Extended), Ok(RenewReply::Extended)];
        slow.during(|| process_answers(&core, &holds, LEASE, sent, answers));
        let [(first, _), (second, _)] = &holds;
        assert!(core.clock.now().since(sent) >= LEASE, "nothing was logged");
        assert_eq!(first.state().phase, HoldPhase::Held);
        assert_eq!(second.state().phase, HoldPhase::Lost(LostReason::Deadline));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_logged_once_whatever_renewals_are_answered_later() {
        let core = disconnected(&Clock::of_tokio());
        let sent = core.clock.now();
        let hold = granted(&core, "l");
        let logged = Arc::new(AtomicU32::new(0));
        let counts = OnEvent({
            let logged = logged.clone();
            move || {
                logged.fetch_add(1, Ordering::Relaxed);
            }
        });
        counts.during(|| {
            core.lose(&hold, LostReason::Deadline);
            for _ in 0..2 {
                let answers = vec![Ok(RenewReply::Extended)];
                process_answers(&core, &[(hold.clone(), LEASE)], LEASE, sent, answers);
            }
        });
        assert_eq!(logged.load(Ordering::Relaxed), 1);
    }

    /// The first renewal was sent on a connection that is silent. It fails after the second one succeeded.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_fails_after_a_later_one_succeeded_brings_no_jeopardy() {
        let core = disconnected(&Clock::of_tokio());
        let hold = granted(&core, "l");
        let leases = [(hold.clone(), LEASE)];
        let [first, second, third] = [1, 2, 3].map(|sixth| core.clock.now() + LEASE / 6 * sixth);
        let answered = |sent, answer| process_answers(&core, &leases, LEASE, sent, vec![answer]);
        answered(second, Ok(RenewReply::Extended));
        let renew_at = hold.state().renew_at;
        answered(first, Err(Failure::silent(LEASE / 3)));
        assert_eq!(hold.state().phase, HoldPhase::Held);
        assert_eq!(hold.state().renew_at, renew_at);
        answered(third, Err(Failure::silent(LEASE / 3)));
        assert_eq!(hold.state().phase, HoldPhase::Jeopardy);
    }

    #[derive(Default)]
    struct Counts(AtomicU32);

    impl Observer for Counts {
        fn event(&self, _: &ClientEvent<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After a failover, the watchdog checks a `RedLock`'s hold on one instance, too.
    #[tokio::test(start_paused = true)]
    async fn a_part_of_a_composite_lock_makes_no_event_of_its_own() {
        for (parts, events) in [(0, 2), (1, 0)] {
            let counts = Arc::new(Counts::default());
            let observers = Observers::new(vec![counts.clone()]);
            let core = disconnected_with(&Clock::of_tokio(), observers);
            let hold = granted(&core, "l");
            hold.state().parts = parts;
            let leases = [(hold.clone(), LEASE)];
            for answer in [Err(Failure::silent(LEASE / 3)), Ok(RenewReply::Extended)] {
                process_answers(&core, &leases, LEASE, core.clock.now(), vec![answer]);
            }
            assert_eq!(hold.state().phase, HoldPhase::Held);
            assert_eq!(counts.0.load(Ordering::Relaxed), events);
        }
    }

    /// A watched hold that was granted now.
    fn granted(core: &Core, name: &str) -> Arc<Hold> {
        let terms = Terms::new(LEASE, true);
        let key = LockKey::new(&kind::PLAIN, name, None).unwrap();
        let hold = core.holds.enter(&Arc::new(key), Owner::new());
        let now = core.clock.now();
        let grant = |state: &mut HoldState| state.grant(now, &terms, now);
        assert!(core.holds.change(&hold, grant));
        hold
    }

    const LEASE: Duration = Duration::from_secs(30);
}
