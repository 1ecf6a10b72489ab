//! Sets.

use std::collections::BTreeSet;

use super::{Command, anywhere};
use crate::reply::Reply;

type Set = BTreeSet<Vec<u8>>;

pub(super) const COMMANDS: &[Command] = &[
    anywhere("sadd", -3, |database, _, args| {
        let set = database.keys().find_or_make::<Set>(&args[1])?;
        let new = args[2..].iter().filter(|item| set.insert((*item).clone()));
        Ok(Reply::Int(new.count() as i64))
    }),
    anywhere("scard", 2, |database, _, args| {
        let set = database.keys().find::<Set>(&args[1])?;
        Ok(Reply::Int(set.map_or(0, |set| set.len() as i64)))
    }),
    anywhere("sismember", 3, |database, _, args| {
        let set = database.keys().find::<Set>(&args[1])?;
        let has = set.is_some_and(|set| set.contains(&args[2]));
        Ok(Reply::Int(i64::from(has)))
    }),
    anywhere("smembers", 2, |database, _, args| {
        let set = database.keys().find::<Set>(&args[1])?;
        let items = set.into_iter().flat_map(|set| set.iter());
        Ok(Reply::Set(items.map(Reply::bulk).collect()))
    }),
    anywhere("srem", -3, |database, _, args| {
        let keys = database.keys();
        let Some(set) = keys.find::<Set>(&args[1])? else {
            return Ok(Reply::Int(0));
        };
        let removed = args[2..].iter().filter(|item| set.remove(*item)).count();
        keys.prune::<Set>(&args[1]);
        Ok(Reply::Int(removed as i64))
    }),
];
