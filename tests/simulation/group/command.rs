//! The meaning of a group lock's command on the wire.

/// The parser reads the arguments only, so that it does not depend on the text of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum GroupCommand<'a> {
    Acquire {
        field: &'a str,
        target: u32,
        values: Vec<&'a str>,
    },
    /// An unlock or a settlement.
    Lower {
        field: &'a str,
        target: u32,
    },
    Force {
        field: &'a str,
    },
    Renew {
        fields: Vec<&'a str>,
    },
    Other,
}

impl<'a> GroupCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let keys: usize = args[2].parse().expect("a script has a number of keys");
        let args: Vec<&str> = args[3 + keys..].iter().map(String::as_str).collect();
        let number = |text: &str| text.parse::<u32>().ok();
        match args[..] {
            [field, target, CHANNEL, _publish, ..] => Self::Lower {
                field,
                target: number(target).expect("a target is a small number"),
            },
            [field, CHANNEL, _publish, ..] => Self::Force { field },
            [field, target, lease, ref values @ ..] if number(lease).is_some() => Self::Acquire {
                field,
                target: number(target).expect("a target is a small number"),
                values: values.to_vec(),
            },
            [_field, lease, _values, ..] if number(lease).is_some() => Self::Renew {
                fields: args.iter().step_by(3).copied().collect(),
            },
            _ => Self::Other,
        }
    }

    /// The holds that the command concerns.
    pub(super) fn fields(&self) -> &[&'a str] {
        match self {
            Self::Acquire { field, .. } | Self::Lower { field, .. } | Self::Force { field } => {
                std::slice::from_ref(field)
            }
            Self::Renew { fields } => fields,
            Self::Other => &[],
        }
    }

    /// The count to which the command sets its hold, unless it fails.
    pub(super) fn target(&self) -> Option<u32> {
        match self {
            Self::Acquire { target, .. } | Self::Lower { target, .. } => Some(*target),
            Self::Force { .. } | Self::Renew { .. } | Self::Other => None,
        }
    }

    /// The hold whose count the command may change.
    pub(super) fn counted(&self) -> Option<&'a str> {
        match self {
            Self::Acquire { field, .. } | Self::Lower { field, .. } => Some(field),
            Self::Force { .. } | Self::Renew { .. } | Self::Other => None,
        }
    }
}

/// The holds whose counts a command may change.
pub(super) fn counted(args: &[String]) -> Vec<String> {
    let field = GroupCommand::of(args).counted().map(str::to_owned);
    field.into_iter().collect()
}

/// The one group of a run, and its values.
pub(in crate::simulation) const KEY: &str = "class";
pub(in crate::simulation) const CHANNEL: &str = "redisson_lock__channel:{class}";
pub(super) const VALUES: [&str; 4] = ["Jack", "Mary", "Tom", "Ann"];
