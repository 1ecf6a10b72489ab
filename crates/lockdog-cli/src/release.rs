//! `lockdog release`: takes a lock away from the holder that was shown.

use std::io::{self, BufRead, IsTerminal};

use lockdog::Client;
use lockdog::report::{HolderInfo, LockInfo, LockKind};
use serde_json::json;

use crate::args::Release;
use crate::connect::Settings;
use crate::describe;
use crate::failed::{Failed, NO, YES};
use crate::output::{Output, clean, complain};

pub(crate) async fn release(
    args: &Release,
    settings: &Settings,
    output: Output,
) -> Result<u8, Failed> {
    check_flags(args)?;
    if args.holder.len() > 1 {
        return Err(Failed::new(
            "one server has one holder to release; several --holder are for several --url",
        ));
    }
    let client = settings.connect().await?.remove(0);
    let info = client.inspect(&args.name).await?;
    check_kind(&info)?;
    let Some(holder) = chosen(args, &info)? else {
        report(args, None, &info, output);
        return Ok(NO);
    };
    if !args.yes {
        // Also with --quiet: who answers has to see the holder.
        for line in describe::lines(&info, Some(&[])) {
            complain(line);
        }
        if !is_confirmed(&args.name, &describe::short(holder))? {
            output.note("nothing was released");
            return Ok(NO);
        }
    }
    if free(&client, &args.name, holder).await? {
        report(args, Some(holder), &info, output);
        return Ok(YES);
    }
    let now = client.inspect(&args.name).await?;
    report(args, None, &now, output);
    Ok(NO)
}

/// Whether the user asked for it, and will see or has seen the holder.
pub(crate) fn check_flags(args: &Release) -> Result<(), Failed> {
    if !args.force {
        return Err(Failed::new(
            "a lock is released by its holder; --force takes it away from the holder",
        ));
    }
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if args.yes && args.holder.is_empty() || !is_terminal && !args.yes {
        return Err(Failed::new(
            "without a question, --yes and --holder FIELD are needed; `lockdog inspect` shows the field",
        ));
    }
    Ok(())
}

/// A key of another shape is not touched, whatever the flags say.
pub(crate) fn check_kind(info: &LockInfo) -> Result<(), Failed> {
    match info.kind {
        LockKind::Free
        | LockKind::Reentrant
        | LockKind::Fenced
        | LockKind::Fair
        | LockKind::Election
        | LockKind::ReadWrite => Ok(()),
        _ => {
            // Permits without leases stay in use if their client is stopped. A key that is no lock has no client.
            let advice = match info.kind {
                LockKind::Group => "; stop its client, or wait until its TTL ends",
                LockKind::PermitSemaphore => "; a permit ends with its lease",
                LockKind::Semaphore => "; `reclaim` in a program frees a dead client's permits",
                _ => "",
            };
            let (key, kind) = (clean(&info.key), describe::kind(info));
            Err(Failed::new(format_args!(
                "{key} is {kind}, which this command does not release{advice}"
            )))
        }
    }
}

/// The holder that the user means; `None` if that one does not have the lock.
fn chosen<'a>(args: &Release, info: &'a LockInfo) -> Result<Option<&'a HolderInfo>, Failed> {
    match (args.holder.first(), &info.holders[..]) {
        (Some(field), holders) => Ok(holders.iter().find(|it| it.field() == field)),
        (None, []) => Ok(None),
        (None, [holder]) => Ok(Some(holder)),
        (None, _) => Err(Failed::new(
            "it has several holders; name one with --holder FIELD, as `lockdog inspect` shows it",
        )),
    }
}

/// Asks on the terminal for the name.
pub(crate) fn is_confirmed(name: &str, from: &str) -> Result<bool, Failed> {
    complain(format_args!(
        "type the name {} to take it away from {from}:",
        clean(name)
    ));
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failed::new(format_args!("no answer: {error}")))?;
    Ok(line.trim_end_matches(['\r', '\n']) == name)
}

/// Frees the lock, if this holder has it. The script of its kind also notifies the next waiter.
pub(crate) async fn free(client: &Client, name: &str, holder: &HolderInfo) -> Result<bool, Failed> {
    // Its kind may have changed since it was shown: a fair lock looks like a plain one until a waiter is in its queue.
    let now = client.inspect(name).await?;
    check_kind(&now)?;
    let force = match now.kind {
        LockKind::Fair => client.fair_lock(name).force_unlock(),
        LockKind::Election => client.election(name).force_resign(),
        LockKind::ReadWrite if holder.is_write() => {
            client.read_write_lock(name).write().force_unlock()
        }
        LockKind::ReadWrite => client.read_write_lock(name).read().force_unlock(),
        _ => client.lock(name).force_unlock(),
    };
    Ok(force.expecting(holder).await?)
}

/// What follows for a holder that lost its lock.
pub(crate) fn consequence(holder: &HolderInfo) -> &'static str {
    match describe::by(holder) {
        "lockdog" => {
            "the holder is notified at its next renewal, at most a third of its lease later; with a fixed lease, \
             at its unlock or the end of the lease"
        }
        "redisson" => "the holder finds out at its unlock",
        _ => "the holder is not notified",
    }
}

fn report(args: &Release, released: Option<&HolderInfo>, info: &LockInfo, output: Output) {
    let now = info.holders.first().filter(|_| released.is_none());
    if output.json {
        output.object(json!({
            "key": args.name, "released": released.is_some(),
            "from": released.map(HolderInfo::field), "held_by": now.map(HolderInfo::field),
        }));
        return;
    }
    let name = clean(&args.name);
    match (released, now) {
        (Some(holder), _) => {
            output.line(format_args!("{name} was released; {}", consequence(holder)))
        }
        (None, Some(holder)) => output.line(format_args!(
            "{name} was not released: held by {} now",
            describe::short(holder)
        )),
        (None, None) => output.line(format_args!("{name} was not released: it is free")),
    }
}
