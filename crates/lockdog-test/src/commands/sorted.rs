//! Sorted sets: queue positions, and timeouts of permits.

use std::collections::BTreeMap;

use super::lists::range;
use super::{Command, anywhere, is};
use crate::database::{Database, text};
use crate::number::{float, int_arg, integer, score_number};
use crate::reply::{CommandResult, Refusal, Reply};

type Sorted = BTreeMap<Vec<u8>, f64>;

pub(super) const COMMANDS: &[Command] = &[
    anywhere("zadd", -4, add),
    anywhere("zcard", 2, |database, _, args| {
        let set = database.keys().find::<Sorted>(&args[1])?;
        Ok(Reply::Int(set.map_or(0, |set| set.len() as i64)))
    }),
    anywhere("zcount", 4, |database, _, args| {
        let bounds = Bounds::read(&args[2], &args[3])?;
        let found = in_order(database, &args[1])?;
        let found = found.iter().filter(|(_, score)| bounds.have(*score));
        Ok(Reply::Int(found.count() as i64))
    }),
    anywhere("zincrby", 4, |database, _, args| {
        let by = score_arg(&args[2])?;
        let set = database.keys().find_or_make::<Sorted>(&args[1])?;
        let score = set.entry(args[3].clone()).or_insert(0.0);
        *score = sum(*score, by)?;
        Ok(Reply::Double(*score))
    }),
    anywhere("zpopmin", -2, |database, _, args| {
        let count = match args.get(2) {
            None => 1,
            Some(count) => integer(count)
                .and_then(|count| usize::try_from(count).ok())
                .ok_or_else(|| Refusal::new("ERR value is out of range, must be positive"))?,
        };
        let mut found = in_order(database, &args[1])?;
        found.truncate(count);
        remove_all(database, &args[1], found.iter().map(|(item, _)| item))?;
        Ok(match args.len() {
            // Without a count RESP3 has no pairs either.
            2 => {
                let parts = found
                    .into_iter()
                    .flat_map(|(item, score)| [Reply::Bulk(item), Reply::Double(score)]);
                Reply::Array(parts.collect())
            }
            _ => Reply::Scored(found),
        })
    }),
    anywhere("zrange", -4, zrange),
    anywhere("zrangebyscore", -4, |database, _, args| {
        let bounds = Bounds::read(&args[2], &args[3])?;
        let options = Options::read(&args[4..])?;
        if options.by_score || options.reverse {
            return Err(Refusal::syntax());
        }
        let mut found = in_order(database, &args[1])?;
        found.retain(|(_, score)| bounds.have(*score));
        Ok(listed(options.limit(found), options.with_scores))
    }),
    anywhere("zrank", 3, |database, _, args| {
        let found = in_order(database, &args[1])?;
        let at = found.iter().position(|(item, _)| *item == args[2]);
        Ok(at.map_or(Reply::Nil, |at| Reply::Int(at as i64)))
    }),
    anywhere("zrem", -3, |database, _, args| {
        remove_all(database, &args[1], args[2..].iter())
    }),
    anywhere("zremrangebyscore", 4, |database, _, args| {
        let bounds = Bounds::read(&args[2], &args[3])?;
        let mut found = in_order(database, &args[1])?;
        found.retain(|(_, score)| bounds.have(*score));
        remove_all(database, &args[1], found.iter().map(|(item, _)| item))
    }),
    anywhere("zscore", 3, |database, _, args| {
        let set = database.keys().find::<Sorted>(&args[1])?;
        Ok(score(set.as_deref(), &args[2]))
    }),
    anywhere("zmscore", -3, |database, _, args| {
        let set = database.keys().find::<Sorted>(&args[1])?;
        let scores = args[2..].iter().map(|item| score(set.as_deref(), item));
        Ok(Reply::Array(scores.collect()))
    }),
];

fn score(set: Option<&Sorted>, item: &[u8]) -> Reply {
    let score = set.and_then(|set| set.get(item));
    score.map_or(Reply::Nil, |score| Reply::Double(*score))
}

/// By score, then by name.
fn in_order(database: &mut Database, key: &[u8]) -> Result<Vec<(Vec<u8>, f64)>, Refusal> {
    let set = database.keys().find::<Sorted>(key)?;
    let items = set.into_iter().flat_map(|set| set.iter());
    let mut items: Vec<_> = items.map(|(item, score)| (item.clone(), *score)).collect();
    // The names are sorted already, and the sort is stable.
    items.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    Ok(items)
}

