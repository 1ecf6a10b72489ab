//! The lines of MONITOR, parsed.

use super::facts::{Change, Expiry, Place, QUESTIONS};

/// One command, or one call inside a script.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Milliseconds, by the server's clock.
    pub(super) at: f64,
    pub(super) in_script: bool,
    pub(super) args: Vec<String>,
}

impl Line {
    /// `1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (at, rest) = line.split_once(' ')?;
        let (who, args) = rest.split_once("] ")?;
        Some(Self {
            at: at.parse::<f64>().ok()? * 1_000.0,
            in_script: who.ends_with("lua"),
            args: unquote(args),
        })
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.args
            .first()
            .is_some_and(|arg| arg.eq_ignore_ascii_case(name))
    }

    /// Runs the script with this text.
    pub(super) fn runs(&self, script: &str) -> bool {
        let digest = redis::Script::new(script).get_hash().to_owned();
        let what = self.args.get(1);
        (self.is("evalsha") && what == Some(&digest))
            || (self.is("eval") && what == Some(&script.to_owned()))
    }

    /// A query of a client.
    pub(super) fn asks(&self) -> bool {
        !self.in_script && QUESTIONS.iter().any(|question| self.is(question))
    }

    /// A client waits for replicas. The probe `WAIT 0 0` does not count.
    pub(super) fn waits_for_replicas(&self) -> bool {
        self.is("wait") && self.args.get(1).is_some_and(|replicas| replicas != "0")
    }

    /// The milliseconds of a SET with a TTL.
    fn set_for(&self) -> Option<i64> {
        let (option, ms) = (self.args.get(3)?, self.args.get(4)?);
        (self.is("set") && option.eq_ignore_ascii_case("px"))
            .then(|| ms.parse().expect("milliseconds"))
    }

    /// Channel and message of a sharded message.
    pub(super) fn sharded_message(&self) -> Option<(&str, &str)> {
        match &self.args[..] {
            [_, channel, message] if self.is("spublish") => Some((channel, message)),
            _ => None,
        }
    }
}

/// The changes of expiries by the commands that a server ran.
pub(super) fn expiry_changes(server: &str, lines: &[Line]) -> Vec<Expiry> {
    let mut changes = Vec::new();
    let mut is_renewal = false;
    for line in lines {
        if !line.in_script {
            is_renewal = line.runs(RENEW) || line.runs(RENEW_READS);
        }
        let key = line.args.get(1).map_or("", String::as_str);
        let number = || line.args[2].parse::<i64>().expect("milliseconds");
        let place = Place::new(server, key);
        let change = if let Some(ms) = line.set_for() {
            match is_renewal {
                true => Change::Renewed(ms),
                false => Change::Set(ms),
            }
        } else if line.is("pexpire") && is_renewal {
            // It read the key first, and that counts.
            let asked = |it: &Expiry| it.place == place && matches!(it.change, Change::Asked);
            if let Some(asked) = changes.iter().rposition(asked) {
                changes.remove(asked);
            }
            Change::Renewed(number())
        } else if line.is("pexpire") {
            Change::Set(number())
        } else if line.is("pexpireat") {
            Change::Set(((number() as f64 - line.at) / 1_000.0).round() as i64 * 1_000)
        } else if line.is("persist") || line.is("del") || line.is("set") {
            Change::Removed
        } else if line.is("hexists") && is_renewal {
            Change::Asked
        } else {
            continue;
        };
        changes.push(Expiry { place, change });
    }
    changes
}

/// The same for a replica, which receives points in time instead of durations.
pub(super) fn replicated_changes(server: &str, lines: &[Line]) -> Vec<Expiry> {
    let moments = lines.iter().filter(|line| line.is("pexpireat"));
    let change = Change::Replicated;
    moments
        .map(|line| Expiry {
            place: Place::new(server, &line.args[1]),
            change,
        })
        .collect()
}

/// Arguments in double quotes, with what is not printable escaped.
fn unquote(text: &str) -> Vec<String> {
    let mut args = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'"' {
            continue;
        }
        let mut arg = Vec::new();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => break,
                b'\\' => arg.push(match bytes.next() {
                    Some(b'n') => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    Some(b'a') => 7,
                    Some(b'b') => 8,
                    Some(b'x') => {
                        let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                        let digits = String::from_utf8_lossy(&digits).into_owned();
                        u8::from_str_radix(&digits, 16).expect("two hex digits")
                    }
                    other => other.expect("a character follows the backslash"),
                }),
                other => arg.push(other),
            }
        }
        args.push(String::from_utf8_lossy(&arg).into_owned());
    }
    args
}

pub(super) const RENEW: &str = include_str!("../../../../lua/lock/renew.lua");
const RENEW_READS: &str = include_str!("../../../../lua/read_write/renew.lua");
pub(super) const UNLOCK: &str = include_str!("../../../../lua/lock/unlock.lua");
