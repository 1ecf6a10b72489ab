//! The meaning of a command on the wire: of a fair lock, and of an election, whose lock is fair too.

use crate::simulation::kept::Keeping;
use crate::simulation::tokens::Granting;

/// The parser reads the arguments only, so that it does not depend on the text of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum FairCommand<'a> {
    Look {
        field: &'a str,
        mode: &'a str,
        /// The other waiters of its client, which the command keeps present.
        others: Vec<&'a str>,
    },
    Lower {
        field: &'a str,
        target: &'a str,
    },
    Transfer {
        from: &'a str,
        to: &'a str,
    },
    Force {
        field: &'a str,
    },
    Renew {
        fields: Vec<&'a str>,
    },
    /// Ends a hold, and keeps its lock for the rest of the least time.
    Linger {
        field: &'a str,
        rest_ms: u64,
    },
    /// A leader publishes its value.
    Proclaim {
        field: &'a str,
        term: &'a str,
        number: u64,
        value: &'a str,
    },
    /// Asks for the leader.
    AskLeader,
    Other,
}

impl<'a> FairCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let keys: usize = args[2].parse().expect("a script has a number of keys");
        let values: Vec<&str> = args[3 + keys..].iter().map(String::as_str).collect();
        let is_field = |text: &str| text.contains(':');
        match values[..] {
            [from, to, _lease, _prefix, _publish, _worth] if is_field(to) => {
                Self::Transfer { from, to }
            }
            [field, target, _prefix, _publish, _worth, _leaves] => Self::Lower { field, target },
            [field, _prefix, _publish] => Self::Force { field },
            [field, rest, _prefix, _publish, _worth] if keys == 4 => Self::Linger {
                field,
                rest_ms: rest.parse().expect("it is a number"),
            },
            [field, term, number, value, _publish] => Self::Proclaim {
                field,
                term,
                number: number.parse().expect("it is a number"),
                value,
            },
            [] if keys == 2 => Self::AskLeader,
            [
                field,
                _target,
                _lease,
                _worth,
                _silence,
                mode,
                _prefix,
                _publish,
                ref others @ ..,
            ] => Self::Look {
                field,
                mode,
                others: others.to_vec(),
            },
            // An election's renewal has the key of the leader's value, too.
            _ if keys <= 2 => Self::Renew {
                fields: values.iter().step_by(2).copied().collect(),
            },
            _ => Self::Other,
        }
    }

    /// Whether the command shows that this waiter is present.
    pub(super) fn shows(&self, waiter: &str) -> bool {
        match self {
            Self::Look {
                field,
                mode,
                others,
            } => (*field == waiter && *mode != "try") || others.contains(&waiter),
            _ => false,
        }
    }

    /// The holds that the command concerns.
    pub(super) fn fields(&self) -> Vec<&'a str> {
        match self {
            Self::Look { field, .. }
            | Self::Lower { field, .. }
            | Self::Force { field }
            | Self::Linger { field, .. } => vec![field],
            Self::Transfer { from, to } => vec![from, to],
            Self::Renew { fields } => fields.clone(),
            // These commands change no hold.
            Self::Proclaim { .. } | Self::AskLeader | Self::Other => Vec::new(),
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

    /// The hold to which the command may grant the lock.
    pub(super) fn granting(&self) -> Option<Granting<'a>> {
        match *self {
            Self::Look { field, .. } => Some(Granting::Acquire(field)),
            Self::Transfer { to, .. } => Some(Granting::HandOver(to)),
            _ => None,
        }
    }
}

/// The holds whose counts or places a command may change.
pub(super) fn counted(args: &[String]) -> Vec<String> {
    match FairCommand::of(args) {
        FairCommand::Renew { .. } | FairCommand::Force { .. } | FairCommand::Linger { .. } => {
            Vec::new()
        }
        command => command.fields().into_iter().map(str::to_owned).collect(),
    }
}

/// The one lock of a run, and its queue.
pub(in crate::simulation) const KEY: &str = "door";
pub(in crate::simulation) const QUEUE: &str = "redisson_lock_queue:{door}";
pub(in crate::simulation) const PLACES: &str = "redisson_lock_timeout:{door}";
pub(super) const PRESENCE: &str = "lockdog_fair:{door}";
/// The leader's value in an election.
pub(super) const LEADER_KEY: &str = "lockdog_leader:{door}";
