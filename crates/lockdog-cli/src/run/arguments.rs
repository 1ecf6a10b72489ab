//! The arguments of `lockdog run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::args::Words;
use crate::duration;
use crate::failed::Failed;

/// Run a command while holding a lock
///
/// The exit code is that of the command; 128+n if the signal n ended it; 75 (or -E) if another owner held the
/// lock until the end of the wait; 76 if the lock was lost, so that lockdog stopped the command; 124 for
/// --max-hold; 125 if lockdog itself failed; 126 if the command cannot be executed; 127 if it was not found.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The lock")]
pub(crate) struct Args {
    /// How long to wait for the lock: a time, or forever
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME|forever", default_value = "forever", value_parser = wait)]
    wait: Wait,
    /// Do not wait: as --wait 0
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,
    /// The exit code if another owner held the lock until the end of the wait
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Hold this lock, too: all of them or none
    #[arg(long, value_name = "NAME", conflicts_with = "fenced")]
    pub(crate) also: Vec<String>,
    /// How long the lock stays if this machine dies; it is renewed every third of this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) lease: Duration,
    /// Keep the lock for at least this long, even if the command ends earlier
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, value_parser = duration::parse)]
    pub(crate) at_least: Duration,
    /// Use a fenced lock, and give the command its token: LOCKDOG_TOKEN
    #[arg(long)]
    pub(crate) fenced: bool,
    /// If an outer `lockdog run` holds the lock, run the command under that hold
    #[arg(long)]
    pub(crate) reenter: bool,
    /// What happens to the command before the lock is lost: TERM and then KILL; KILL; or a note only
    #[arg(long, value_enum, default_value_t = OnLoss::Stop, help_heading = "The command")]
    pub(crate) lost: OnLoss,
    /// The time between TERM and KILL: a third of the lease at most, which is the default
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "The command")]
    grace: Option<Duration>,
    /// Stop the command after this time, with exit code 124
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "The command")]
    pub(crate) max_hold: Option<Duration>,
    /// COMMAND is one text for the shell: $SHELL, or /bin/sh
    #[arg(short = 'c', long, help_heading = "The command")]
    shell: bool,
    /// Leave LOCKDOG_PASSWORD, and the passwords in LOCKDOG_URL or --url, in the command's environment
    #[arg(long, help_heading = "The command")]
    pub(crate) pass_credentials: bool,
    /// Append one JSON line about the run to this file
    #[arg(long, value_name = "FILE", help_heading = "The command")]
    pub(crate) report: Option<PathBuf>,
    /// The name of the lock: its key
    pub(crate) name: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wait {
    Forever,
    /// Zero: one attempt.
    For(Duration),
}

/// What happens to the command when the lock is about to be lost, or is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnLoss {
    Kill,
    Stop,
    Warn,
}

impl Args {
    /// Checks what one argument alone does not show.
    pub(super) fn check(&self, is_quorum: bool) -> Result<(), Failed> {
        let refuse = |text: &str| Err(Failed::usage(text));
        if self.lease < SHORTEST_LEASE {
            return refuse(
                "--lease is 2s or longer: the command needs time to end before the lease does",
            );
        }
        if self.grace() > self.lease / 3 {
            return refuse("--grace is a third of --lease at most");
        }
        if self.max_hold == Some(Duration::ZERO) {
            return refuse("--max-hold is longer than 0");
        }
        if self.shell && self.command.len() != 1 {
            return refuse("with -c the command is one text; put it in quotes");
        }
        if is_quorum && !self.also.is_empty() {
            return refuse("--also works with one server; give one --url");
        }
        let mut names: Vec<&str> = self.names().collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != self.names().count() {
            return refuse("--also repeats a name");
        }
        Ok(())
    }

    pub(super) fn wait(&self) -> Wait {
        match self.nonblock {
            true => Wait::For(Duration::ZERO),
            false => self.wait,
        }
    }

    pub(super) fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.lease / 3)
    }

    /// The names of all locks.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let also = self.also.iter().map(String::as_str);
        std::iter::once(self.name.as_str()).chain(also)
    }

    /// The program to execute and its arguments.
    pub(super) fn words(&self) -> Words {
        if !self.shell {
            return self.command.clone();
        }
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        let shell = shell.unwrap_or_else(|| "/bin/sh".into());
        let mut words = vec![shell, OsString::from("-c")];
        words.extend(self.command.iter().cloned());
        words
    }
}

fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        _ => duration::parse(text)
            .map(Wait::For)
            .map_err(|error| error.to_string()),
    }
}

/// A third of it is the grace, and the renewals come every third.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);
