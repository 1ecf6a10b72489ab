//! Commands about connections.

use super::{Command, client_only, is};
use crate::database::{ClientConnection, DATABASES, Database, text};
use crate::number::int_arg;
use crate::reply::{CommandResult, Refusal, Reply};

pub(super) const COMMANDS: &[Command] = &[
    client_only("auth", -2, |database, client, args| match args {
        [_, user, password] => let_in(database, client, user, password),
        [_, _] if database.password.is_empty() => Err(Refusal::new(
            "ERR AUTH <password> called without any password configured for the default user. Are you \
             sure your configuration is correct?",
        )),
        [_, password] => let_in(database, client, b"default", password),
        _ => Err(Refusal::syntax()),
    }),
    client_only("client", -2, client),
    client_only("echo", 2, |_, _, args| Ok(Reply::bulk(&args[1]))),
    client_only("hello", -1, hello),
    client_only("ping", -1, |database, client, args| {
        let listens = database
            .client(client)
            .is_some_and(|client| !client.is_resp3 && client.listens());
        match (args.get(1), listens) {
            (_, _) if args.len() > 2 => Err(Refusal::arguments("ping")),
            (None, false) => Ok(Reply::Status("PONG".into())),
            (Some(text), false) => Ok(Reply::bulk(text)),
            (text, true) => {
                let text = text.cloned().unwrap_or_default();
                Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::Bulk(text)]))
            }
        }
    }),
    client_only("quit", -1, |_, _, _| Ok(Reply::OK)),
    client_only("readonly", 1, |_, _, _| Err(no_cluster())),
    client_only("reset", 1, |database, client, _| {
        let needs_none = database.password.is_empty();
        if let Some(client) = database.client(client) {
            client.channels.clear();
            client.patterns.clear();
            client.shard_channels.clear();
            client.is_monitor = false;
            client.is_resp3 = false;
            client.is_let_in = needs_none;
            client.database = 0;
            client.name.clear();
        }
        Ok(Reply::Status("RESET".into()))
    }),
    client_only("select", 2, |database, client, args| {
        let number = int_arg(&args[1])?;
        let number = usize::try_from(number).ok().filter(|it| *it < DATABASES);
        let number = number.ok_or_else(|| Refusal::new("ERR DB index is out of range"))?;
        if let Some(client) = database.client(client) {
            client.database = number;
        }
        Ok(Reply::OK)
    }),
    // deadpool sends this before it reuses a connection.
    client_only("unwatch", 1, |_, _, _| Ok(Reply::OK)),
];

pub(super) fn no_cluster() -> Refusal {
    Refusal::new("ERR This instance has cluster support disabled")
}

/// There is one user, and any password is right while none is required.
fn let_in(
    database: &mut Database,
    client: Option<u64>,
    user: &[u8],
    password: &[u8],
) -> CommandResult {
    let expected = database.password.as_bytes();
    if user != b"default" || !(expected.is_empty() || password == expected) {
        let line = "WRONGPASS invalid username-password pair or user is disabled.";
        return Err(Refusal::new(line));
    }
    if let Some(client) = database.client(client) {
        client.is_let_in = true;
    }
    Ok(Reply::OK)
}

fn hello(database: &mut Database, client: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let version = match args.get(1) {
        None => None,
        Some(version) => match int_arg(version) {
            Ok(version @ 2..=3) => Some(version),
            Ok(_) => return Err(Refusal::new("NOPROTO unsupported protocol version")),
            Err(_) => {
                let line = "ERR Protocol version is not an integer or out of range";
                return Err(Refusal::new(line));
            }
        },
    };
    let mut name = None;
    let mut options = args.get(2..).unwrap_or_default();
    loop {
        options = match options {
            [] => break,
            [word, user, password, rest @ ..] if is(word, "auth") => {
                let_in(database, client, user, password)?;
                rest
            }
            [word, given, rest @ ..] if is(word, "setname") => {
                name = Some(checked_name(given)?);
                rest
            }
            [word, ..] => {
                let line = format!("ERR Syntax error in HELLO option '{}'", text(word));
                return Err(Refusal::new(line));
            }
        };
    }
    if database.client(client).is_some_and(|it| !it.is_let_in) {
        let line = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                    HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
                    the RESP protocol version at the same time";
        return Err(Refusal::new(line));
    }
    let id = client.unwrap_or_default();
    let mut is_resp3 = false;
    if let Some(client) = database.client(client) {
        if let Some(version) = version {
            client.is_resp3 = version == 3;
        }
        if let Some(name) = name {
            client.name = name;
        }
        is_resp3 = client.is_resp3;
    }
    let pairs = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(VERSION)),
        ("proto", Reply::Int(if is_resp3 { 3 } else { 2 })),
        ("id", Reply::Int(id as i64)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    let pairs = pairs.map(|(name, value)| (Reply::bulk(name), value));
    Ok(Reply::Map(pairs.to_vec()))
}

