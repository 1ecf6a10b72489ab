//! A small Redis: a few types of values in virtual time, and the real scripts in Lua 5.1.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use mlua::{Function, Lua, Table, Value as LuaValue, Variadic};
use redis::Value;

use super::keys::{Hash, Keys, Reply};

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

    /// Forgets every key and every script, and keeps its clock.
    pub(super) fn restart(&mut self) {
        let epoch_ms = self.keys.borrow().epoch_ms;
        self.reset();
        self.begin_at(epoch_ms);
    }

    /// The messages published since the last call: the channels and the texts.
    pub(super) fn take_published(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.keys.borrow_mut().published)
    }

    /// The text under a key, if there is one.
    pub(super) fn text(&self, key: &str, now_ms: u64) -> Option<String> {
        self.keys.borrow_mut().at(now_ms).text(key).ok().flatten()
    }

    /// Sets how many connections are subscribed to each channel.
    pub(super) fn set_listening(&mut self, listening: HashMap<String, i64>) {
        self.keys.borrow_mut().listening = listening;
    }

    pub(super) fn flush_scripts(&mut self) {
        self.known.clear();
    }

    /// The hash under a key, at this millisecond.
    pub(super) fn hash(&self, key: &str, now_ms: u64) -> Option<Hash> {
        self.keys.borrow_mut().at(now_ms).hash(key)
    }

    /// All fields of the hash under a key.
    pub(super) fn fields(&self, key: &str, now_ms: u64) -> BTreeMap<String, String> {
        self.keys.borrow_mut().at(now_ms).fields(key)
    }

    /// The commands that scripts called since the last call of this.
    pub(super) fn take_calls(&mut self) -> Vec<Vec<String>> {
        let mut keys = self.keys.borrow_mut();
        keys.calls.replace(Vec::new()).unwrap_or_default()
    }

    /// The last millisecond of a key, if the key exists and expires.
    pub(super) fn until_ms(&self, key: &str, now_ms: u64) -> Option<u64> {
        self.keys.borrow_mut().at(now_ms).until_ms(key)
    }

    /// All keys that exist.
    pub(super) fn names(&self, now_ms: u64) -> Vec<String> {
        self.keys.borrow_mut().at(now_ms).names()
    }

    /// The number under a key, 0 if there is none, and the members of a sorted set with their scores.
    pub(super) fn counted(
        &self,
        key: &str,
        set: &str,
        now_ms: u64,
    ) -> (i64, BTreeMap<String, f64>) {
        let mut keys = self.keys.borrow_mut();
        let keys = keys.at(now_ms);
        (keys.number(key), keys.sorted(set))
    }

    /// The items of a list, and the members of a sorted set with their scores.
    pub(super) fn queued(
        &self,
        list: &str,
        set: &str,
        now_ms: u64,
    ) -> (Vec<String>, BTreeMap<String, f64>) {
        let mut keys = self.keys.borrow_mut();
        let keys = keys.at(now_ms);
        (keys.list(list), keys.sorted(set))
    }

    /// Sets the time of its clock at the start of the run, in ms.
    pub(super) fn begin_at(&mut self, epoch_ms: u64) {
        self.keys.borrow_mut().epoch_ms = epoch_ms;
    }

    /// The time of its clock.
    pub(super) fn clock_ms(&self, now_ms: u64) -> u64 {
        self.keys.borrow().epoch_ms + now_ms
    }

    pub(super) fn exists(&self, key: &str, now_ms: u64) -> bool {
        self.keys.borrow_mut().at(now_ms).exists(key)
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.keys.borrow_mut().set(key, value);
    }

    pub(super) fn execute(&mut self, args: &[String], now_ms: u64) -> Value {
        self.keys.borrow_mut().at(now_ms);
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
            Self::Values(values) => Value::Array(
                values
                    .into_iter()
                    .map(|value| value.map_or(Value::Nil, |it| Value::BulkString(it.into_bytes())))
                    .collect(),
            ),
            Self::Listeners(counted) => {
                let pair = |(channel, count): (String, i64)| {
                    [Value::BulkString(channel.into_bytes()), Value::Int(count)]
                };
                Value::Array(counted.into_iter().flat_map(pair).collect())
            }
            Self::Ok => Value::Okay,
        }
    }
}

fn install(lua: &Lua, keys: &Rc<RefCell<Keys>>) -> mlua::Result<()> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let keys = keys.clone();
        let call = move |lua: &Lua, args: Variadic<LuaValue>| {
            let args: Option<Vec<String>> = args.iter().map(argument).collect();
            let answer = match args {
                Some(args) => {
                    let mut keys = keys.borrow_mut();
                    keys.calls.iter_mut().for_each(|it| it.push(args.clone()));
                    keys.call(&args)
                }
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
        Reply::Values(values) => {
            let table = lua.create_table()?;
            for value in values {
                match value {
                    Some(value) => table.push(value)?,
                    None => table.push(false)?,
                }
            }
            LuaValue::Table(table)
        }
        Reply::Listeners(counted) => {
            let table = lua.create_table()?;
            for (channel, count) in counted {
                table.push(channel)?;
                table.push(count as f64)?;
            }
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
