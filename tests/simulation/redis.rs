//! A tiny Redis: hashes of counters with expiry in virtual time, and the real scripts in Lua 5.1.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use mlua::{Function, Lua, Table, Value as LuaValue, Variadic};
use redis::Value;

/// The keys of one server.
#[derive(Default)]
pub(super) struct Keys {
    now_ms: u64,
    hashes: BTreeMap<String, Hash>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Hash {
    pub(super) counts: BTreeMap<String, i64>,
    /// The last millisecond in which the key exists.
    pub(super) until_ms: Option<u64>,
}

/// A Redis server without a network. One for each thread, because its scripts are compiled only once.
pub(super) struct Redis {
    lua: Lua,
    keys: Rc<RefCell<Keys>>,
    compiled: HashMap<String, Function>,
    known: HashMap<String, String>,
}

impl Redis {
    pub(super) fn new() -> Self {
        let lua = Lua::new();
        let keys = Rc::new(RefCell::new(Keys::default()));
        install(&lua, &keys).expect("the interpreter takes two functions");
        Self {
            lua,
            keys,
            compiled: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Forgets every key and every script, like a new server.
    pub(super) fn reset(&mut self) {
        *self.keys.borrow_mut() = Keys::default();
        self.known.clear();
    }

    pub(super) fn flush_scripts(&mut self) {
        self.known.clear();
    }

    /// The hash under a key, at this millisecond.
    pub(super) fn hash(&self, key: &str, now_ms: u64) -> Option<Hash> {
        let mut keys = self.keys.borrow_mut();
        keys.now_ms = now_ms;
        keys.living(key).cloned()
    }

    pub(super) fn execute(&mut self, args: &[String], now_ms: u64) -> Value {
        self.keys.borrow_mut().now_ms = now_ms;
        let answer = match args[0].as_str() {
            "EVALSHA" => match self.known.get(&args[1]).cloned() {
                Some(text) => self.evaluate(&text, &args[2..]),
                None => Err("NOSCRIPT No matching script.".to_owned()),
            },
            "EVAL" => {
                let digest = redis::Script::new(&args[1]).get_hash().to_owned();
                self.known.insert(digest, args[1].clone());
                self.evaluate(&args[1], &args[2..])
            }
            _ => self.keys.borrow_mut().call(args).map(Reply::into_value),
        };
        answer.unwrap_or_else(|error| error_answer(&error))
    }

    fn evaluate(&mut self, text: &str, args: &[String]) -> Result<Value, String> {
        if !self.compiled.contains_key(text) {
            let function = self.lua.load(text).into_function();
            let function = function.map_err(|error| format!("ERR {error}"))?;
            self.compiled.insert(text.to_owned(), function);
        }
        let keys: usize = args[0].parse().map_err(|_| "ERR numkeys".to_owned())?;
        let globals = self.lua.globals();
        let run = || {
            globals.set("KEYS", &args[1..=keys])?;
            globals.set("ARGV", &args[keys + 1..])?;
            self.compiled[text].call::<LuaValue>(())
        };
        match run() {
            Ok(value) => from_lua(&value),
            Err(error) => Err(format!("ERR {error}")),
        }
    }
}

/// An error in the server's format.
pub(super) fn error_answer(line: &str) -> Value {
    let line: String = line.lines().take(1).collect();
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error line is a reply")
}

/// The reply to a command.
enum Reply {
    Int(i64),
    Nil,
    Bulk(String),
    List(Vec<String>),
    Listeners(String, i64),
    Ok,
}

impl Reply {
    fn into_value(self) -> Value {
        match self {
            Self::Int(n) => Value::Int(n),
            Self::Nil => Value::Nil,
            Self::Bulk(text) => Value::BulkString(text.into_bytes()),
            Self::List(texts) => Value::Array(
                texts
                    .into_iter()
                    .map(|text| Value::BulkString(text.into_bytes()))
                    .collect(),
            ),
            Self::Listeners(channel, count) => Value::Array(vec![
                Value::BulkString(channel.into_bytes()),
                Value::Int(count),
            ]),
            Self::Ok => Value::Okay,
        }
    }
}

impl Keys {
    fn living(&mut self, key: &str) -> Option<&mut Hash> {
        let now = self.now_ms;
        if self
            .hashes
            .get(key)
            .is_some_and(|hash| hash.until_ms.is_some_and(|until| now > until))
        {
            self.hashes.remove(key);
        }
        self.hashes.get_mut(key)
    }

    fn call(&mut self, args: &[String]) -> Result<Reply, String> {
        let now = self.now_ms;
        let arg = |i: usize| args.get(i).ok_or("ERR wrong number of arguments");
        let number = |i: usize| -> Result<i64, String> {
            let error = "ERR value is not an integer or out of range";
            arg(i)?.parse().map_err(|_| error.to_owned())
        };
        let key = arg(1)?;
        Ok(match args[0].to_lowercase().as_str() {
            "exists" => Reply::Int(i64::from(self.living(key).is_some())),
            "del" => {
                let was = self.living(key).is_some();
                self.hashes.remove(key);
                Reply::Int(i64::from(was))
            }
            "hexists" => {
                let field = arg(2)?;
                let found = self.living(key).map(|hash| hash.counts.contains_key(field));
                Reply::Int(i64::from(found.unwrap_or(false)))
            }
            "hget" => {
                let field = arg(2)?;
                let count = self.living(key).and_then(|hash| hash.counts.get(field));
                count.map_or(Reply::Nil, |count| Reply::Bulk(count.to_string()))
            }
            "hgetall" => {
                let hash = self.living(key).cloned().unwrap_or_default();
                let pairs = hash.counts.into_iter();
                Reply::List(pairs.flat_map(|(k, v)| [k, v.to_string()]).collect())
            }
            "hincrby" => {
                let (field, by) = (arg(2)?, number(3)?);
                self.living(key);
                let hash = self.hashes.entry(key.clone()).or_default();
                let count = hash.counts.entry(field.clone()).or_default();
                *count += by;
                Reply::Int(*count)
            }
            "hdel" => {
                let field = arg(2)?;
                let Some(hash) = self.living(key) else {
                    return Ok(Reply::Int(0));
                };
                let was = hash.counts.remove(field).is_some();
                if hash.counts.is_empty() {
                    self.hashes.remove(key);
                }
                Reply::Int(i64::from(was))
            }
            "pexpire" => {
                let ttl = number(2)?;
                let Some(hash) = self.living(key) else {
                    return Ok(Reply::Int(0));
                };
                match u64::try_from(ttl) {
                    Ok(ttl @ 1..) => hash.until_ms = Some(now + ttl),
                    _ => drop(self.hashes.remove(key)),
                }
                Reply::Int(1)
            }
            "pttl" => match self.living(key) {
                None => Reply::Int(-2),
                Some(hash) => Reply::Int(hash.until_ms.map_or(-1, |until| (until - now) as i64)),
            },
            "publish" => Reply::Int(0),
            // Now and then another client is subscribed, so that streaks of hand-overs end.
            "pubsub" => Reply::Listeners(arg(2)?.clone(), i64::from(now.is_multiple_of(4))),
            "info" => Reply::Bulk("run_id:1\r\nmaster_replid:1\r\n".to_owned()),
            "client" | "ping" => Reply::Ok,
            other => return Err(format!("ERR unknown command '{other}'")),
        })
    }
}

fn install(lua: &Lua, keys: &Rc<RefCell<Keys>>) -> mlua::Result<()> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let keys = keys.clone();
        let call = move |lua: &Lua, args: Variadic<LuaValue>| {
            let args: Option<Vec<String>> = args.iter().map(argument).collect();
            let answer = match args {
                Some(args) => keys.borrow_mut().call(&args),
                None => Err("ERR Lua redis lib command arguments must be strings".to_owned()),
            };
            match answer {
                Ok(reply) => to_lua(lua, reply),
                Err(error) if raises => Err(mlua::Error::RuntimeError(error)),
                Err(error) => {
                    let table = lua.create_table()?;
                    table.set("err", error)?;
                    Ok(LuaValue::Table(table))
                }
            }
        };
        redis.set(name, lua.create_function(call)?)?;
    }
    lua.globals().set("redis", redis)
}

/// As in Redis: strings unchanged, numbers with 17 digits, nothing else.
fn argument(value: &LuaValue) -> Option<String> {
    match value {
        LuaValue::String(text) => Some(text.to_string_lossy()),
        LuaValue::Integer(n) => Some(n.to_string()),
        LuaValue::Number(n) if n.fract() == 0.0 => Some(format!("{n:.0}")),
        LuaValue::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// A missing value is `false` to a script, not nil.
fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<LuaValue> {
    Ok(match reply {
        Reply::Int(n) => LuaValue::Number(n as f64),
        Reply::Nil => LuaValue::Boolean(false),
        Reply::Bulk(text) => LuaValue::String(lua.create_string(text)?),
        Reply::List(texts) => LuaValue::Table(lua.create_sequence_from(texts)?),
        Reply::Listeners(channel, count) => {
            let table = lua.create_table()?;
            table.push(channel)?;
            table.push(count as f64)?;
            LuaValue::Table(table)
        }
        Reply::Ok => {
            let table = lua.create_table()?;
            table.set("ok", "OK")?;
            LuaValue::Table(table)
        }
    })
}

/// Numbers lose their fractions, `false` becomes nil, a list ends before its first nil.
fn from_lua(value: &LuaValue) -> Result<Value, String> {
    Ok(match value {
        LuaValue::Integer(n) => Value::Int(*n),
        LuaValue::Number(n) => Value::Int(n.trunc() as i64),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Table(table) => from_table(table)?,
        _ => Value::Nil,
    })
}

fn from_table(table: &Table) -> Result<Value, String> {
    let wrong = |error: mlua::Error| format!("ERR {error}");
    if let Some(error) = table.get::<Option<String>>("err").map_err(wrong)? {
        return Err(error);
    }
    if table.get::<Option<String>>("ok").map_err(wrong)?.is_some() {
        return Ok(Value::Okay);
    }
    let mut list = Vec::new();
    for i in 1.. {
        let item = table.get::<LuaValue>(i).map_err(wrong)?;
        if item.is_nil() {
            break;
        }
        list.push(from_lua(&item)?);
    }
    Ok(Value::Array(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(redis: &mut Redis, text: &str, now_ms: u64) -> Value {
        let args = ["EVAL", text, "1", "k", "f"].map(str::to_owned);
        redis.execute(&args, now_ms)
    }

    #[test]
    fn script_values_are_converted_as_in_redis() {
        let mut redis = Redis::new();
        assert_eq!(run(&mut redis, "return 3.99", 0), Value::Int(3));
        assert_eq!(run(&mut redis, "return false", 0), Value::Nil);
        assert_eq!(run(&mut redis, "return true", 0), Value::Int(1));
        let missing = "return redis.call('hget', KEYS[1], ARGV[1]) == false";
        assert_eq!(run(&mut redis, missing, 0), Value::Int(1));
        let list = Value::Array(vec![Value::Int(1)]);
        assert_eq!(run(&mut redis, "return {1, nil, 2}", 0), list);
        let raised = run(&mut redis, "return redis.call('hincrby', 'k', 'f', 'x')", 0);
        assert!(matches!(raised, Value::ServerError(_)), "{raised:?}");
    }

    #[test]
    fn a_key_exists_through_its_last_millisecond() {
        let mut redis = Redis::new();
        let grant = "redis.call('hincrby', KEYS[1], ARGV[1], 1) \
                     return redis.call('pexpire', KEYS[1], 10)";
        assert_eq!(run(&mut redis, grant, 100), Value::Int(1));
        let left = "return redis.call('pttl', KEYS[1])";
        assert_eq!(run(&mut redis, left, 110), Value::Int(0));
        assert_eq!(run(&mut redis, left, 111), Value::Int(-2));
    }
}
