//! The server's commands, sent by a client or called by a script.

mod command;
mod connections;
mod hashes;
mod keys;
mod lists;
mod messages;
mod scripting;
mod server;
mod sets;
mod sorted;
mod strings;

pub(crate) use command::{Command, anywhere, client_only, evaluating, is};
pub(crate) use messages::{channels, listeners, publish};

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use command::{Place, Run};

use crate::database::{Database, text};
use crate::reply::{CommandResult, Refusal, Reply};
use crate::script::Commands;

/// The result of a client's command.
pub(crate) enum Outcome {
    Reply(Reply),
    /// The connection closes without the reply.
    Cut,
    /// The connection closes after the reply.
    Last(Reply),
    /// The reply comes after this time. The connection's later commands wait for it.
    Later(Duration, Reply),
    /// No reply is written.
    Silence,
}

/// Runs a command that a client sent.
pub(crate) fn execute(database: &mut Database, client: u64, args: &[Vec<u8>]) -> Outcome {
    let Some(name) = args.first() else {
        return Outcome::Silence;
    };
    let name = text(name).to_lowercase();
    let now = database.micros();
    let Some(caller) = database.clients.get_mut(&client) else {
        return Outcome::Cut;
    };
    caller.last_command.clone_from(&name);
    caller.active = now;
    let (keyspace, listens) = (caller.database, !caller.is_resp3 && caller.listens());
    database.begin(keyspace);
    database.note_sent(args);
    if listens && !WHILE_LISTENING.contains(&&*name) {
        let line = format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context"
        );
        return Outcome::Reply(refused(database, Refusal::new(line)));
    }
    messages::show_monitors(database, Some(client), args);
    let scripts_before = database.scripts_run;
    let answer = run(database, Some(client), &name, args, false);
    if database.scripts_run > scripts_before && database.faults.takes_reply() {
        return Outcome::Cut;
    }
    let is_refused = answer.is_err();
    let reply = answer.unwrap_or_else(|refusal| refused(database, refusal));
    match &*name {
        "quit" => Outcome::Last(reply),
        // A refusal is answered immediately.
        "wait" if !is_refused => match server::wait_time(args) {
            Some(time) => Outcome::Later(time, reply),
            None => Outcome::Reply(reply),
        },
        _ if !database.clients.contains_key(&client) => Outcome::Last(reply),
        _ => Outcome::Reply(reply),
    }
}

/// Runs a command that a script calls.
fn call(database: &mut Database, client: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let Some(name) = args.first() else {
        let line = "ERR Please specify at least one argument for this redis.call call";
        return Err(Refusal::new(line));
    };
    let name = text(name).to_lowercase();
    messages::show_monitors(database, None, args);
    let answer = run(database, client, &name, args, true);
    if let Err(refusal) = &answer {
        count_error(database, refusal);
    }
    answer
}

fn run(
    database: &mut Database,
    client: Option<u64>,
    name: &str,
    args: &[Vec<u8>],
    is_script: bool,
) -> CommandResult {
    let Some(command) = COMMANDS.get(name) else {
        return Err(Refusal::new(format!(
            "ERR unknown command '{}', the test server knows only what locks need",
            text(&args[0]).chars().take(128).collect::<String>()
        )));
    };
    if is_script && command.place == Place::ClientOnly {
        let line = "ERR This Redis command is not allowed from script";
        return Err(Refusal::new(line));
    }
    let count = i32::try_from(args.len()).unwrap_or(i32::MAX);
    if count < command.arity.abs() || (command.arity > 0 && count != command.arity) {
        return Err(if is_script {
            Refusal::new("ERR Wrong number of args calling Redis command from script")
        } else {
            Refusal::arguments(name)
        });
    }
    let caller = database.client(client);
    if !is_script && caller.is_some_and(|it| !it.is_let_in) && !BEFORE_PASSWORD.contains(&name) {
        return Err(Refusal::new("NOAUTH Authentication required."));
    }
    *database.calls.entry(name.to_owned()).or_default() += 1;
    if let Some(refusal) = database.faults.refusal(name) {
        return Err(refusal);
    }
    match command.run {
        Run::Plain(run) => run(database, client, args),
        Run::Evaluating(run) => run(database, client, args, FOR_SCRIPTS),
    }
}

/// Whether the server has such a command.
pub(crate) fn knows(name: &str) -> bool {
    COMMANDS.contains_key(&*name.to_lowercase())
}

fn refused(database: &mut Database, refusal: Refusal) -> Reply {
    count_error(database, &refusal);
    Reply::Error(refusal.0.into_owned())
}

fn count_error(database: &mut Database, refusal: &Refusal) {
    let word = refusal.0.split(' ').next().unwrap_or_default();
    *database.errors.entry(word.to_owned()).or_default() += 1;
}

pub(crate) const FOR_SCRIPTS: Commands = Commands { call, knows };

static COMMANDS: LazyLock<HashMap<&'static str, Command>> = LazyLock::new(|| {
    let all = [
        connections::COMMANDS,
        hashes::COMMANDS,
        keys::COMMANDS,
        lists::COMMANDS,
        messages::COMMANDS,
        scripting::COMMANDS,
        server::COMMANDS,
        sets::COMMANDS,
        sorted::COMMANDS,
        strings::COMMANDS,
    ];
    all.into_iter()
        .flatten()
        .map(|command| (command.name, *command))
        .collect()
});

const BEFORE_PASSWORD: [&str; 4] = ["auth", "hello", "quit", "reset"];
const WHILE_LISTENING: [&str; 9] = [
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "ping",
    "quit",
    "reset",
];
