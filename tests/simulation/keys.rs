//! The keys of one simulated server: hashes, strings, lists and sorted sets, which expire in virtual
//! time.

use std::collections::{BTreeMap, HashMap};

use super::lists;
use crate::key::is_of_waiting_list;

#[derive(Default)]
pub(super) struct Keys {
    now_ms: u64,
    /// The time of its clock at the start of the run.
    pub(super) epoch_ms: u64,
    /// The published messages: the channels and the texts.
    pub(super) published: Vec<(String, String)>,
    /// How many connections are subscribed to each channel.
    pub(super) listening: HashMap<String, i64>,
    /// The commands of scripts, if they are recorded.
    pub(super) calls: Option<Vec<Vec<String>>>,
    entries: HashMap<String, Entry>,
}

#[derive(Default)]
struct Entry {
    data: Data,
    /// The last millisecond in which the key exists.
    until_ms: Option<u64>,
}

enum Data {
    Hash(BTreeMap<String, String>),
    Text(String),
    List(Vec<String>),
    Sorted(BTreeMap<String, f64>),
}

/// A copy of a hash, for readers outside the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Hash {
    /// The fields with numbers.
    pub(super) counts: BTreeMap<String, i64>,
    /// The mode of a read/write lock.
    pub(super) mode: Option<String>,
    pub(super) until_ms: Option<u64>,
}

/// The reply to a command.
pub(super) enum Reply {
    Int(i64),
    Nil,
    Bulk(String),
    List(Vec<String>),
    /// Each may be missing.
    Values(Vec<Option<String>>),
    /// For each channel, how many connections listen.
    Listeners(Vec<(String, i64)>),
    Ok,
}

pub(super) type Answer = Result<Reply, String>;

impl Default for Data {
    fn default() -> Self {
        Self::Hash(BTreeMap::new())
    }
}

impl Data {
    fn is_empty(&self) -> bool {
        match self {
            Self::Hash(counts) => counts.is_empty(),
            Self::Text(_) => false,
            Self::List(items) => items.is_empty(),
            Self::Sorted(members) => members.is_empty(),
        }
    }
}

impl Keys {
    /// The keys at this millisecond.
    pub(super) fn at(&mut self, now_ms: u64) -> &mut Self {
        self.now_ms = now_ms;
        self
    }

    pub(super) fn hash(&mut self, key: &str) -> Option<Hash> {
        let entry = self.living(key)?;
        match &entry.data {
            Data::Hash(fields) => {
                let number =
                    |(field, value): (&String, &String)| Some((field.clone(), value.parse().ok()?));
                Some(Hash {
                    counts: fields.iter().filter_map(number).collect(),
                    mode: fields.get("mode").cloned(),
                    until_ms: entry.until_ms,
                })
            }
            _ => None,
        }
    }

    /// The last millisecond of a key, if the key exists and expires.
    pub(super) fn until_ms(&mut self, key: &str) -> Option<u64> {
        self.living(key)?.until_ms
    }

    /// All keys that exist.
    pub(super) fn names(&mut self) -> Vec<String> {
        let all: Vec<String> = self.entries.keys().cloned().collect();
        let mut there: Vec<String> = all
            .into_iter()
            .filter(|key| self.living(key).is_some())
            .collect();
        there.sort();
        there
    }

    /// All fields of a hash.
    pub(super) fn fields(&mut self, key: &str) -> BTreeMap<String, String> {
        match self.living(key).map(|entry| &entry.data) {
            Some(Data::Hash(fields)) => fields.clone(),
            _ => BTreeMap::new(),
        }
    }

    pub(super) fn exists(&mut self, key: &str) -> bool {
        self.living(key).is_some()
    }

