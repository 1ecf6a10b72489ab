//! The meaning of a semaphore's command on the wire.

/// The parser reads the arguments only, so that it does not depend on the text of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum SemaphoreCommand<'a> {
    Acquire {
        field: &'a str,
        /// 0: all that are free.
        permits: u32,
    },
    Release {
        field: &'a str,
        target: u32,
    },
    /// A hand-over from one request to another.
    Transfer {
        from: &'a str,
        to: &'a str,
    },
    Set {
        permits: i64,
    },
    /// The requests whose names begin with this text.
    Reclaim {
        prefix: &'a str,
    },
    Other,
}

impl<'a> SemaphoreCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let count: usize = args[2].parse().expect("a script has a number of keys");
        let args: Vec<&str> = args[3..].iter().map(String::as_str).collect();
        let (_, values) = args.split_at(count);
        let number = |text: &str| text.parse().expect("it is a small number");
        match *values {
            [prefix, CHANNEL, _publish] => Self::Reclaim { prefix },
            [field, permits] => Self::Acquire {
                field,
                permits: number(permits),
            },
            [from, to, _permits, _doubt, CHANNEL, _publish] => Self::Transfer { from, to },
            [field, target, CHANNEL, _publish, _doubt, _known] => Self::Release {
                field,
                target: number(target),
            },
            [permits, _ttl, _kept, CHANNEL, _publish] => Self::Set {
                permits: number(permits).into(),
            },
            _ => Self::Other,
        }
    }

    /// The requests whose shares it may change.
    pub(super) fn fields(&self) -> Vec<&'a str> {
        match self {
            Self::Acquire { field, .. } | Self::Release { field, .. } => vec![field],
            Self::Transfer { from, to } => vec![from, to],
            Self::Set { .. } | Self::Reclaim { .. } | Self::Other => Vec::new(),
        }
    }
}

/// The requests whose shares a command may change.
pub(super) fn counted(args: &[String]) -> Vec<String> {
    let command = SemaphoreCommand::of(args);
    command.fields().into_iter().map(str::to_owned).collect()
}

/// The one semaphore of a run.
pub(in crate::simulation) const KEY: &str = "seats";
pub(super) const LEDGER: &str = "lockdog_ledger:{seats}";
pub(in crate::simulation) const CHANNEL: &str = "redisson_sc:{seats}";
