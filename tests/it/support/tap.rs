//! Recorders on connections of their own: what was published, and what the server executed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::background::Background;
use crate::support::resp;
use crate::support::wire::Wire;

/// Every message on the channels that match a pattern, from the moment the server acknowledged it.
#[derive(Debug)]
pub(crate) struct Messages {
    tap: Tap,
}

impl Messages {
    pub(crate) async fn record(port: u16, password: Option<&str>, pattern: &str) -> Self {
        Self {
            tap: Tap::open(port, password, &["PSUBSCRIBE", pattern]).await,
        }
    }

    /// Channel and payload of each message, oldest first.
    pub(crate) fn seen(&self) -> Vec<(String, String)> {
        let replies = self.tap.seen.lock().unwrap();
        replies
            .iter()
            .filter_map(|texts| match &texts[..] {
                [kind, _, channel, payload] if kind == "pmessage" => {
                    Some((channel.clone(), payload.clone()))
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

#[derive(Debug)]
struct Tap {
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

const OPENS_WITHIN: Duration = Duration::from_secs(10);
