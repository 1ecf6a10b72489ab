//! The script that checks the permissions of a user.

use std::sync::LazyLock;
use std::time::Duration;

use redis::FromRedisValue;

use super::{Arg, ScriptCall, unexpected};
use crate::key::Script;
use crate::observe::CommandKind;
use crate::server::{Connection, Failure};

/// For each of these complete commands: whether the user of this connection may run it, or `None`
/// if the server does not say. See `lua/diagnosis/permitted.lua`.
pub(crate) async fn permitted(
    connection: &Connection,
    commands: &[&str],
    limit: Duration,
) -> Result<Vec<Option<bool>>, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/diagnosis/permitted.lua")));
    let args: Vec<Arg<'_>> = commands.iter().map(|command| Arg::Text(command)).collect();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[],
        args: &args,
    };
    // It runs at most once for each connection, so EVALSHA would only cost a round trip more.
    let answer = connection.send(&call.command(true), limit).await?;
    let answers = Vec::<i64>::from_redis_value_ref(&answer).map_err(|_| unexpected(&answer))?;
    if answers.len() != commands.len() {
        return Err(unexpected(&answer));
    }
    let known = |answer: i64| (answer >= 0).then_some(answer > 0);
    Ok(answers.into_iter().map(known).collect())
}
