//! `lockdog run`: a command under a lock.

mod acquire;
mod ancestors;
mod arguments;
mod command;
mod descendants;
mod environment;
mod launcher;
mod program;
mod report;
mod signals;
mod supervise;
mod verdict;

use std::time::Instant;

use rustix::process::Signal;

use crate::connect::Settings;
use crate::failed::{Failed, NOT_EXECUTABLE, NOT_FOUND};
use crate::output::{Output, clean};

pub(crate) use arguments::Args;
pub(crate) use launcher::launcher;
pub(crate) use signals::{Signals, number};

use acquire::{HeldLock, Outcome, acquire};
use ancestors::Ancestors;
use command::RunningCommand;
use report::{Ending, Report};
use supervise::{Ended, supervise};

/// Runs the command under the lock. Returns its exit code, or that of lockdog.
pub(crate) async fn run(args: Args, settings: &Settings, output: Output) -> Result<u8, Failed> {
    args.check(settings.is_quorum())?;
    let mut report = Report::open(&args)?;
    let ended = under_lock(&args, settings, output, &mut report).await;
    if let Err(failed) = &ended {
        report.failed(failed);
    }
    report.write(output);
    ended
}

async fn under_lock(
    args: &Args,
    settings: &Settings,
    output: Output,
    report: &mut Report,
) -> Result<u8, Failed> {
    let mut signals = Signals::of_command()?;
    let ancestors = Ancestors::of_environment();
    let acquired = match acquire(args, settings, &ancestors, &mut signals, output, report).await? {
        Outcome::Acquired(acquired) => acquired,
        Outcome::Nested if args.fenced && !environment::has_token_above(args) => {
            return Err(Failed::new(format_args!(
                "--reenter --fenced: the environment has no token of {}; use --fenced in the lockdog run that \
                 holds it, and run no other lock in between",
                clean(&args.name)
            )));
        }
        Outcome::Nested => {
            // It may have come after the wait, while the client was shut down. The command would not get it.
            if let Some(signal) = signals.arrived().await {
                return Ok(interrupted(signal, report));
            }
            return Err(command::replace(args, settings));
        }
        Outcome::Busy => {
            let code = args.conflict_exit_code;
            report.ended(Ending::Busy, code);
            return Ok(code);
        }
        Outcome::Signalled(signal) => return Ok(interrupted(signal, report)),
    };
    // The grant and a signal may come together. Of the keys of a terminal, only a command that runs gets its own.
    if let Some(signal) = signals.arrived().await {
        report.lost(acquired.release(None, output).await);
        return Ok(interrupted(signal, report));
    }
    let environment = environment::of(args, settings, &acquired, &ancestors);
    let started = Instant::now();
    let mut command = match RunningCommand::start(args, &environment, &mut signals) {
        Ok(command) => command,
        Err(failed) => {
            report.lost(acquired.release(None, output).await);
            return Err(failed);
        }
    };
    let Ended {
        code,
        verdict,
        other_loss,
    } = supervise(args, &acquired, &mut command, &mut signals, output).await;
    report.held(started.elapsed());
    if let Some(verdict) = verdict {
        let code = verdict.exit_code();
        report.stopped(verdict, code);
        report.lost(other_loss);
        acquired.abandon().await;
        return Ok(code);
    }
    report.ended(Ending::Exited, code);
    // A command that cannot be started here must not keep the hosts from theirs that can start it.
    if !matches!(code, NOT_EXECUTABLE | NOT_FOUND) {
        keep(args, &acquired, started, &mut signals).await;
    }
    report.lost(acquired.release(other_loss, output).await);
    Ok(code)
}

/// The end by a signal before the command: returns the exit code.
fn interrupted(signal: Signal, report: &mut Report) -> u8 {
    let failed = Failed::signalled(number(signal));
    report.ended(Ending::Interrupted, failed.code);
    failed.code
}

/// Keeps the lock after the command for the rest of `--at-least`, unless a signal or the loss ends it.
async fn keep(args: &Args, acquired: &HeldLock, started: Instant, signals: &mut Signals) {
    let rest = args.at_least.saturating_sub(started.elapsed());
    if rest.is_zero() {
        return;
    }
    tokio::select! {
        () = tokio::time::sleep(rest) => {}
        _ = signals.ending() => {}
        _ = acquired.guard().lost() => {}
    }
}