fn remove_all<'a>(
    database: &mut Database,
    key: &[u8],
    items: impl Iterator<Item = &'a Vec<u8>>,
) -> CommandResult {
    let keys = database.keys();
    let Some(set) = keys.find::<Sorted>(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = items.filter(|item| set.remove(*item).is_some()).count();
    keys.prune::<Sorted>(key);
    Ok(Reply::Int(removed as i64))
}

fn listed(items: Vec<(Vec<u8>, f64)>, with_scores: bool) -> Reply {
    match with_scores {
        true => Reply::Scored(items),
        false => Reply::bulks(items.into_iter().map(|(item, _)| item)),
    }
}

fn add(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let (mut only_new, mut only_old, mut only_more, mut only_less) = (false, false, false, false);
    let (mut counts_changes, mut increments) = (false, false);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        match text(word).to_lowercase().as_str() {
            "nx" => only_new = true,
            "xx" => only_old = true,
            "gt" => only_more = true,
            "lt" => only_less = true,
            "ch" => counts_changes = true,
            "incr" => increments = true,
            _ => break,
        }
        at += 1;
    }
    let pairs = &args[at..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Refusal::syntax());
    }
    if only_new && only_old {
        let line = "ERR XX and NX options at the same time are not compatible";
        return Err(Refusal::new(line));
    }
    if only_new && (only_more || only_less) || only_more && only_less {
        let line = "ERR GT, LT, and/or NX options at the same time are not compatible";
        return Err(Refusal::new(line));
    }
    if increments && pairs.len() > 2 {
        let line = "ERR INCR option supports a single increment-element pair";
        return Err(Refusal::new(line));
    }
    let pairs: Vec<(f64, &Vec<u8>)> = pairs
        .chunks_exact(2)
        .map(|pair| Ok((score_arg(&pair[0])?, &pair[1])))
        .collect::<Result<_, Refusal>>()?;
    let keys = database.keys();
    let set = keys.find_or_make::<Sorted>(&args[1])?;
    let (mut added, mut changed, mut last) = (0, 0, Reply::Nil);
    for (score, item) in pairs {
        match set.get_mut(item) {
            None if only_old => {}
            None => {
                set.insert(item.clone(), score);
                added += 1;
                last = Reply::Double(score);
            }
            Some(_) if only_new => {}
            Some(present) => {
                let score = if increments {
                    sum(*present, score)?
                } else {
                    score
                };
                if only_more && score <= *present || only_less && score >= *present {
                    continue;
                }
                changed += i64::from(score != *present);
                *present = score;
                last = Reply::Double(score);
            }
        }
    }
    keys.prune::<Sorted>(&args[1]);
    Ok(match (increments, counts_changes) {
        (true, _) => last,
        (false, true) => Reply::Int(added + changed),
        (false, false) => Reply::Int(added),
    })
}

fn zrange(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let options = Options::read(&args[4..])?;
    let (from, to) = (&args[2], &args[3]);
    if options.by_score {
        let bounds = match options.reverse {
            false => Bounds::read(from, to)?,
            true => Bounds::read(to, from)?,
        };
        let mut found = in_order(database, &args[1])?;
        found.retain(|(_, score)| bounds.have(*score));
        if options.reverse {
            found.reverse();
        }
        return Ok(listed(options.limit(found), options.with_scores));
    }
    if options.limit.is_some() {
        let line = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                    BYLEX";
        return Err(Refusal::new(line));
    }
    let (from, to) = (int_arg(from)?, int_arg(to)?);
    let mut found = in_order(database, &args[1])?;
    if options.reverse {
        found.reverse();
    }
    let (from, to) = range(from, to, found.len());
    Ok(listed(found.drain(from..to).collect(), options.with_scores))
}

#[derive(Default)]
struct Options {
    by_score: bool,
    limit: Option<(i64, i64)>,
    reverse: bool,
    with_scores: bool,
}

impl Options {
    fn read(words: &[Vec<u8>]) -> Result<Self, Refusal> {
        let mut read = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if is(word, "byscore") {
                read.by_score = true;
            } else if is(word, "rev") {
                read.reverse = true;
            } else if is(word, "withscores") {
                read.with_scores = true;
            } else if is(word, "limit") {
                let mut number = || int_arg(words.next().ok_or_else(Refusal::syntax)?);
                read.limit = Some((number()?, number()?));
            } else {
                return Err(Refusal::syntax());
            }
        }
        Ok(read)
    }

    fn limit<T>(&self, items: Vec<T>) -> Vec<T> {
        let Some((from, count)) = self.limit else {
            return items;
        };
        let Ok(from) = usize::try_from(from) else {
            return Vec::new();
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        items.into_iter().skip(from).take(count).collect()
    }
}

/// A range of scores; each bound is inclusive or exclusive.
struct Bounds {
    low: (f64, bool),
    high: (f64, bool),
}

impl Bounds {
    fn read(low: &[u8], high: &[u8]) -> Result<Self, Refusal> {
        let bound = |text: &[u8]| {
            let (number, is_open) = match text {
                [b'(', number @ ..] => (number, true),
                number => (number, false),
            };
            let number = float(number);
            let number = number.ok_or_else(|| Refusal::new("ERR min or max is not a float"))?;
            Ok((number, is_open))
        };
        let (low, high) = (bound(low)?, bound(high)?);
        Ok(Self { low, high })
    }

    fn have(&self, score: f64) -> bool {
        let (low, is_open) = self.low;
        let above = if is_open { score > low } else { score >= low };
        let (high, is_open) = self.high;
        above && if is_open { score < high } else { score <= high }
    }
}

fn score_arg(text: &[u8]) -> Result<f64, Refusal> {
    score_number(text).ok_or_else(|| Refusal::new("ERR value is not a valid float"))
}

/// The sum of two scores, which is an error if both are infinite and differ.
fn sum(score: f64, by: f64) -> Result<f64, Refusal> {
    let sum = score + by;
    if sum.is_nan() {
        return Err(Refusal::new("ERR resulting score is not a number (NaN)"));
    }
    Ok(sum)
}
