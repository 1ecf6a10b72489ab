//! The meaning of a semaphore's command on the wire.

/// The parser reads the arguments only, so that it does not depend on the text of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum PermitCommand<'a> {
    Acquire { ids: Vec<&'a str> },
    Release { id: &'a str },
    GiveBack { ids: Vec<&'a str> },
    Renew { ids: Vec<&'a str> },
    Other,
}

impl<'a> PermitCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let count: usize = args[2].parse().expect("a script has a number of keys");
        let args: Vec<&str> = args[3..].iter().map(String::as_str).collect();
        let (keys, values) = args.split_at(count);
        match values {
            [_lease, CHANNEL, _publish, ids @ ..] => Self::Acquire { ids: ids.into() },
            [id, _target, CHANNEL, _publish] => Self::Release { id },
            [CHANNEL, _publish, ids @ ..] => Self::GiveBack { ids: ids.into() },
            _ if keys.first() == Some(&IN_USE) => Self::Renew {
                ids: values.iter().step_by(2).copied().collect(),
            },
            _ => Self::Other,
        }
    }

    /// The permits that the command may take, extend or release.
    pub(super) fn ids(&self) -> &[&'a str] {
        match self {
            Self::Acquire { ids } | Self::GiveBack { ids } | Self::Renew { ids } => ids,
            Self::Release { id } => std::slice::from_ref(id),
            Self::Other => &[],
        }
    }
}

/// The permits that a command may take or release.
pub(super) fn counted(args: &[String]) -> Vec<String> {
    match PermitCommand::of(args) {
        PermitCommand::Renew { .. } => Vec::new(),
        command => command.ids().iter().map(|id| (*id).to_owned()).collect(),
    }
}

/// The one semaphore of a run.
pub(in crate::simulation) const KEY: &str = "seats";
pub(in crate::simulation) const IN_USE: &str = "{seats}:timeout";
pub(in crate::simulation) const CHANNEL: &str = "redisson_sc:{seats}";