    pub(super) fn number(&mut self, key: &str) -> i64 {
        let text = self.text(key).ok().flatten();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub(super) fn sorted(&mut self, key: &str) -> BTreeMap<String, f64> {
        match self.living(key).map(|entry| &entry.data) {
            Some(Data::Sorted(members)) => members.clone(),
            _ => BTreeMap::new(),
        }
    }

    pub(super) fn list(&mut self, key: &str) -> Vec<String> {
        match self.living(key).map(|entry| &entry.data) {
            Some(Data::List(items)) => items.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        let entry = self.entries.entry(key.to_owned()).or_default();
        entry.data = Data::Text(value.to_owned());
        entry.until_ms = None;
    }

    pub(super) fn call(&mut self, args: &[String]) -> Answer {
        let name = args[0].to_lowercase();
        match name.as_str() {
            "pubsub" => {
                let channels = args[2..].iter();
                let counted = channels.map(|channel| (channel.clone(), self.listening(channel)));
                return Ok(Reply::Listeners(counted.collect()));
            }
            "publish" => {
                let message = (arg(args, 1)?.to_owned(), arg(args, 2)?.to_owned());
                let listening = self.listening.get(&message.0).copied();
                self.published.push(message);
                return Ok(Reply::Int(listening.unwrap_or(0)));
            }
            "info" => return Ok(Reply::Bulk("run_id:1\r\nmaster_replid:1\r\n".to_owned())),
            "client" | "ping" | "subscribe" | "unsubscribe" => return Ok(Reply::Ok),
            "time" => {
                let now_ms = self.epoch_ms + self.now_ms;
                let time = [now_ms / 1_000, now_ms % 1_000 * 1_000].map(|part| part.to_string());
                return Ok(Reply::List(time.into()));
            }
            _ => {}
        }
        match name.chars().next() {
            Some('h') => self.call_hash(&name, args),
            Some('l' | 'r') => self.call_list(&name, args),
            Some('z') => self.call_sorted(&name, args),
            _ => self.call_any(&name, args),
        }
    }

    /// How many connections listen on a channel. In every fourth millisecond another client counts as
    /// subscribed to a lock's channel, so that sequences of hand-overs end.
    fn listening(&self, channel: &str) -> i64 {
        let more = self.now_ms.is_multiple_of(4) && !is_of_waiting_list(channel);
        self.listening.get(channel).copied().unwrap_or(0) + i64::from(more)
    }

    /// Commands about keys of any type, and about numbers.
    fn call_any(&mut self, name: &str, args: &[String]) -> Answer {
        let (now, key) = (self.now_ms, arg(args, 1)?);
        Ok(match name {
            "exists" => {
                let there = args[1..].iter().filter(|key| self.living(key).is_some());
                Reply::Int(there.count() as i64)
            }
            "del" => {
                let was = self.living(key).is_some();
                self.entries.remove(key);
                Reply::Int(i64::from(was))
            }
            "pexpire" => {
                let ttl = number(args, 2)?;
                let Some(entry) = self.living(key) else {
                    return Ok(Reply::Int(0));
                };
                match u64::try_from(ttl) {
                    Ok(ttl @ 1..) => entry.until_ms = Some(now + ttl),
                    _ => drop(self.entries.remove(key)),
                }
                Reply::Int(1)
            }
            "pttl" => match self.living(key) {
                None => Reply::Int(-2),
                Some(entry) => Reply::Int(entry.until_ms.map_or(-1, |until| (until - now) as i64)),
            },
            "persist" => {
                let entry = self.living(key);
                let had_ttl = entry.and_then(|entry| entry.until_ms.take()).is_some();
                Reply::Int(i64::from(had_ttl))
            }
            // With `px n`, or without.
            "set" => {
                let until_ms = match args.len() {
                    5 => Some(now + number(args, 4)? as u64),
                    _ => None,
                };
                let data = Data::Text(arg(args, 2)?.to_owned());
                self.entries
                    .insert(key.to_owned(), Entry { data, until_ms });
                Reply::Ok
            }
            "get" => self.text(key)?.map_or(Reply::Nil, Reply::Bulk),
            // With `px`.
            "incr" | "incrby" | "decrby" | "decr" => {
                let by = match name {
                    "incr" | "decr" => 1,
                    _ => number(args, 2)?,
                };
                let text = self.text(key)?.unwrap_or_else(|| "0".to_owned());
                let value: i64 = text.parse().map_err(|_| NOT_A_NUMBER.to_owned())?;
                let value = if name.starts_with("incr") {
                    value + by
                } else {
                    value - by
                };
                let until_ms = self.living(key).and_then(|entry| entry.until_ms);
                let data = Data::Text(value.to_string());
                self.entries
                    .insert(key.to_owned(), Entry { data, until_ms });
                Reply::Int(value)
            }
            other => return Err(format!("ERR unknown command '{other}'")),
        })
    }

    fn call_hash(&mut self, name: &str, args: &[String]) -> Answer {
        let key = arg(args, 1)?;
        if name == "hincrby" {
            let (field, by) = (arg(args, 2)?.to_owned(), number(args, 3)?);
            let fields = self.or_new(key, Data::default).hash()?;
            let value = fields.entry(field).or_insert_with(|| "0".to_owned());
            let count: i64 = value.parse().map_err(|_| NOT_A_NUMBER.to_owned())?;
            *value = (count + by).to_string();
            return Ok(Reply::Int(count + by));
        }
        if name == "hset" {
            let fields = self.or_new(key, Data::default).hash()?;
            let mut new = 0;
            for pair in args[2..].chunks_exact(2) {
                let old = fields.insert(pair[0].clone(), pair[1].clone());
                new += i64::from(old.is_none());
            }
            return Ok(Reply::Int(new));
        }
        let mut none = BTreeMap::new();
        let counts = match self.living(key) {
            Some(entry) => entry.hash()?,
            None => &mut none,
        };
        let reply = match name {
            "hexists" => Reply::Int(i64::from(counts.contains_key(arg(args, 2)?))),
            "hget" => {
                let count = counts.get(arg(args, 2)?);
                count.map_or(Reply::Nil, |count| Reply::Bulk(count.clone()))
            }
            "hlen" => Reply::Int(counts.len() as i64),
            "hgetall" => {
                let pairs = counts.iter();
                Reply::List(pairs.flat_map(|(k, v)| [k.clone(), v.clone()]).collect())
            }
            // The values are the same each time, so that a run can be repeated.
            "hrandfield" => {
                let few = counts.keys().rev().take(number(args, 2)? as usize);
                Reply::List(few.cloned().collect())
            }
            "hmget" => {
                let values = args[2..].iter().map(|field| counts.get(field).cloned());
                Reply::Values(values.collect())
            }
            "hkeys" => Reply::List(counts.keys().cloned().collect()),
            "hdel" => {
                let removed = args[2..].iter().filter(|it| counts.remove(*it).is_some());
                Reply::Int(removed.count() as i64)
            }
            other => return Err(format!("ERR unknown command '{other}'")),
        };
        self.remove_empty(key);
        Ok(reply)
    }

    fn call_list(&mut self, name: &str, args: &[String]) -> Answer {
        let key = arg(args, 1)?;
        let entry = self.or_new(key, || Data::List(Vec::new()));
        let Data::List(items) = &mut entry.data else {
            return Err(WRONG_TYPE.to_owned());
        };
        let answer = lists::call(items, name, args);
        self.remove_empty(key);
        answer
    }

    fn call_sorted(&mut self, name: &str, args: &[String]) -> Answer {
        let key = arg(args, 1)?;
        if name == "zadd" {
            let members = self
                .or_new(key, || Data::Sorted(BTreeMap::new()))
                .sorted()?;
            let mut new = 0;
            for pair in args[2..].chunks(2) {
                let score = score(pair, 0)?;
                let member = arg(pair, 1)?.to_owned();
                new += i64::from(members.insert(member, score).is_none());
            }
            return Ok(Reply::Int(new));
        }
        let mut none = BTreeMap::new();
        let members = match self.living(key) {
            Some(entry) => entry.sorted()?,
            None => &mut none,
        };
        let reply = match name {
            "zscore" => {
                let score = members.get(arg(args, 2)?);
                score.map_or(Reply::Nil, |score| Reply::Bulk(score.to_string()))
            }
            "zmscore" => {
                let scores = args[2..].iter().map(|it| members.get(it));
                Reply::Values(scores.map(|it| it.map(f64::to_string)).collect())
            }
            "zincrby" => {
                let by = score(args, 2)?;
                let Some(score) = members.get_mut(arg(args, 3)?) else {
                    return Err("ERR a new member is not simulated".to_owned());
                };
                *score += by;
                Reply::Bulk(score.to_string())
            }
            "zcard" => Reply::Int(members.len() as i64),
            "zcount" => Reply::Int(within(members, args)?.len() as i64),
            "zrem" => {
                let removed = args[2..].iter().filter(|it| members.remove(*it).is_some());
                Reply::Int(removed.count() as i64)
            }
            "zremrangebyscore" => {
                let found = within(members, args)?;
                for (_, member) in &found {
                    members.remove(member);
                }
                Reply::Int(found.len() as i64)
            }
            // With `limit 0 n`.
            "zrangebyscore" if args.get(4).is_some_and(|it| it == "withscores") => {
                let found = within(members, args)?.into_iter();
                let found = found.flat_map(|(score, member)| [member, score.to_string()]);
                Reply::List(found.collect())
            }
            "zrangebyscore" => {
                let most = number(args, 6)? as usize;
                let found = within(members, args)?.into_iter().take(most);
                Reply::List(found.map(|(_, member)| member).collect())
            }
            // `-1 -1 withscores`: the last one.
            "zrange" if args[2] == "-1" => {
                let last = ordered(members).pop();
                let last = last.map(|(score, member)| vec![member, score.to_string()]);
                Reply::List(last.unwrap_or_default())
            }
            // `0 -1`: all; `0 0`: the first one.
            "zrange" if args.len() == 4 => {
                let most = if args[3] == "-1" { usize::MAX } else { 1 };
                let members = ordered(members).into_iter().take(most);
                Reply::List(members.map(|(_, member)| member).collect())
            }
            "zpopmin" => {
                let first = ordered(members).into_iter().next();
                let first = first.map(|(score, member)| {
                    members.remove(&member);
                    vec![member, score.to_string()]
                });
                Reply::List(first.unwrap_or_default())
            }
            // `0 -1 withscores`: all.
            "zrange" if args[3] == "-1" => {
                let all = ordered(members).into_iter();
                let all = all.flat_map(|(score, member)| [member, score.to_string()]);
                Reply::List(all.collect())
            }
            // `0 0 withscores`: the first one.
            "zrange" => {
                let first = ordered(members).into_iter().next();
                let first = first.map(|(score, member)| vec![member, score.to_string()]);
                Reply::List(first.unwrap_or_default())
            }
            other => return Err(format!("ERR unknown command '{other}'")),
        };
        self.remove_empty(key);
        Ok(reply)
    }

    fn living(&mut self, key: &str) -> Option<&mut Entry> {
        let now = self.now_ms;
        let ends = |entry: &Entry| entry.until_ms.is_some_and(|until| now > until);
        if self.entries.get(key).is_some_and(ends) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    fn or_new(&mut self, key: &str, data: impl FnOnce() -> Data) -> &mut Entry {
        self.living(key);
        self.entries.entry(key.to_owned()).or_insert_with(|| Entry {
            data: data(),
            until_ms: None,
        })
    }

    /// A server has no empty hash and no empty set.
    fn remove_empty(&mut self, key: &str) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.data.is_empty())
        {
            self.entries.remove(key);
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.living(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }
}

impl Entry {
    fn hash(&mut self) -> Result<&mut BTreeMap<String, String>, String> {
        match &mut self.data {
            Data::Hash(counts) => Ok(counts),
            _ => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn sorted(&mut self) -> Result<&mut BTreeMap<String, f64>, String> {
        match &mut self.data {
            Data::Sorted(members) => Ok(members),
            _ => Err(WRONG_TYPE.to_owned()),
        }
    }
}

/// The members in the order of their scores, then of their names.
fn ordered(members: &BTreeMap<String, f64>) -> Vec<(f64, String)> {
    let mut ordered: Vec<_> = members.iter().map(|(k, v)| (*v, k.clone())).collect();
    ordered.sort_by(|a, b| a.0.total_cmp(&b.0));
    ordered
}

/// The members with scores between two numbers, both included.
fn within(members: &BTreeMap<String, f64>, args: &[String]) -> Result<Vec<(f64, String)>, String> {
    let (least, most) = (score(args, 2)?, score(args, 3)?);
    let mut found = ordered(members);
    found.retain(|(score, _)| (least..=most).contains(score));
    Ok(found)
}

pub(super) fn arg(args: &[String], i: usize) -> Result<&str, String> {
    let arg = args.get(i).map(String::as_str);
    arg.ok_or_else(|| "ERR wrong number of arguments".to_owned())
}

fn score(args: &[String], i: usize) -> Result<f64, String> {
    arg(args, i)?.parse().map_err(|_| NOT_A_NUMBER.to_owned())
}

fn number(args: &[String], i: usize) -> Result<i64, String> {
    arg(args, i)?.parse().map_err(|_| NOT_A_NUMBER.to_owned())
}

const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
