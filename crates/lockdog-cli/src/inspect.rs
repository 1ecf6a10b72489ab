//! `lockdog inspect`: who holds a lock, from where, and for how long.

use lockdog::report::{ConnectionInfo, LockInfo, lock_hash};
use lockdog::{Client, Error};
use serde_json::json;

use crate::args::Inspect;
use crate::connect::Settings;
use crate::describe;
use crate::failed::{Failed, NO, YES};
use crate::ls;
use crate::output::{Output, Paint, clean};

pub(crate) async fn inspect(
    args: &Inspect,
    settings: &Settings,
    output: Output,
) -> Result<u8, Failed> {
    let clients = settings.connect().await?;
    let found;
    let names = match &args.hash {
        Some(hash) => {
            found = keys_of(&clients, hash).await?;
            &found
        }
        None => &args.name,
    };
    if names.is_empty() {
        output.note("no lock on the servers has this hash now");
        return Ok(NO);
    }
    let mut is_held = true;
    for name in names {
        is_held &= match &clients[..] {
            [client] => one(client, name, output).await?,
            clients => quorum(clients, name, output).await?,
        };
    }
    Ok(if is_held { YES } else { NO })
}

/// The keys of the locks with this hash. Fails only if a server failed and no other one has such a lock.
async fn keys_of(clients: &[Client], hash: &str) -> Result<Vec<String>, Failed> {
    let mut keys = Vec::new();
    let mut failed = None;
    for client in clients {
        match ls::all(client.locks("*"), u64::MAX, u64::MAX, Some(hash)).await {
            Ok(locks) => keys.extend(locks.into_iter().map(|lock| lock.key)),
            Err(failure) => failed = Some(failure),
        }
    }
    keys.sort();
    keys.dedup();
    match failed {
        Some(failed) if keys.is_empty() => Err(failed),
        _ => Ok(keys),
    }
}

/// Shows a lock on one deployment. Returns whether it is held.
async fn one(client: &Client, name: &str, output: Output) -> Result<bool, Failed> {
    let info = client.inspect(name).await?;
    let connections = connections(client, &info).await?;
    if output.json {
        let object = describe::object(&info, connections.as_deref().unwrap_or_default());
        output.object(object);
    } else {
        output.line(title(&info, output));
        for line in describe::lines(&info, connections.as_deref()) {
            output.line(format_args!("  {line}"));
        }
    }
    Ok(info.is_held())
}

/// The connections to the servers, if there is a holder and the user may ask.
pub(crate) async fn connections(
    client: &Client,
    info: &LockInfo,
) -> Result<Option<Vec<ConnectionInfo>>, Failed> {
    if !info.is_held() {
        return Ok(Some(Vec::new()));
    }
    match client.connections().await {
        Ok(connections) => Ok(Some(connections)),
        Err(Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn title(info: &LockInfo, output: Output) -> String {
    let state = match info.is_held() {
        true => output.paint(Paint::Yellow, "held"),
        false => output.paint(Paint::Green, "not held"),
    };
    format!("{}: {state}", output.paint(Paint::Bold, &clean(&info.key)))
}

/// Shows a lock on each server of a RedLock. Returns whether more than half of them have a holder.
async fn quorum(clients: &[Client], name: &str, output: Output) -> Result<bool, Failed> {
    let mut instances = Vec::new();
    let mut held = 0;
    let mut failed = None;
    for client in clients {
        match client.inspect(name).await {
            Ok(info) => {
                held += usize::from(info.is_held());
                let connections = connections(client, &info).await.unwrap_or_default();
                instances.push(Ok((info, connections)));
            }
            Err(error) => {
                instances.push(Err(error.to_string()));
                failed = Some(error);
            }
        }
    }
    let answered = instances.iter().filter(|it| it.is_ok()).count();
    let majority = clients.len() / 2 + 1;
    if let (true, Some(error)) = (answered == 0, failed) {
        return Err(error.into());
    }
    if output.json {
        let instances = instances.iter().map(|instance| match instance {
            Ok((info, connections)) => {
                describe::object(info, connections.as_deref().unwrap_or_default())
            }
            Err(error) => json!({ "error": error }),
        });
        output.object(json!({
            "key": name, "hash": lock_hash(name), "kind": "red_lock", "held": held >= majority, "held_on": held,
            "servers": clients.len(), "need": majority, "instances": instances.collect::<Vec<_>>(),
        }));
        return Ok(held >= majority);
    }
    let name = output.paint(Paint::Bold, &clean(name));
    output.line(format_args!(
        "{name}: held on {held} of {} servers; {majority} are a quorum",
        clients.len()
    ));
    for instance in &instances {
        match instance {
            Ok((info, connections)) => {
                for line in describe::lines(info, connections.as_deref()) {
                    output.line(format_args!("  {line}"));
                }
            }
            Err(error) => output.line(format_args!("  {}", clean(error))),
        }
        output.line("");
    }
    Ok(held >= majority)
}
