//! When a command has to end, decided from times only.

use std::time::Duration;

use lockdog::error::LostReason;

use super::arguments::{Args, OnLoss};

/// Why a command was stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RunVerdict {
    /// Renewals fail, and the lease is about to end.
    Jeopardy,
    Lost(LostReason),
    MaxHold,
}

impl RunVerdict {
    /// The exit code of lockdog, in place of that of the command.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Jeopardy | Self::Lost(_) => LOST,
            Self::MaxHold => MAX_HOLD,
        }
    }

    /// One word for reports.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Jeopardy => "renewals_fail",
            Self::Lost(reason) => reason.as_str(),
            Self::MaxHold => "max_hold",
        }
    }
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Decision {
    /// Nothing, for this time at most.
    Wait(Duration),
    /// Report the loss to the user.
    Warn(LostReason),
    /// Ask the command to end: TERM.
    Ask(RunVerdict),
    /// KILL.
    Kill(RunVerdict),
}

/// Watches a lock for its command.
pub(super) struct HoldWatch {
    on_loss: OnLoss,
    grace: Duration,
    max_hold: Option<Duration>,
    stop: Option<Stop>,
    warned: Option<LostReason>,
}

#[derive(Clone, Copy)]
struct Stop {
    verdict: RunVerdict,
    kill_at: Duration,
}

impl HoldWatch {
    pub(super) fn new(args: &Args) -> Self {
        Self::of(args.lost, args.grace(), args.max_hold)
    }

    fn of(on_loss: OnLoss, grace: Duration, max_hold: Option<Duration>) -> Self {
        Self {
            on_loss,
            grace,
            max_hold,
            stop: None,
            warned: None,
        }
    }

    /// Why the command was asked to end, or killed, if it was.
    pub(super) fn verdict(&self) -> Option<RunVerdict> {
        self.stop.map(|stop| stop.verdict)
    }

    /// The loss that was reported to the user, if there was one.
    pub(super) fn warned(&self) -> Option<LostReason> {
        self.warned
    }

    /// The next action. `ran` is how long the command runs, `remaining` how long the lock is valid without
    /// a further renewal. A renewal after the first signal does not cancel KILL.
    pub(super) fn next(
        &mut self,
        ran: Duration,
        remaining: Duration,
        lost: Option<LostReason>,
    ) -> Decision {
        // Another owner may hold the lock soon. After any other loss the command has its grace.
        let may_be_over = self.on_loss != OnLoss::Warn
            && matches!(lost, None | Some(LostReason::Deadline))
            && remaining <= MARGIN;
        if let Some(stop) = &mut self.stop {
            // If the machine slept since TERM, the deadline of the lock is nearer than `ran` shows.
            if may_be_over {
                stop.kill_at = stop.kill_at.min(ran);
            }
            let Stop { verdict, kill_at } = *stop;
            return match ran >= kill_at {
                true => Decision::Kill(verdict),
                false => Decision::Wait(kill_at - ran),
            };
        }
        // A healthy hold keeps two thirds of its lease, and the grace is a third at most.
        let safe = self.grace + MARGIN;
        match (self.on_loss, lost) {
            (OnLoss::Warn, Some(reason)) if self.warned.is_none() => {
                self.warned = Some(reason);
                return Decision::Warn(reason);
            }
            (OnLoss::Warn, _) => {}
            (_, Some(reason)) => {
                let grace = match may_be_over {
                    true => Duration::ZERO,
                    false => self.grace,
                };
                return self.stop(RunVerdict::Lost(reason), ran, grace);
            }
            (_, None) if remaining <= safe => {
                let grace = remaining.saturating_sub(MARGIN).min(self.grace);
                return self.stop(RunVerdict::Jeopardy, ran, grace);
            }
            (_, None) => {}
        }
        if self.max_hold.is_some_and(|most| ran >= most) {
            return self.stop(RunVerdict::MaxHold, ran, self.grace);
        }
        let until_max = self.max_hold.map_or(Duration::MAX, |most| most - ran);
        let until_jeopardy = match self.on_loss {
            OnLoss::Warn => Duration::MAX,
            OnLoss::Kill | OnLoss::Stop => remaining.saturating_sub(safe),
        };
        Decision::Wait(until_max.min(until_jeopardy).min(TICK))
    }

