//! The command as a process, seen from lockdog: between them is the launcher.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, set_child_subreaper};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};

use super::arguments::Args;
use super::descendants::{self, Process};
use super::environment::{self, Environment};
use super::launcher::launcher_command;
use super::program::{Reach, command_of, exit_code, not_started, pid_of};
use super::signals::Signals;
use crate::connect::Settings;
use crate::failed::{CANNOT, Failed};

/// A started command. It is killed with everything below it if this process dies.
pub(super) struct RunningCommand {
    launcher: Child,
    /// Of the launcher.
    pid: Pid,
    reach: Reach,
    /// Nothing is left in the group of the launcher, and its number may be another one's.
    is_group_gone: Cell<bool>,
}

/// How the launcher ended.
pub(super) struct LauncherEnd {
    /// The exit code of the command, or 128+n after the signal n.
    pub(super) code: u8,
    /// A signal ended the launcher itself, and the command may still run.
    pub(super) is_killed: bool,
}

impl RunningCommand {
    pub(super) fn start(
        args: &Args,
        environment: &Environment,
        signals: &mut Signals,
    ) -> Result<Self, Failed> {
        // In the foreground group of a terminal, or Ctrl-C, editors and ssh would not work.
        let reach = match io::stdin().is_terminal() {
            true => Reach::Descendants,
            false => Reach::Group,
        };
        let own = |error| Failed::new(format_args!("lockdog cannot start itself again: {error}"));
        if reach == Reach::Group {
            // The terminal stops the group of lockdog, and the command has another one. From before the command runs:
            // it would otherwise run on while lockdog is stopped, and the lock would end.
            signals.add_stop();
        }
        // What loses its parent stays below this process, and can be found.
        set_child_subreaper(Some(getpid())).map_err(|error| own(error.into()))?;
        unignore_child().map_err(own)?;
        let mut command = launcher_command(reach, &args.words());
        environment.apply(&mut command);
        let launcher = tokio::process::Command::from(command)
            .spawn()
            .map_err(own)?;
        let pid = pid_of(&launcher).ok_or_else(|| Failed::new("the command has no process"))?;
        Ok(Self {
            launcher,
            pid,
            reach,
            is_group_gone: Cell::new(false),
        })
    }

    /// Waits for the end of the command.
    ///
    /// # Cancel safety
    ///
    /// It can be called again.
    pub(super) async fn wait(&mut self) -> LauncherEnd {
        match self.launcher.wait().await {
            Ok(status) => LauncherEnd {
                code: exit_code(status),
                is_killed: status.signal().is_some(),
            },
            Err(_) => LauncherEnd {
                code: CANNOT,
                is_killed: true,
            },
        }
    }

    /// Reaps the processes of the command that have ended as children of this process, because they lost their parent.
    pub(super) fn reap(&self) {
        descendants::reap(self.pid);
    }

    /// Whether the terminal itself sends the command what its keys mean, and when it changes.
    pub(super) fn has_terminal(&self) -> bool {
        self.reach == Reach::Descendants
    }

    /// Sends a signal to the command and what it started.
    pub(super) fn signal(&self, signal: Signal) {
        match self.reach {
            Reach::Group => {
                self.signal_outside(signal);
                if !self.is_group_gone.get() {
                    // It may have ended meanwhile.
                    let _ = kill_process_group(self.pid, signal);
                }
            }
            Reach::Descendants => {
                let has_command = self.signal_processes(signal);
                if signal == Signal::KILL
                    && let Some(launcher) = pid_of(&self.launcher)
                {
                    // The terminal may have stopped the launcher, which would not see the end of the command.
                    let _ = kill_process(launcher, Signal::CONT);
                }
                // Before it starts the command, the launcher ends in place of it.
                if !has_command && signal != Signal::KILL {
                    let _ = kill_process(self.pid, signal);
                    // It may have started the command between the search and the signal, and passes on what it gets
                    // at the start only.
                    self.signal_processes(signal);
                }
            }
        }
    }

    /// Signals what has left the group of the launcher, and not the session.
    fn signal_outside(&self, signal: Signal) {
        let outside = descendants::outside(self.pid);
        for process in &outside {
            let is_meant = match signal {
                Signal::KILL | Signal::STOP | Signal::CONT => true,
                // A program such as timeout(1) passes them on to what it started.
                Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM => {
                    process.is_first_of(&outside)
                }
                // They would end such a program, and not what it started.
                _ => false,
            };
            if is_meant {
                // It may have ended meanwhile.
                let _ = kill_process(process.pid(), signal);
            }
        }
    }

    /// Returns whether there were any.
    fn signal_processes(&self, signal: Signal) -> bool {
        let processes = self.processes();
        for process in &processes {
            // It may have ended meanwhile.
            let _ = kill_process(process.pid(), signal);
        }
        !processes.is_empty()
    }

    /// Whether nothing is left of the command, and of what it started.
    pub(super) fn is_gone(&self) -> bool {
        match self.reach {
            Reach::Group => {
                if !self.is_group_gone.get() {
                    let is_gone = !descendants::is_group_alive(self.pid);
                    self.is_group_gone.set(is_gone);
                }
                self.is_group_gone.get() && descendants::outside(self.pid).is_empty()
            }
            Reach::Descendants => self.processes().is_empty(),
        }
    }

    /// The processes of the command, without the launcher: it has to find out how the command ends.
    fn processes(&self) -> Vec<Process> {
        let mut processes = descendants::of(getpid());
        processes.retain(|process| process.pid() != self.pid && process.is_alive());
        processes
    }
}

/// Replaces this process by the command, which then runs under the hold of a run above. Returns only if that
/// fails.
pub(super) fn replace(args: &Args, settings: &Settings) -> Failed {
    if let Err(error) = unignore_child() {
        return Failed::new(format_args!("no signals: {error}"));
    }
    let words = args.words();
    let mut command = command_of(&words);
    environment::under_hold_above(args, settings).apply(&mut command);
    not_started(&words, &command.exec())
}

/// Some programs leave CHLD ignored to what they start. Then the kernel keeps no exit code of a child. With a handler
/// here, CHLD has its default in what this process starts, and in what replaces it.
fn unignore_child() -> io::Result<()> {
    unix::signal(SignalKind::child()).map(drop)
}
