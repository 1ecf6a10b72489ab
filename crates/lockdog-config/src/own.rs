//! lockdog's own form: the setters of `ClientBuilder`, by their names.

use std::path::Path;

use lockdog::config::{
    Backoff, Preference, Protocol, Reentry, ReplicaAck, Replicas, TlsSettings, Wake,
};
use lockdog::report::FindingKind;
use lockdog::{Client, ClientBuilder};

use crate::document::{DocumentNode, Entry, NodeKind};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::nearest::nearest;
use crate::note::Note;
use crate::value::{SettingValue, Variables};

/// Whether the keys at the top are lockdog's.
pub(crate) fn is_its_own(root: &DocumentNode) -> bool {
    SERVERS.iter().any(|key| root.get(key).is_some())
}

/// Reads the settings.
pub(crate) fn read(
    root: &DocumentNode,
    variables: Variables<'_>,
) -> Result<(ClientBuilder, Vec<Note>), ConfigError> {
    let mut builder = Client::builder();
    let mut notes = Vec::new();
    for entry in entries(root)? {
        let key = known(&entry.key, &KEYS, entry)?;
        if entry.value.is_null() {
            continue;
        }
        let value = SettingValue {
            key: key.to_owned(),
            key_at: entry.at,
            node: &entry.value,
            variables,
        };
        builder = set(builder, key, &value)?;
        // An empty text, as of a variable without a value, sets nothing.
        notes.push(match value.text() {
            Ok(None) => value.ignored("it has no value"),
            _ => value.mapped(format!("{key}(..)")),
        });
    }
    Ok((builder, notes))
}

fn set(
    builder: ClientBuilder,
    key: &str,
    value: &SettingValue<'_>,
) -> Result<ClientBuilder, ConfigError> {
    let number = || -> Result<Option<u32>, ConfigError> {
        let number = value.number(0..=u64::from(u32::MAX))?;
        Ok(number.and_then(|it| u32::try_from(it).ok()))
    };
    Ok(match key {
        "url" => with(builder, value.text()?, ClientBuilder::url),
        "sentinel" => sentinel(builder, value)?,
        "cluster" => builder.cluster(value.texts()?),
        "username" => with(builder, value.text()?, ClientBuilder::username),
        "password" => with(builder, value.text()?, ClientBuilder::password),
        "database" => with(builder, number()?, ClientBuilder::database),
        "sentinel_username" => with(builder, value.text()?, ClientBuilder::sentinel_username),
        "sentinel_password" => with(builder, value.text()?, ClientBuilder::sentinel_password),
        "master_tls" => with(builder, value.boolean()?, ClientBuilder::master_tls),
        "tls" => builder.tls(tls(value)?),
        "protocol" => {
            let protocol = value.choice(&["resp2", "resp3"])?.map(|word| match word {
                "resp3" => Protocol::Resp3,
                _ => Protocol::Resp2,
            });
            with(builder, protocol, ClientBuilder::protocol)
        }
        "watchdog_lease" => with(builder, value.duration()?, ClientBuilder::watchdog_lease),
        "command_timeout" => with(builder, value.duration()?, ClientBuilder::command_timeout),
        "poll_cap" => with(builder, value.duration()?, ClientBuilder::poll_cap),
        "max_lease" => with(builder, value.duration()?, ClientBuilder::max_lease),
        "max_waiters" => with(builder, number()?, ClientBuilder::max_waiters),
        "wake" => {
            let wake = value.choice(&["messages", "poll"])?.map(|word| match word {
                "poll" => Wake::Poll(Backoff::default()),
                _ => Wake::PubSub,
            });
            with(builder, wake, ClientBuilder::wake)
        }
        "max_hand_overs" => with(builder, number()?, ClientBuilder::max_hand_overs),
        "max_hand_over_time" => with(
            builder,
            value.duration()?,
            ClientBuilder::max_hand_over_time,
        ),
        "fair_wait" => with(builder, value.duration()?, ClientBuilder::fair_wait),
        "fair_absence" => with(builder, value.duration()?, ClientBuilder::fair_absence),
        "prefer" => {
            let preference = value
                .choice(&["writers", "readers"])?
                .map(|word| match word {
                    "readers" => Preference::Readers,
                    _ => Preference::Writers,
                });
            with(builder, preference, ClientBuilder::prefer)
        }
        "reentry" => {
            let reentry = value.choice(&["counted", "local"])?.map(|word| match word {
                "local" => Reentry::Local,
                _ => Reentry::Counted,
            });
            with(builder, reentry, ClientBuilder::reentry)
        }
        "replica_ack" => match replica_ack(value)? {
            Some(ack) => builder.replica_ack(ack),
            None => builder,
        },
        "quarantine_on_server" => with(
            builder,
            value.boolean()?,
            ClientBuilder::quarantine_on_server,
        ),
        "client_name" => with(builder, value.text()?, ClientBuilder::client_name),
        "lazy" => with(builder, value.boolean()?, ClientBuilder::lazy),
        "log_names" => with(builder, value.boolean()?, ClientBuilder::log_names),
        "expect_finding" => expected(builder, value)?,
        _ => builder,
    })
}

/// The names of findings, one or a list.
fn expected(
    mut builder: ClientBuilder,
    value: &SettingValue<'_>,
) -> Result<ClientBuilder, ConfigError> {
    for name in value.texts()? {
        let kind = FindingKind::ALL.iter().find(|kind| kind.as_str() == name);
        let Some(kind) = kind else {
            let names: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let why = format!("no such finding: the findings are {}", names.join(", "));
            return Err(value.wrong(why));
        };
        builder = builder.expect_finding(*kind);
    }
    Ok(builder)
}

