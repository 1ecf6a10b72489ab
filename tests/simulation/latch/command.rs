//! The meaning of a latch's command on the wire.

use std::sync::LazyLock;

/// The operation of a command. The mark of its request is a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum LatchCommand<'a> {
    CountDown { mark: &'a str },
    TrySet { mark: &'a str, count: i64 },
    Delete { mark: &'a str },
    Other,
}

impl<'a> LatchCommand<'a> {
    pub(super) fn of(args: &'a [String]) -> Self {
        if !args[0].starts_with("EVAL") {
            return Self::Other;
        }
        let [_, script, two, key, mark, values @ ..] = args else {
            return Self::Other;
        };
        assert!(two == "2" && key == KEY, "{args:?}");
        match values {
            [count, _kept, _channel, _publish] => Self::TrySet {
                mark,
                count: count.parse().expect("it is a number"),
            },
            // Its arguments are those of a count-down.
            _ if *script == *DELETE_DIGEST || script == DELETE => Self::Delete { mark },
            _ => Self::CountDown { mark },
        }
    }
}

/// No hold has a count here.
pub(super) fn counted(_args: &[String]) -> Vec<String> {
    Vec::new()
}

static DELETE_DIGEST: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(DELETE).get_hash().to_owned());
const DELETE: &str = include_str!("../../../lua/latch/delete.lua");

/// The one latch of a run.
pub(in crate::simulation) const KEY: &str = "start";
