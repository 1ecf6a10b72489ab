//! Commands about the server.

use std::fmt::Write;
use std::time::Duration;

use super::connections::{VERSION, no_cluster};
use super::{Command, anywhere, client_only};
use crate::database::{Database, text};
use crate::glob;
use crate::number::int_arg;
use crate::reply::{CommandResult, Refusal, Reply};

pub(super) const COMMANDS: &[Command] = &[
    client_only("acl", -2, |_, _, args| {
        match text(&args[1]).to_lowercase().as_str() {
            "whoami" => Ok(Reply::bulk("default")),
            other => Err(Refusal::new(format!(
                "ERR unknown subcommand '{other}', the test server has no access lists"
            ))),
        }
    }),
    client_only("cluster", -2, |_, _, _| Err(no_cluster())),
    client_only("command", -1, |_, _, _| Ok(Reply::Array(Vec::new()))),
    client_only("config", -2, config),
    anywhere("info", -1, |database, _, args| {
        let sections: Vec<String> = args[1..]
            .iter()
            .map(|section| text(section).to_lowercase())
            .collect();
        Ok(Reply::Text(info(database, &sections)))
    }),
    anywhere("lastsave", 1, |database, _, _| {
        Ok(Reply::Int((database.micros() / 1_000_000) as i64))
    }),
    client_only("role", 1, |_, _, _| {
        Ok(Reply::Array(vec![
            Reply::bulk("master"),
            Reply::Int(0),
            Reply::Array(Vec::new()),
        ]))
    }),
    client_only("save", 1, |_, _, _| Ok(Reply::OK)),
    // In a script the time does not advance.
    anywhere("time", 1, |database, _, _| {
        let time = database.began;
        let parts = [time / 1_000_000, time % 1_000_000];
        Ok(Reply::bulks(parts.map(|part| part.to_string())))
    }),
    // This server has no replicas.
    client_only("wait", 3, |_, _, args| {
        int_arg(&args[1])?;
        if int_arg(&args[2])? < 0 {
            return Err(Refusal::new("ERR timeout is negative"));
        }
        Ok(Reply::Int(0))
    }),
];

/// How long WAIT waits without a result; `None` if it does not wait.
pub(super) fn wait_time(args: &[Vec<u8>]) -> Option<Duration> {
    let wanted = int_arg(args.get(1)?).ok().filter(|wanted| *wanted > 0);
    let time = int_arg(args.get(2)?).ok()?;
    wanted?;
    match u64::try_from(time).ok()? {
        0 => Some(Duration::from_secs(u64::from(u32::MAX))),
        time => Some(Duration::from_millis(time)),
    }
}

fn config(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    match (text(&args[1]).to_lowercase().as_str(), &args[2..]) {
        ("get", patterns @ [_, ..]) => {
            let is_meant = |name: &str| {
                let mut patterns = patterns.iter().map(|pattern| pattern.to_ascii_lowercase());
                patterns.any(|pattern| glob::matches(&pattern, name.as_bytes()))
            };
            let found = database.config.iter().filter(|(name, _)| is_meant(name));
            let found = found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value)));
            Ok(Reply::Map(found.collect()))
        }
        ("resetstat", []) => {
            database.calls.clear();
            database.errors.clear();
            Ok(Reply::OK)
        }
        ("set", pairs) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            for pair in pairs.chunks_exact(2) {
                let name = text(&pair[0]).to_lowercase();
                let Some(value) = database.config.get_mut(&name) else {
                    return Err(Refusal::new(format!(
                        "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                    )));
                };
                *value = text(&pair[1]);
            }
            Ok(Reply::OK)
        }
        _ => Err(Refusal::new(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try CONFIG HELP.",
            text(&args[1])
        ))),
    }
}

fn info(database: &mut Database, wanted: &[String]) -> String {
    let all = wanted.is_empty() || wanted.iter().any(|it| it == "all" || it == "everything");
    let default = all || wanted.iter().any(|it| it == "default");
    let mut info = String::new();
    for section in SECTIONS {
        let is_default = !matches!(*section, "commandstats");
        let is_wanted = wanted.iter().any(|it| it == section)
            || (all && !wanted.is_empty())
            || (default && is_default);
        if is_wanted {
            if !info.is_empty() {
                info.push_str("\r\n");
            }
            let mut name = (*section).to_owned();
            name[..1].make_ascii_uppercase();
            info.push_str(&format!("# {name}\r\n"));
            for (name, value) in lines(database, section) {
                // Writing to a string cannot fail.
                let _ = write!(info, "{name}:{value}\r\n");
            }
        }
    }
    info
}

fn lines(database: &mut Database, section: &str) -> Vec<(String, String)> {
    let now = database.micros();
    let clients = database.clients.len();
    let plain = |pairs: &[(&str, String)]| {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        owned.collect()
    };
    let identity = &database.identity;
    match section {
        "server" => plain(&[
            ("redis_version", VERSION.to_owned()),
            ("server_name", "lockdog-test".to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("process_id", std::process::id().to_string()),
            ("run_id", identity.run_id.clone()),
            ("tcp_port", identity.port.to_string()),
            ("server_time_usec", now.to_string()),
            (
                "uptime_in_seconds",
                ((now - identity.started) / 1_000_000).to_string(),
            ),
        ]),
        "clients" => plain(&[("connected_clients", clients.to_string())]),
        "memory" => plain(&[
            ("used_memory", "1000000".to_owned()),
            ("maxmemory", database.config["maxmemory"].clone()),
            (
                "maxmemory_policy",
                database.config["maxmemory-policy"].clone(),
            ),
        ]),
        "persistence" => plain(&[
            ("loading", "0".to_owned()),
            (
                "rdb_last_save_time",
                (identity.started / 1_000_000).to_string(),
            ),
            ("rdb_last_bgsave_status", "ok".to_owned()),
            ("aof_enabled", "0".to_owned()),
        ]),
        "replication" => plain(&[
            ("role", "master".to_owned()),
            ("connected_slaves", "0".to_owned()),
            ("master_failover_state", "no-failover".to_owned()),
            ("master_replid", identity.replication_id.clone()),
            ("master_repl_offset", "0".to_owned()),
        ]),
        "commandstats" => database
            .calls
            .iter()
            .map(|(name, calls)| (format!("cmdstat_{name}"), format!("calls={calls}")))
            .collect(),
        "errorstats" => database
            .errors
            .iter()
            .map(|(word, count)| (format!("errorstat_{word}"), format!("count={count}")))
            .collect(),
        "cluster" => plain(&[("cluster_enabled", "0".to_owned())]),
        "keyspace" => {
            let mut found = Vec::new();
            for (number, keyspace) in database.keyspaces().enumerate() {
                let keys = keyspace.names().len();
                if keys > 0 {
                    found.push((format!("db{number}"), format!("keys={keys}")));
                }
            }
            found
        }
        _ => Vec::new(),
    }
}

const SECTIONS: &[&str] = &[
    "server",
    "clients",
    "memory",
    "persistence",
    "replication",
    "commandstats",
    "errorstats",
    "cluster",
    "keyspace",
];