/// Applies a setter, if there is a value.
fn with<T>(
    builder: ClientBuilder,
    value: Option<T>,
    set: impl FnOnce(ClientBuilder, T) -> ClientBuilder,
) -> ClientBuilder {
    match value {
        Some(value) => set(builder, value),
        None => builder,
    }
}

fn sentinel(
    builder: ClientBuilder,
    value: &SettingValue<'_>,
) -> Result<ClientBuilder, ConfigError> {
    fields(value, &["master", "urls"])?;
    let master = field(value, "master")?.text()?;
    let master = master.ok_or_else(|| value.wrong("it needs master and urls"))?;
    let urls = field(value, "urls")?.texts()?;
    Ok(builder.sentinel(master, urls))
}

fn tls(value: &SettingValue<'_>) -> Result<TlsSettings, ConfigError> {
    fields(value, &["roots", "certificate", "key"])?;
    let file = |name| -> Result<Option<Vec<u8>>, ConfigError> {
        let Some(value) = value.field(name) else {
            return Ok(None);
        };
        let Some(path) = value.text()? else {
            return Ok(None);
        };
        let read = std::fs::read(Path::new(&path));
        let unread = |error: std::io::Error| {
            value.wrong(format!("the file cannot be read: {}", error.kind()))
        };
        read.map(Some).map_err(unread)
    };
    let mut tls = TlsSettings::new();
    if let Some(pem) = file("roots")? {
        tls = tls.root_certificates(pem);
    }
    match (file("certificate")?, file("key")?) {
        (Some(certificate), Some(key)) => tls = tls.client_certificate(certificate, key),
        (None, None) => {}
        _ => return Err(value.wrong("certificate and key belong together: give both")),
    }
    Ok(tls)
}

/// `off`, `best_effort`, or a map with `require` and `timeout`.
fn replica_ack(value: &SettingValue<'_>) -> Result<Option<ReplicaAck>, ConfigError> {
    let NodeKind::Map(_) = &value.node.kind else {
        let word = value.choice(&["off", "best_effort"])?;
        return Ok(word.map(|word| match word {
            "off" => ReplicaAck::Off,
            _ => ReplicaAck::best_effort(),
        }));
    };
    fields(value, &["require", "timeout"])?;
    let require = field(value, "require")?;
    let replicas = match require.text()?.as_deref() {
        Some("all") => Replicas::All,
        Some("majority") => Replicas::Majority,
        _ => {
            let count = require.number(1..=u64::from(u32::MAX));
            let count = count.map_err(|_| require.wrong("it must be a number, all or majority"))?;
            let count = count.and_then(|it| u32::try_from(it).ok());
            Replicas::Count(count.ok_or_else(|| value.wrong("it needs require"))?)
        }
    };
    let ack = ReplicaAck::require(replicas);
    let timeout = value.field("timeout").map(|it| it.duration()).transpose()?;
    let ack = timeout
        .flatten()
        .map_or(ack, |timeout| ack.timeout(timeout));
    Ok(Some(ack))
}

fn field<'a>(value: &SettingValue<'a>, name: &str) -> Result<SettingValue<'a>, ConfigError> {
    let field = value.field(name);
    field.ok_or_else(|| value.wrong(format!("it needs {name}")))
}

/// Refuses other keys in a map than these.
fn fields(value: &SettingValue<'_>, known_keys: &[&'static str]) -> Result<(), ConfigError> {
    let NodeKind::Map(entries) = &value.node.kind else {
        let why = format!("it must be a map of {}", known_keys.join(", "));
        return Err(value.wrong(why));
    };
    for entry in entries {
        known(&entry.key, known_keys, entry).map_err(|error| error.of_key(&value.key))?;
    }
    Ok(())
}

fn entries(root: &DocumentNode) -> Result<&[Entry], ConfigError> {
    match &root.kind {
        NodeKind::Map(entries) => Ok(entries),
        NodeKind::List(_) | NodeKind::Scalar { .. } => {
            let why = "a configuration is a map of keys";
            Err(ConfigError::syntax(root.at, why))
        }
    }
}

/// The key itself, if there is such a key. The error does not show an unknown key, because it may be a
/// password out of its place.
fn known(key: &str, keys: &[&'static str], entry: &Entry) -> Result<&'static str, ConfigError> {
    if let Some(known) = keys.iter().find(|known| **known == key) {
        return Ok(known);
    }
    let why = match nearest(key, keys.iter().copied()) {
        Some(near) => format!("no such key: did you mean {near}?"),
        None => format!("no such key: the keys are {}", keys.join(", ")),
    };
    Err(ConfigError::new(ConfigErrorKind::Unknown, why).at(entry.at))
}

/// One of them says where the servers are.
const SERVERS: [&str; 3] = ["url", "sentinel", "cluster"];

/// The setters of `ClientBuilder`, without those that need code.
pub(crate) const KEYS: [&str; 29] = [
    "url",
    "sentinel",
    "cluster",
    "username",
    "password",
    "database",
    "sentinel_username",
    "sentinel_password",
    "master_tls",
    "tls",
    "protocol",
    "watchdog_lease",
    "command_timeout",
    "poll_cap",
    "max_lease",
    "max_waiters",
    "wake",
    "max_hand_overs",
    "max_hand_over_time",
    "fair_wait",
    "fair_absence",
    "prefer",
    "reentry",
    "replica_ack",
    "quarantine_on_server",
    "client_name",
    "lazy",
    "log_names",
    "expect_finding",
];
