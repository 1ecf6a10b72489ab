//! Lists: the queues of fair locks.

use std::collections::VecDeque;

use super::{Command, anywhere};
use crate::database::Database;
use crate::number::{int_arg, integer};
use crate::reply::{CommandResult, Refusal, Reply};

type List = VecDeque<Vec<u8>>;

pub(super) const COMMANDS: &[Command] = &[
    anywhere("lindex", 3, |database, _, args| {
        let Some(list) = database.keys().find::<List>(&args[1])? else {
            return Ok(Reply::Nil);
        };
        let at = int_arg(&args[2])?;
        let found = place(at, list.len()).and_then(|at| list.get(at));
        Ok(found.map_or(Reply::Nil, Reply::bulk))
    }),
    anywhere("llen", 2, |database, _, args| {
        let list = database.keys().find::<List>(&args[1])?;
        Ok(Reply::Int(list.map_or(0, |list| list.len() as i64)))
    }),
    anywhere("lpop", -2, |database, _, args| {
        pop(database, args, VecDeque::pop_front)
    }),
    anywhere("lpush", -3, |database, _, args| {
        push(database, args, VecDeque::push_front)
    }),
    anywhere("lrange", 4, |database, _, args| {
        let (from, to) = (int_arg(&args[2])?, int_arg(&args[3])?);
        let Some(list) = database.keys().find::<List>(&args[1])? else {
            return Ok(Reply::Array(Vec::new()));
        };
        let (from, to) = range(from, to, list.len());
        let items = list.iter().take(to).skip(from);
        Ok(Reply::bulks(items))
    }),
    anywhere("lrem", 4, remove),
    anywhere("lset", 4, |database, _, args| {
        let list = database.keys().find::<List>(&args[1])?;
        let list = list.ok_or_else(|| Refusal::new("ERR no such key"))?;
        let at = int_arg(&args[2])?;
        let item = place(at, list.len()).and_then(|at| list.get_mut(at));
        let item = item.ok_or_else(|| Refusal::new("ERR index out of range"))?;
        item.clone_from(&args[3]);
        Ok(Reply::OK)
    }),
    anywhere("ltrim", 4, |database, _, args| {
        let (from, to) = (int_arg(&args[2])?, int_arg(&args[3])?);
        let keys = database.keys();
        if let Some(list) = keys.find::<List>(&args[1])? {
            let (from, to) = range(from, to, list.len());
            list.truncate(to);
            list.drain(..from.min(list.len()));
            keys.prune::<List>(&args[1]);
        }
        Ok(Reply::OK)
    }),
    anywhere("rpop", -2, |database, _, args| {
        pop(database, args, VecDeque::pop_back)
    }),
    anywhere("rpush", -3, |database, _, args| {
        push(database, args, VecDeque::push_back)
    }),
];

/// The index of an item; negative positions count from the end.
fn place(at: i64, length: usize) -> Option<usize> {
    let at = if at < 0 { at + length as i64 } else { at };
    usize::try_from(at).ok()
}

/// The index of the first item, and the index after the last item.
pub(super) fn range(from: i64, to: i64, length: usize) -> (usize, usize) {
    let from = place(from, length).unwrap_or(0);
    let to = place(to, length).map_or(0, |to| (to + 1).min(length));
    (from.min(to), to)
}

fn push(database: &mut Database, args: &[Vec<u8>], push: fn(&mut List, Vec<u8>)) -> CommandResult {
    let list = database.keys().find_or_make::<List>(&args[1])?;
    for item in &args[2..] {
        push(list, item.clone());
    }
    Ok(Reply::Int(list.len() as i64))
}

fn pop(
    database: &mut Database,
    args: &[Vec<u8>],
    pop: fn(&mut List) -> Option<Vec<u8>>,
) -> CommandResult {
    let count = match args {
        [_, _] => None,
        [_, _, count] => {
            let count = integer(count).and_then(|count| usize::try_from(count).ok());
            let line = "ERR value is out of range, must be positive";
            Some(count.ok_or_else(|| Refusal::new(line))?)
        }
        _ => return Err(Refusal::arguments(&crate::database::text(&args[0]))),
    };
    let keys = database.keys();
    let Some(list) = keys.find::<List>(&args[1])? else {
        return Ok(match count {
            None => Reply::Nil,
            Some(_) => Reply::NilArray,
        });
    };
    let reply = match count {
        None => pop(list).map_or(Reply::Nil, Reply::Bulk),
        Some(count) => {
            let count = count.min(list.len());
            Reply::bulks((0..count).filter_map(|_| pop(list)))
        }
    };
    keys.prune::<List>(&args[1]);
    Ok(reply)
}

fn remove(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let count = int_arg(&args[2])?;
    let keys = database.keys();
    let Some(list) = keys.find::<List>(&args[1])? else {
        return Ok(Reply::Int(0));
    };
    let most = match count {
        0 => usize::MAX,
        count => count.unsigned_abs() as usize,
    };
    let mut removed = 0;
    let mut take = |item: &Vec<u8>| {
        let takes = *item == args[3] && removed < most;
        removed += usize::from(takes);
        !takes
    };
    if count < 0 {
        let mut kept: List = list.drain(..).rev().filter(&mut take).collect();
        kept.make_contiguous().reverse();
        *list = kept;
    } else {
        list.retain(&mut take);
    }
    keys.prune::<List>(&args[1]);
    Ok(Reply::Int(removed as i64))
}