    fn stop(&mut self, verdict: RunVerdict, ran: Duration, grace: Duration) -> Decision {
        let grace = match self.on_loss {
            OnLoss::Kill => Duration::ZERO,
            OnLoss::Stop | OnLoss::Warn => grace,
        };
        let kill_at = ran + grace;
        self.stop = Some(Stop { verdict, kill_at });
        match grace.is_zero() {
            true => Decision::Kill(verdict),
            false => Decision::Ask(verdict),
        }
    }
}

/// The time that a killed process may take to be gone, before another owner may hold the lock.
const MARGIN: Duration = Duration::from_millis(250);
/// A machine that slept does not wake timers.
pub(super) const TICK: Duration = Duration::from_millis(250);
const LOST: u8 = 76;
const MAX_HOLD: u8 = 124;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn watch(on_loss: OnLoss) -> HoldWatch {
        HoldWatch::of(on_loss, ms(3_000), None)
    }

    #[test]
    fn a_healthy_lock_lets_the_command_run() {
        let mut watch = watch(OnLoss::Stop);
        assert_eq!(watch.next(ms(0), ms(9_800), None), Decision::Wait(TICK));
        assert_eq!(watch.next(ms(3_000), ms(6_600), None), Decision::Wait(TICK));
        assert_eq!(watch.verdict(), None);
    }

    #[test]
    fn term_comes_a_grace_before_kill_and_kill_before_the_deadline() {
        let mut watch = watch(OnLoss::Stop);
        assert_eq!(
            watch.next(ms(6_600), ms(3_260), None),
            Decision::Wait(ms(10))
        );
        let ask = Decision::Ask(RunVerdict::Jeopardy);
        assert_eq!(watch.next(ms(6_610), ms(3_250), None), ask);
        assert_eq!(
            watch.next(ms(9_000), ms(860), None),
            Decision::Wait(ms(610))
        );
        assert_eq!(watch.next(ms(9_609), ms(251), None), Decision::Wait(ms(1)));
        let kill = Decision::Kill(RunVerdict::Jeopardy);
        assert_eq!(watch.next(ms(9_610), ms(250), None), kill);
    }

    #[test]
    fn a_late_check_shortens_the_grace_and_not_the_margin() {
        let mut watch = watch(OnLoss::Stop);
        let ask = Decision::Ask(RunVerdict::Jeopardy);
        assert_eq!(watch.next(ms(8_000), ms(1_250), None), ask);
        assert_eq!(
            watch.next(ms(8_000), ms(1_250), None),
            Decision::Wait(ms(1_000))
        );
        let mut watch = self::watch(OnLoss::Stop);
        let kill = Decision::Kill(RunVerdict::Jeopardy);
        assert_eq!(watch.next(ms(8_000), ms(200), None), kill);
    }

    #[test]
    fn a_renewal_after_term_does_not_take_it_back() {
        let mut watch = watch(OnLoss::Stop);
        let ask = Decision::Ask(RunVerdict::Jeopardy);
        assert_eq!(watch.next(ms(6_610), ms(3_250), None), ask);
        assert_eq!(
            watch.next(ms(7_000), ms(9_900), None),
            Decision::Wait(ms(2_610))
        );
        let kill = Decision::Kill(RunVerdict::Jeopardy);
        assert_eq!(watch.next(ms(9_610), ms(9_900), None), kill);
    }

    #[test]
    fn a_machine_that_slept_after_term_kills_at_once() {
        let slept = ms(6_700);
        for lost in [None, Some(LostReason::Deadline)] {
            let mut watch = watch(OnLoss::Stop);
            let ask = Decision::Ask(RunVerdict::Jeopardy);
            assert_eq!(watch.next(ms(6_610), ms(3_250), None), ask);
            let kill = Decision::Kill(RunVerdict::Jeopardy);
            assert_eq!(watch.next(slept, ms(0), lost), kill);
            // A renewal does not take it back.
            assert_eq!(watch.next(slept, ms(9_900), None), kill);
        }
        // The server has another answer, so the command has its grace.
        let mut watch = watch(OnLoss::Stop);
        assert_eq!(
            watch.next(ms(6_610), ms(3_250), None),
            Decision::Ask(RunVerdict::Jeopardy)
        );
        let not_ours = Some(LostReason::NotOurs);
        let wait = Decision::Wait(ms(2_910));
        assert_eq!(watch.next(slept, ms(0), not_ours), wait);
    }

    #[test]
    fn a_machine_that_slept_after_term_of_the_longest_hold_kills_at_once() {
        for (on_loss, expected) in [
            (OnLoss::Stop, Decision::Kill(RunVerdict::MaxHold)),
            // The user wants no end for a loss.
            (OnLoss::Warn, Decision::Wait(ms(2_900))),
        ] {
            let mut watch = HoldWatch::of(on_loss, ms(3_000), Some(ms(1_000)));
            let ask = Decision::Ask(RunVerdict::MaxHold);
            assert_eq!(watch.next(ms(1_000), ms(9_000), None), ask);
            assert_eq!(watch.next(ms(1_100), ms(250), None), expected);
        }
    }

    #[test]
    fn a_lease_that_may_be_over_comes_before_the_longest_hold() {
        let watch = |on_loss| HoldWatch::of(on_loss, ms(3_000), Some(ms(1_000)));
        let kill = Decision::Kill(RunVerdict::Jeopardy);
        assert_eq!(watch(OnLoss::Stop).next(ms(1_000), ms(0), None), kill);
        let reason = LostReason::Deadline;
        let lost = Some(reason);
        let kill = Decision::Kill(RunVerdict::Lost(reason));
        assert_eq!(watch(OnLoss::Stop).next(ms(1_000), ms(0), lost), kill);
        let mut warned = watch(OnLoss::Warn);
        let warn = Decision::Warn(reason);
        assert_eq!(warned.next(ms(1_000), ms(0), lost), warn);
        let ask = Decision::Ask(RunVerdict::MaxHold);
        assert_eq!(warned.next(ms(1_000), ms(0), lost), ask);
    }

    #[test]
    fn a_loss_stops_at_once() {
        let lost = Some(LostReason::NotOurs);
        let mut asked = watch(OnLoss::Stop);
        let verdict = RunVerdict::Lost(LostReason::NotOurs);
        assert_eq!(asked.next(ms(100), ms(0), lost), Decision::Ask(verdict));
        assert_eq!(asked.next(ms(100), ms(0), lost), Decision::Wait(ms(3_000)));
        assert_eq!(asked.next(ms(3_100), ms(0), lost), Decision::Kill(verdict));
        let mut killed = watch(OnLoss::Kill);
        assert_eq!(killed.next(ms(100), ms(0), lost), Decision::Kill(verdict));
        assert_eq!(verdict.exit_code(), LOST);
    }

    #[test]
    fn a_warning_comes_once_and_the_command_runs_on() {
        let lost = Some(LostReason::NotOurs);
        let mut watch = watch(OnLoss::Warn);
        assert_eq!(watch.next(ms(100), ms(10), None), Decision::Wait(TICK));
        let warn = Decision::Warn(LostReason::NotOurs);
        assert_eq!(watch.next(ms(100), ms(0), lost), warn);
        assert_eq!(watch.next(ms(200), ms(0), lost), Decision::Wait(TICK));
        assert_eq!(watch.verdict(), None);
    }

    #[test]
    fn the_longest_hold_stops_in_every_way_of_loss() {
        for on_loss in [OnLoss::Stop, OnLoss::Warn, OnLoss::Kill] {
            let mut watch = HoldWatch::of(on_loss, ms(500), Some(ms(1_000)));
            assert_eq!(
                watch.next(ms(900), ms(9_000), None),
                Decision::Wait(ms(100))
            );
            let expected = match on_loss {
                OnLoss::Kill => Decision::Kill(RunVerdict::MaxHold),
                OnLoss::Stop | OnLoss::Warn => Decision::Ask(RunVerdict::MaxHold),
            };
            assert_eq!(watch.next(ms(1_000), ms(9_000), None), expected);
            let kill = Decision::Kill(RunVerdict::MaxHold);
            assert_eq!(watch.next(ms(1_500), ms(9_000), None), kill);
            assert_eq!(RunVerdict::MaxHold.exit_code(), MAX_HOLD);
        }
    }
}
