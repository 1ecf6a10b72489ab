//! What one command is, and how its words are compared.

use crate::database::Database;
use crate::reply::CommandResult;
use crate::script::Commands;

/// One command that the server knows.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    pub(super) name: &'static str,
    /// The number of words including the name; if negative, the minimum.
    pub(super) arity: i32,
    pub(super) place: Place,
    pub(super) run: Run,
}

/// Where a command may come from.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Place {
    Anywhere,
    ClientOnly,
}

/// What executes a command.
#[derive(Clone, Copy)]
pub(super) enum Run {
    Plain(Plain),
    /// It runs a script, which calls other commands.
    Evaluating(Evaluating),
}

/// The caller is `None` in tests, and for a script whose caller has disconnected.
type Plain = fn(&mut Database, Option<u64>, &[Vec<u8>]) -> CommandResult;
type Evaluating = fn(&mut Database, Option<u64>, &[Vec<u8>], Commands) -> CommandResult;

pub(crate) const fn anywhere(name: &'static str, arity: i32, run: Plain) -> Command {
    Command {
        name,
        arity,
        place: Place::Anywhere,
        run: Run::Plain(run),
    }
}

pub(crate) const fn client_only(name: &'static str, arity: i32, run: Plain) -> Command {
    Command {
        place: Place::ClientOnly,
        ..anywhere(name, arity, run)
    }
}

/// A command of clients only, because scripts run no scripts.
pub(crate) const fn evaluating(name: &'static str, arity: i32, run: Evaluating) -> Command {
    Command {
        name,
        arity,
        place: Place::ClientOnly,
        run: Run::Evaluating(run),
    }
}

/// A word of a command, compared as Redis compares them.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