fn checked_name(name: &[u8]) -> Result<String, Refusal> {
    if name.iter().any(|byte| !byte.is_ascii_graphic()) {
        let line = "ERR Client names cannot contain spaces, newlines or special characters.";
        return Err(Refusal::new(line));
    }
    Ok(text(name))
}

fn client(database: &mut Database, caller: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let word = text(&args[1]).to_lowercase();
    let now = database.micros();
    let id = caller.unwrap_or_default();
    match (word.as_str(), &args[2..]) {
        ("getname", []) => {
            let name = database.client(caller).map(|client| client.name.clone());
            Ok(name
                .filter(|it| !it.is_empty())
                .map_or(Reply::Nil, Reply::bulk))
        }
        ("id", []) => Ok(Reply::Int(id as i64)),
        ("info", []) => {
            let client = database.clients.get(&id);
            let line = client.map(|client| line(id, client, now));
            Ok(Reply::Text(line.unwrap_or_default()))
        }
        ("kill", filters) => kill(database, id, filters),
        // With a filter the answer would be another list, so filters are refused.
        ("list", []) => {
            let all = database.clients.iter();
            let lines = all.map(|(id, client)| line(*id, client, now));
            Ok(Reply::Text(lines.collect()))
        }
        ("no-evict", [_]) => Ok(Reply::OK),
        ("setinfo", [what, value]) => {
            if let Some(client) = database.client(caller) {
                let at = usize::from(is(what, "lib-ver"));
                client.library[at] = text(value);
            }
            Ok(Reply::OK)
        }
        ("setname", [name]) => {
            let name = checked_name(name)?;
            if let Some(client) = database.client(caller) {
                client.name = name;
            }
            Ok(Reply::OK)
        }
        _ => Err(Refusal::new(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLIENT HELP.",
            text(&args[1])
        ))),
    }
}

fn line(id: u64, client: &ClientConnection, now: u64) -> String {
    let seconds = |since: u64| now.saturating_sub(since) / 1_000_000;
    let flags = match (client.is_monitor, client.listens()) {
        (true, _) => "O",
        (false, true) => "P",
        (false, false) => "N",
    };
    let ClientConnection {
        address,
        local,
        name,
        database,
        last_command,
        library: [library, version],
        ..
    } = client;
    format!(
        "id={id} addr={address} laddr={local} fd=0 name={name} age={} idle={} flags={flags} db={database} \
         sub={} psub={} ssub={} multi=-1 cmd={last_command} user=default resp={} lib-name={library} \
         lib-ver={version}\n",
        seconds(client.created),
        seconds(client.active),
        client.channels.len(),
        client.patterns.len(),
        client.shard_channels.len(),
        if client.is_resp3 { 3 } else { 2 },
    )
}

/// `CLIENT KILL address`, or with filters ID, ADDR, TYPE and SKIPME.
fn kill(database: &mut Database, own: u64, filters: &[Vec<u8>]) -> CommandResult {
    let is_old = filters.len() == 1;
    let filters: Vec<(String, String)> = match filters {
        [address] => vec![("addr".to_owned(), text(address))],
        filters if !filters.is_empty() && filters.len().is_multiple_of(2) => filters
            .chunks_exact(2)
            .map(|pair| (text(&pair[0]).to_lowercase(), text(&pair[1])))
            .collect(),
        _ => return Err(Refusal::syntax()),
    };
    let mut skips_own = !is_old;
    for (name, value) in &filters {
        match (name.as_str(), value.to_lowercase().as_str()) {
            ("skipme", answer) => skips_own = answer == "yes",
            ("id", id) if id.parse::<u64>().is_ok() => {}
            ("addr", _) | ("type", "normal" | "pubsub") => {}
            _ => return Err(Refusal::syntax()),
        }
    }
    let is_meant = |id: u64, client: &ClientConnection| {
        !(skips_own && id == own)
            && filters.iter().all(|(name, value)| match name.as_str() {
                "id" => value.parse() == Ok(id),
                "addr" => *value == client.address,
                "type" => client.listens() == value.eq_ignore_ascii_case("pubsub"),
                _ => true,
            })
    };
    let all = database.clients.iter();
    let meant: Vec<u64> = all
        .filter(|(id, client)| is_meant(**id, client))
        .map(|(id, _)| *id)
        .collect();
    for id in &meant {
        if *id == own {
            // It receives the reply first.
            database.clients.remove(id);
        } else if let Some(client) = database.clients.remove(id) {
            client.closing.cancel();
        }
    }
    match (is_old, meant.len()) {
        (true, 0) => Err(Refusal::new("ERR No such client")),
        (true, _) => Ok(Reply::OK),
        (false, count) => Ok(Reply::Int(count as i64)),
    }
}

/// The server version that is imitated.
pub(super) const VERSION: &str = "7.0.15";
