//! The meaning of a command on the wire.

use super::kept::Keeping;
use super::tokens::Granting;
use crate::key::is_of_waiting_list;

/// One of lockdog's commands. The parser reads the arguments only, so that it does not depend on the
/// text of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum SimulatedCommand<'a> {
    /// An acquire, unlock or settle: it sets the count of a hold.
    Count {
        field: &'a str,
        target: u32,
        acquires: bool,
    },
    /// Ends one hold and begins the next.
    Transfer {
        from: &'a str,
        to: &'a str,
    },
    /// Ends a hold, and keeps its lock for the rest of the least time.
    Linger {
        field: &'a str,
        rest_ms: u64,
    },
    Renew {
        fields: Vec<&'a str>,
    },
    Force {
        field: &'a str,
    },
    Other,
}

impl<'a> SimulatedCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let keys: usize = args[2].parse().expect("a script has a number of keys");
        let values: Vec<&str> = args[3 + keys..].iter().map(String::as_str).collect();
        let is_number = |text: &str| text.parse::<u64>().is_ok();
        let is_list = |text: &str| text.is_empty() || is_of_waiting_list(text);
        match values[..] {
            [field, target, _lease] if is_number(target) => Self::count(field, target, true),
            [field, target, _lease, TOKENS_FROM_CLOCK | TOKENS_FROM_ONE] => {
                Self::count(field, target, true)
            }
            [
                from,
                to,
                _lease,
                _channel,
                _publishes,
                TOKENS_FROM_CLOCK | TOKENS_FROM_ONE,
                _list,
            ] => Self::Transfer { from, to },
            [field, target, _lease, .., list, _client, _waited, _yields]
                if is_of_waiting_list(list) =>
            {
                Self::count(field, target, true)
            }
            [field, target, _channel, _publishes, list] if is_number(target) && is_list(list) => {
                Self::count(field, target, false)
            }
            [field, target, _channel, publishes] if !is_number(publishes) => {
                Self::count(field, target, false)
            }
            [field, rest, _channel, _publishes, _worth] if is_number(rest) => Self::Linger {
                field,
                rest_ms: rest.parse().expect("it is a number"),
            },
            [field, _channel, _publishes] => Self::Force { field },
            [from, to, _lease, _channel, _publishes, list] if is_list(list) => {
                Self::Transfer { from, to }
            }
            _ => Self::Renew {
                fields: values.iter().step_by(2).copied().collect(),
            },
        }
    }

    fn count(field: &'a str, target: &str, acquires: bool) -> Self {
        Self::Count {
            field,
            target: target.parse().expect("a target is a small number"),
            acquires,
        }
    }

    /// The hold to which the command may grant the lock.
    pub(super) fn granting(&self) -> Option<Granting<'a>> {
        match *self {
            Self::Count {
                field,
                acquires: true,
                ..
            } => Some(Granting::Acquire(field)),
            Self::Transfer { to, .. } => Some(Granting::HandOver(to)),
            _ => None,
        }
    }

    /// Its effect on a lock that is kept for a least time.
    pub(super) fn keeping(&self) -> Keeping<'a> {
        Keeping {
            grants: self.granting().map(|it| it.field()),
            lingers: match *self {
                Self::Linger { field, rest_ms } => Some((field, rest_ms)),
                _ => None,
            },
            renews: matches!(self, Self::Renew { .. }),
            fields: self.fields(),
        }
    }

    /// The holds whose counts the command may change.
    pub(super) fn counted(&self) -> Vec<&'a str> {
        match self {
            Self::Count { .. } | Self::Transfer { .. } => self.fields(),
            Self::Renew { .. } | Self::Force { .. } | Self::Linger { .. } | Self::Other => {
                Vec::new()
            }
        }
    }

    /// The holds that the command concerns.
    pub(super) fn fields(&self) -> Vec<&'a str> {
        match self {
            Self::Count { field, .. } | Self::Force { field } | Self::Linger { field, .. } => {
                vec![field]
            }
            Self::Transfer { from, to } => vec![from, to],
            Self::Renew { fields } => fields.clone(),
            Self::Other => Vec::new(),
        }
    }
}

/// The start of the tokens of a fenced lock.
const TOKENS_FROM_CLOCK: &str = "clock";
const TOKENS_FROM_ONE: &str = "one";

/// The holds whose counts a command may change.
pub(super) fn counted(args: &[String]) -> Vec<String> {
    let command = SimulatedCommand::of(args);
    command.counted().into_iter().map(str::to_owned).collect()
}
