//! What lockdog and the launcher both need to know of a command.

use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use rustix::process::Pid;
use tokio::process::Child;

use crate::args::Words;
use crate::failed::{CANNOT, Failed, NOT_EXECUTABLE, NOT_FOUND};
use crate::output::clean;

/// Which processes belong to the command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    /// The group that the launcher leads, and what left it for another group of the session.
    Group,
    /// All processes below the launcher. The group is that of the terminal, and has others, too.
    Descendants,
}

/// The exit code of a process, as shells count it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(CANNOT)
}

/// The words of a command as one that can be started.
pub(super) fn command_of(words: &Words) -> Command {
    let (program, arguments) = words.split_first().expect("clap asks for a command");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// `None` once it was waited for.
pub(super) fn pid_of(process: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process.id()?).ok()?)
}

/// The failure of a command that cannot be executed, with the exit code that shells give.
pub(super) fn not_started(words: &Words, error: &io::Error) -> Failed {
    let code = match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let program = clean(&words[0].to_string_lossy());
    Failed {
        code,
        ..Failed::new(format_args!("{program}: {error}"))
    }
}
