//! The meaning of a read/write lock's command on the wire.

/// The parser reads the arguments only, so that it does not depend on the text of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RwCommand<'a> {
    Acquire {
        field: &'a str,
        /// A write that takes over from its owner's read hold.
        upgrades: bool,
    },
    /// An unlock or a settlement.
    Lower {
        field: &'a str,
        /// It leaves the hold some of its count.
        is_inner: bool,
    },
    Renew {
        fields: Vec<&'a str>,
    },
    Other,
}

impl<'a> RwCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let keys: usize = args[2].parse().expect("a script has a number of keys");
        let values: Vec<&str> = args[3 + keys..].iter().map(String::as_str).collect();
        match values[..] {
            [
                field,
                _target,
                _lease,
                mode,
                _partner,
                flag,
                _announced,
                BEFORE_FIELDS,
            ] => Self::Acquire {
                field,
                upgrades: mode == "write" && flag == "1",
            },
            [
                field,
                target,
                _channel,
                _publish,
                _mode,
                BEFORE_FIELDS,
                _lease,
            ] => Self::Lower {
                field,
                is_inner: target != "0",
            },
            _ => Self::Renew {
                fields: values.iter().step_by(2).copied().collect(),
            },
        }
    }

    /// The holds that the command concerns.
    pub(super) fn fields(&self) -> &[&'a str] {
        match self {
            Self::Acquire { field, .. } | Self::Lower { field, .. } => std::slice::from_ref(field),
            Self::Renew { fields } => fields,
            Self::Other => &[],
        }
    }
}

/// The holds whose counts a command may change.
pub(super) fn counted(args: &[String]) -> Vec<String> {
    match RwCommand::of(args) {
        RwCommand::Renew { .. } => Vec::new(),
        command => command.fields().iter().map(|it| (*it).to_owned()).collect(),
    }
}

/// The key of a read hold's lease.
pub(super) fn timeout_of(field: &str) -> String {
    timeout_of_acquire(field, 1)
}

/// Redisson's hold has one for each acquire.
pub(super) fn timeout_of_acquire(field: &str, acquire: i64) -> String {
    format!("{BEFORE_FIELDS}{field}:rwlock_timeout:{acquire}")
}

/// The one lock of a run.
pub(in crate::simulation) const KEY: &str = "doc";
pub(super) const ANNOUNCEMENT: &str = "lockdog_writer:{doc}";
const BEFORE_FIELDS: &str = "{doc}:";
