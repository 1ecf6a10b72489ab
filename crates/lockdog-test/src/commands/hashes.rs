//! Hashes, which store the locks.

use uuid::Uuid;

use super::keys::{Filter, check_cursor, page};
use super::{Command, anywhere};
use crate::database::Database;
use crate::number::{int_arg, integer};
use crate::reply::{Refusal, Reply};

type Hash = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) const COMMANDS: &[Command] = &[
    anywhere("hdel", -3, |database, _, args| {
        let (key, keys) = (&args[1], database.keys());
        let Some(hash) = keys.find::<Hash>(key)? else {
            return Ok(Reply::Int(0));
        };
        let before = hash.len();
        hash.retain(|(field, _)| !args[2..].contains(field));
        let removed = before - hash.len();
        keys.prune::<Hash>(key);
        Ok(Reply::Int(removed as i64))
    }),
    anywhere("hexists", 3, |database, _, args| {
        let found = value(database, &args[1], &args[2])?.is_some();
        Ok(Reply::Int(i64::from(found)))
    }),
    anywhere("hget", 3, |database, _, args| {
        let found = value(database, &args[1], &args[2])?;
        Ok(found.map_or(Reply::Nil, Reply::Bulk))
    }),
    anywhere("hgetall", 2, |database, _, args| {
        let hash = whole(database, &args[1])?;
        let pairs = hash
            .into_iter()
            .map(|(k, v)| (Reply::Bulk(k), Reply::Bulk(v)));
        Ok(Reply::Map(pairs.collect()))
    }),
    anywhere("hincrby", 4, |database, _, args| {
        let by = int_arg(&args[3])?;
        let hash = database.keys().find_or_make::<Hash>(&args[1])?;
        let found = hash.iter_mut().find(|(field, _)| *field == args[2]);
        let count = match &found {
            None => 0,
            Some((_, count)) => {
                integer(count).ok_or_else(|| Refusal::new("ERR hash value is not an integer"))?
            }
        };
        let count = count
            .checked_add(by)
            .ok_or_else(|| Refusal::new("ERR increment or decrement would overflow"))?;
        let written = count.to_string().into_bytes();
        match found {
            Some((_, value)) => *value = written,
            None => hash.push((args[2].clone(), written)),
        }
        Ok(Reply::Int(count))
    }),
    anywhere("hkeys", 2, |database, _, args| {
        let hash = whole(database, &args[1])?;
        Ok(Reply::bulks(hash.into_iter().map(|(field, _)| field)))
    }),
    anywhere("hlen", 2, |database, _, args| {
        Ok(Reply::Int(whole(database, &args[1])?.len() as i64))
    }),
    anywhere("hmget", -3, |database, _, args| {
        let hash = whole(database, &args[1])?;
        let found = args[2..].iter().map(|wanted| {
            let pair = hash.iter().find(|(field, _)| field == wanted);
            pair.map_or(Reply::Nil, |(_, value)| Reply::bulk(value))
        });
        Ok(Reply::Array(found.collect()))
    }),
    anywhere("hmset", -4, |database, _, args| {
        set(database, args).map(|_| Reply::OK)
    }),
    anywhere("hrandfield", -2, |database, _, args| {
        let count = args.get(2).map(|count| int_arg(count)).transpose()?;
        if args.len() > 3 {
            return Err(Refusal::new("ERR the test server knows no WITHVALUES"));
        }
        let mut fields = whole(database, &args[1])?;
        let len = fields.len();
        if len > 0 {
            fields.rotate_left(Uuid::new_v4().as_u128() as usize % len);
        }
        let mut fields = fields.into_iter().map(|(field, _)| field);
        let Some(count) = count else {
            return Ok(fields.next().map_or(Reply::Nil, Reply::Bulk));
        };
        let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        if count < 0 {
            // Redis would try to send them.
            if wanted > MOST_REPEATED {
                return Err(Refusal::new("ERR value is out of range"));
            }
            // The same field may come several times.
            let of_one = fields.next().into_iter();
            return Ok(Reply::bulks(of_one.flat_map(|it| vec![it; wanted])));
        }
        Ok(Reply::bulks(fields.take(wanted)))
    }),
    // All fields in one page. The options count only if there is such a hash, as in Redis.
    anywhere("hscan", -3, |database, _, args| {
        check_cursor(&args[2])?;
        let Some(hash) = database.keys().find::<Hash>(&args[1])? else {
            return Ok(page(Vec::<Vec<u8>>::new()));
        };
        let filter = Filter::read(&args[3..], false)?;
        let found = hash.iter().filter(|(field, _)| filter.has(field));
        Ok(page(found.flat_map(|(field, value)| [field, value])))
    }),
    anywhere("hset", -4, |database, _, args| {
        set(database, args).map(Reply::Int)
    }),
    anywhere("hsetnx", 4, |database, _, args| {
        if value(database, &args[1], &args[2])?.is_some() {
            return Ok(Reply::Int(0));
        }
        set(database, args).map(Reply::Int)
    }),
    anywhere("hstrlen", 3, |database, _, args| {
        let found = value(database, &args[1], &args[2])?;
        Ok(Reply::Int(found.map_or(0, |value| value.len() as i64)))
    }),
    anywhere("hvals", 2, |database, _, args| {
        let hash = whole(database, &args[1])?;
        Ok(Reply::bulks(hash.into_iter().map(|(_, value)| value)))
    }),
];

fn whole(database: &mut Database, key: &[u8]) -> Result<Hash, Refusal> {
    let found = database.keys().find::<Hash>(key)?;
    Ok(found.cloned().unwrap_or_default())
}

fn value(database: &mut Database, key: &[u8], wanted: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let hash = database.keys().find::<Hash>(key)?;
    let pair = hash.and_then(|hash| hash.iter().find(|(field, _)| field == wanted));
    Ok(pair.map(|(_, value)| value.clone()))
}

/// Sets fields; returns the number of new ones.
fn set(database: &mut Database, args: &[Vec<u8>]) -> Result<i64, Refusal> {
    let pairs = &args[2..];
    if !pairs.len().is_multiple_of(2) {
        return Err(Refusal::arguments(&crate::database::text(&args[0])));
    }
    let hash = database.keys().find_or_make::<Hash>(&args[1])?;
    let mut new = 0;
    for pair in pairs.chunks_exact(2) {
        match hash.iter_mut().find(|(field, _)| *field == pair[0]) {
            Some((_, value)) => value.clone_from(&pair[1]),
            None => {
                hash.push((pair[0].clone(), pair[1].clone()));
                new += 1;
            }
        }
    }
    Ok(new)
}

/// How often one field may come in an answer.
const MOST_REPEATED: usize = 1_000_000;
