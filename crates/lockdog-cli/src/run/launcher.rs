//! The launcher: lockdog once more, between lockdog and the command.
//!
//! It leads the group of the command's processes, so that a signal to the group reaches all of them. It
//! outlives a lockdog that is killed, and kills the command then: without it, the command would continue
//! without the lock.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, getpgrp, getpid, getppid, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal,
};
use tokio::process::Child;

use super::descendants::{self, Process};
use super::program::{Reach, command_of, exit_code, not_started, pid_of};
use super::signals::{Signals, number};
use crate::args::Words;
use crate::failed::{CANNOT, Failed};
use crate::output::complain;

/// Lockdog once more, as the launcher of a command.
pub(super) fn launcher_command(reach: Reach, words: &Words) -> Command {
    // Not by its path, where an upgrade may have put another program meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("lockdog")
        .arg(WORD)
        .arg(process::id().to_string())
        .arg(match reach {
            Reach::Group => GROUP,
            Reach::Descendants => DESCENDANTS,
        })
        .args(words);
    if reach == Reach::Group {
        command.process_group(0);
    }
    command
}

/// The whole of this process, if it is a launcher: returns its exit code.
pub(crate) fn launcher() -> Option<u8> {
    let mut words = env::args_os().skip(1);
    if words.next()? != WORD {
        return None;
    }
    let parent = words.next().and_then(process_id);
    let reach = words.next().map(|word| match word == GROUP {
        true => Reach::Group,
        false => Reach::Descendants,
    });
    let words: Words = words.collect();
    let (Some(parent), Some(reach), false) = (parent, reach, words.is_empty()) else {
        complain("this form is for lockdog itself; use `lockdog run`");
        return Some(CANNOT);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(help(parent, reach, &words)),
        Err(error) => Err(Failed::new(error)),
    };
    Some(ended.unwrap_or_else(|Failed { code, text }| {
        complain(text);
        code
    }))
}

async fn help(parent: i32, reach: Reach, words: &Words) -> Result<u8, Failed> {
    // The signals are for the command. The launcher has to outlive them.
    let mut signals = Signals::new().map_err(Failed::new)?;
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Failed::new)?;
    // What loses its parent stays below this process, and can be found, also after lockdog was killed.
    set_child_subreaper(Some(getpid())).map_err(Failed::new)?;
    let is_orphan = || getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(parent);
    // Lockdog may have died before the kernel was asked to report it.
    if is_orphan() {
        return Ok(CANNOT);
    }
    if let Some(signal) = signals.arrived().await {
        return Ok(128 + number(signal));
    }
    let command = command_of(words);
    let command = tokio::process::Command::from(command).spawn();
    let mut command = command.map_err(|error| not_started(words, &error))?;
    // A signal that came during the start may have reached this process only.
    while let Some(signal) = signals.arrived().await {
        send(&command, signal);
    }
    loop {
        if is_orphan() {
            end(reach).await;
        }
        // What lost its parent is a child of this process.
        if let Some(pid) = pid_of(&command) {
            descendants::reap(pid);
        }
        tokio::select! {
            status = command.wait() => return status.map(exit_code).map_err(Failed::new),
            _ = signals.next() => {}
            () = tokio::time::sleep(CHECK_PERIOD) => {}
        }
    }
}

fn send(command: &Child, signal: Signal) {
    if let Some(pid) = pid_of(command) {
        // It may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// Kills everything that belongs to the command, and ends this process.
async fn end(reach: Reach) -> ! {
    let mut quiet = 0;
    for _ in 0..MOST_PASSES {
        let mut below = match reach {
            Reach::Group => descendants::in_session(),
            Reach::Descendants => descendants::of(getpid()),
        };
        below.retain(Process::is_alive);
        // A process that ended during the pass may have started one that the pass did not see.
        quiet = if below.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET_PASSES {
            break;
        }
        for process in below {
            let _ = kill_process(process.pid(), Signal::KILL);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if reach == Reach::Group {
        // The kernel may not list the processes.
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    }
    process::exit(i32::from(CANNOT))
}

fn process_id(word: OsString) -> Option<i32> {
    let number = word.to_str()?.parse().ok()?;
    Pid::from_raw(number).map(|_| number)
}

const WORD: &str = "__command";
const GROUP: &str = "group";
const DESCENDANTS: &str = "descendants";
/// The kernel reports the death of lockdog immediately. A command that changed its user or its rights is the
/// exception.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Each pass finds what was started during the previous one.
const MOST_PASSES: u32 = 1_000;
/// After this many passes that find nothing, nothing is left.
const QUIET_PASSES: u32 = 5;
