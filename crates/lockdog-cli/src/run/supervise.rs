//! Watches a command and its lock until the command has ended.

use std::time::{Duration, Instant};

use lockdog::Guard;
use lockdog::error::LostReason;
use rustix::process::{Signal, getpid, kill_process};

use super::acquire::HeldLock;
use super::arguments::Args;
use super::command::{LauncherEnd, RunningCommand};
use super::signals::Signals;
use super::verdict::{Decision, HoldWatch, RunVerdict, TICK};
use crate::duration;
use crate::output::{Output, clean};

/// How a command ended.
pub(super) struct Ended {
    /// Its own exit code.
    pub(super) code: u8,
    /// Why it was stopped, if it was.
    pub(super) verdict: Option<RunVerdict>,
    /// A loss that is not the reason of the end.
    pub(super) other_loss: Option<LostReason>,
}

pub(super) async fn supervise(
    args: &Args,
    acquired: &HeldLock,
    command: &mut RunningCommand,
    signals: &mut Signals,
    output: Output,
) -> Ended {
    let began = Instant::now();
    let guard = acquired.guard();
    let mut watch = HoldWatch::new(args);
    let mut lost: Option<LostReason> = None;
    let mut has_killed = false;
    let next = |watch: &mut HoldWatch, lost: Option<LostReason>| {
        // A loss makes it zero, so the loss is asked for afterwards.
        let remaining = guard.remaining();
        let lost = lost.or_else(|| loss(guard));
        watch.next(began.elapsed(), remaining, lost)
    };
    let LauncherEnd { code, is_killed } = loop {
        command.reap();
        let pause = match next(&mut watch, lost) {
            Decision::Wait(pause) => pause,
            Decision::Warn(reason) => {
                output.note(format_args!("{} was lost: {reason}", clean(&args.name)));
                continue;
            }
            Decision::Ask(verdict) => {
                let grace = duration::shown(args.grace());
                output.note(format_args!(
                    "{}: TERM, and KILL in {grace}",
                    why(args, verdict)
                ));
                command.signal(Signal::TERM);
                continue;
            }
            Decision::Kill(verdict) => {
                if !has_killed {
                    output.note(format_args!("{}: KILL", why(args, verdict)));
                    has_killed = true;
                }
                command.signal(Signal::KILL);
                AGAIN
            }
        };
        tokio::select! {
            biased;
            end = command.wait() => break end,
            signal = signals.next() => forward(command, signal),
            reason = guard.lost(), if lost.is_none() => lost = Some(reason.reason()),
            // Timers stop while a machine sleeps, so the lease is looked at again soon.
            () = tokio::time::sleep(pause.min(TICK)) => {}
        }
    };
    if is_killed || watch.verdict().is_some() {
        let is_due = || is_killed || matches!(next(&mut watch, lost), Decision::Kill(_));
        sweep(command, is_due).await;
    }
    let (verdict, mut other_loss) = (watch.verdict(), watch.warned());
    if verdict == Some(RunVerdict::MaxHold) {
        // It may have been found after TERM.
        other_loss = other_loss.or(lost).or_else(|| loss(guard));
    }
    Ended {
        code,
        verdict,
        other_loss,
    }
}

/// Ends what the command has left behind: a shell that ends at TERM may leave the program that it started.
/// KILL is sent as soon as it is due.
async fn sweep(command: &RunningCommand, mut is_due: impl FnMut() -> bool) {
    let mut killed = None;
    while !command.is_gone() {
        if is_due() {
            command.signal(Signal::KILL);
            let killed = *killed.get_or_insert_with(Instant::now);
            // Nothing more can be done about a process that the kernel does not end.
            if killed.elapsed() > MOST {
                return;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn loss(guard: &Guard) -> Option<LostReason> {
    match guard.verdict() {
        lockdog::report::Verdict::Lost(reason) => Some(reason),
        _ => None,
    }
}

fn forward(command: &RunningCommand, signal: Signal) {
    if signal == Signal::TSTP {
        return stop(command);
    }
    // The terminal sends these to the command itself.
    let by_keys = [Signal::INT, Signal::QUIT, Signal::CONT, Signal::WINCH];
    if !(command.has_terminal() && by_keys.contains(&signal)) {
        command.signal(signal);
    }
}

/// Stops the command, and then this process: the lock is not renewed while it is stopped. CONT is forwarded.
fn stop(command: &RunningCommand) {
    command.signal(Signal::STOP);
    let _ = kill_process(getpid(), Signal::STOP);
}

fn why(args: &Args, verdict: RunVerdict) -> String {
    let name = clean(&args.name);
    match verdict {
        RunVerdict::Jeopardy => format!("{name} cannot be renewed and is about to be lost"),
        RunVerdict::Lost(reason) => format!("{name} was lost: {reason}"),
        RunVerdict::MaxHold => format!("{name} was held for --max-hold"),
    }
}

/// The pause between two searches for processes that are left.
const AGAIN: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(2);
