//! Recorders on connections of their own: what was published, and what the server executed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::background::Background;
use crate::support::resp;
use crate::support::wire::Wire;

/// Every message on the channels that match a pattern, from the moment the server acknowledged it.
#[derive(Debug)]
pub(crate) enum Messages {
    Received(Tap),
    /// Sharded channels have no patterns: what was sent is seen among the commands of all masters.
    Seen(Vec<Monitor>),
}

impl Messages {
    pub(crate) async fn record(port: u16, password: Option<&str>, pattern: &str) -> Self {
        Self::Received(Tap::open(port, password, &["PSUBSCRIBE", pattern]).await)
    }

    pub(crate) fn of_monitors(monitors: Vec<Monitor>) -> Self {
        Self::Seen(monitors)
    }

    /// Channel and payload of each message, oldest first; without the messages between sentinels.
    pub(crate) fn seen(&self) -> Vec<(String, String)> {
        let tap = match self {
            Self::Received(tap) => tap,
            Self::Seen(monitors) => {
                let mut lines: Vec<String> = monitors.iter().flat_map(Monitor::seen).collect();
                // The time comes first.
                lines.sort();
                return lines.iter().filter_map(|line| published(line)).collect();
            }
        };
        let replies = tap.seen.lock().unwrap();
        replies
            .iter()
            .filter_map(|texts| match &texts[..] {
                [kind, _, channel, payload] if kind == "pmessage" => {
                    let is_lock = channel != "__sentinel__:hello";
                    is_lock.then(|| (channel.clone(), payload.clone()))
                }
                _ => None,
            })
            .collect()
    }
}

/// Every command the server executes, by whichever connection or script, from the moment it
/// acknowledged MONITOR.
#[derive(Debug)]
pub(crate) struct Monitor {
    tap: Tap,
}

impl Monitor {
    pub(crate) async fn record(port: u16, password: Option<&str>) -> Self {
        Self {
            tap: Tap::open(port, password, &["MONITOR"]).await,
        }
    }

    /// The lines as the server writes them: time, database, who, then the quoted arguments.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.tap.seen.lock().unwrap().concat()
    }
}

/// Channel and payload of a line of MONITOR that shows a message being sent.
fn published(line: &str) -> Option<(String, String)> {
    let (_who, command) = line.split_once("] ")?;
    let command = command.strip_prefix("\"spublish\" \"")?;
    let (channel, payload) = command.strip_suffix('"')?.rsplit_once("\" \"")?;
    Some((unquoted(channel), unquoted(payload)))
}

/// What a server wrote with escapes.
fn unquoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().expect("something is escaped") {
            b'x' => {
                let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits"));
                let digits = str::from_utf8(&digits).expect("they are ASCII");
                u8::from_str_radix(digits, 16).expect("they are digits")
            }
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            itself => itself,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug)]
pub(crate) struct Tap {
    seen: Arc<Mutex<Vec<Vec<String>>>>,
    _reader: Background,
}

impl Tap {
    async fn open(port: u16, password: Option<&str>, args: &[&str]) -> Self {
        let mut bytes = Vec::new();
        let mut acknowledgements = 1;
        if let Some(password) = password {
            bytes.extend(resp::encode(&["AUTH", password]));
            acknowledgements += 1;
        }
        bytes.extend(resp::encode(args));
        let reader = Background::new("tap");
        let opening = reader.run(async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            let mut wire = Wire::new(stream);
            wire.write(&bytes).await?;
            for _ in 0..acknowledgements {
                let reply = wire.next().await?;
                if reply.kind == b'-' {
                    return Err(std::io::Error::other(reply.texts.concat()));
                }
            }
            Ok(wire)
        });
        let mut wire = tokio::time::timeout(OPENS_WITHIN, opening)
            .await
            .unwrap_or_else(|_| panic!("{args:?} was not acknowledged in {OPENS_WITHIN:?}"))
            .unwrap_or_else(|error| panic!("{args:?} failed: {error}"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        reader.spawn(async move {
            while let Ok(reply) = wire.next().await {
                record.lock().unwrap().push(reply.texts);
            }
        });
        Self {
            seen,
            _reader: reader,
        }
    }
}

const OPENS_WITHIN: Duration = Duration::from_secs(30);
