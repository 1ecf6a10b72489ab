//! Scripts, by text and by digest.

use super::{Command, client_only, evaluating, is};
use crate::database::{Database, text};
use crate::number::int_arg;
use crate::reply::{CommandResult, Refusal, Reply};
use crate::script;

pub(super) const COMMANDS: &[Command] = &[
    evaluating("eval", -3, |database, client, args, commands| {
        let digest = script::digest(&args[1]);
        let (keys, rest) = parts(args)?;
        script::check(&args[1])?;
        database.scripts.insert(digest.clone(), args[1].clone());
        script::run(database, client, commands, &digest, (keys, rest))
    }),
    evaluating("evalsha", -3, |database, client, args, commands| {
        let digest = text(&args[1]).to_lowercase();
        let (keys, rest) = parts(args)?;
        if !database.scripts.contains_key(&digest) {
            return Err(Refusal::new(
                "NOSCRIPT No matching script. Please use EVAL.",
            ));
        }
        script::run(database, client, commands, &digest, (keys, rest))
    }),
    client_only("script", -2, scripts),
];

fn parts(args: &[Vec<u8>]) -> Result<script::Arguments<'_>, Refusal> {
    let count = int_arg(&args[2])?;
    let rest = &args[3..];
    let count =
        usize::try_from(count).map_err(|_| Refusal::new("ERR Number of keys can't be negative"))?;
    if count > rest.len() {
        let line = "ERR Number of keys can't be greater than number of args";
        return Err(Refusal::new(line));
    }
    Ok(rest.split_at(count))
}

fn scripts(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    match (text(&args[1]).to_lowercase().as_str(), &args[2..]) {
        ("exists", digests @ [_, ..]) => {
            let known = digests.iter().map(|digest| {
                let digest = text(digest).to_lowercase();
                Reply::Int(i64::from(database.scripts.contains_key(&digest)))
            });
            Ok(Reply::Array(known.collect()))
        }
        ("flush", how) if how.iter().all(|how| is(how, "async") || is(how, "sync")) => {
            database.scripts.clear();
            Ok(Reply::OK)
        }
        ("load", [script]) => {
            script::check(script)?;
            let digest = script::digest(script);
            database.scripts.insert(digest.clone(), script.clone());
            Ok(Reply::bulk(digest))
        }
        _ => Err(Refusal::new(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try SCRIPT HELP.",
            text(&args[1])
        ))),
    }
}
