//! How values pass between Redis and Lua.

use mlua::{Lua, Value as LuaValue};

use crate::reply::{Reply, double};

/// As in Redis: strings unchanged, numbers with 17 digits, no other types.
pub(crate) fn argument(value: &LuaValue) -> Option<Vec<u8>> {
    match value {
        LuaValue::String(text) => Some(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Some(double(*number as f64).into_bytes()),
        LuaValue::Number(number) => Some(double(*number).into_bytes()),
        _ => None,
    }
}

/// A missing value is `false` in a script, not nil.
pub(crate) fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<LuaValue> {
    let single = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(LuaValue::Table(table))
    };
    match reply {
        Reply::Int(number) => Ok(LuaValue::Number(number as f64)),
        Reply::Nil | Reply::NilArray => Ok(LuaValue::Boolean(false)),
        Reply::Bulk(bytes) => Ok(LuaValue::String(lua.create_string(bytes)?)),
        Reply::Text(text) => Ok(LuaValue::String(lua.create_string(text)?)),
        Reply::Double(number) => Ok(LuaValue::String(lua.create_string(double(number))?)),
        Reply::Status(text) => single("ok", &text),
        Reply::Error(text) => single("err", &text),
        Reply::Array(items) | Reply::Push(items) | Reply::Set(items) | Reply::Several(items) => {
            // One at a time: the interpreter can refer to a few thousand values that are in no table.
            let table = lua.create_table()?;
            for (index, item) in items.into_iter().enumerate() {
                table.raw_set(index + 1, to_lua(lua, item)?)?;
            }
            Ok(LuaValue::Table(table))
        }
        Reply::Scored(pairs) => {
            let items = pairs
                .into_iter()
                .flat_map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)]);
            to_lua(lua, Reply::Array(items.collect()))
        }
        Reply::Map(pairs) => {
            let items = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            to_lua(lua, Reply::Array(items.collect()))
        }
    }
}

/// A value of a script's answer. Numbers lose their fractions, `false` becomes nil, and a list ends before
/// its first nil. A table may be inside itself, so the depth is limited, as in Redis.
pub(crate) fn part_from_lua(value: &LuaValue) -> mlua::Result<Reply> {
    part_within(value, DEEPEST_ANSWER)
}

fn part_within(value: &LuaValue, levels: u32) -> mlua::Result<Reply> {
    Ok(match value {
        LuaValue::Integer(number) => Reply::Int(*number),
        LuaValue::Number(number) => Reply::Int(whole(*number)),
        LuaValue::Boolean(true) => Reply::Int(1),
        LuaValue::String(text) => Reply::bulk(&*text.as_bytes()),
        LuaValue::Table(_) if levels == 0 => Reply::Error("ERR reached lua stack limit".to_owned()),
        LuaValue::Table(table) => {
            if let Some(line) = lossy(&table.raw_get::<LuaValue>("err")?) {
                return Ok(Reply::Error(one_line(&line)));
            }
            if let Some(text) = lossy(&table.raw_get::<LuaValue>("ok")?) {
                return Ok(Reply::Status(one_line(&text).into()));
            }
            let mut items = Vec::new();
            for at in 1.. {
                let item = table.raw_get::<LuaValue>(at)?;
                if item.is_nil() {
                    break;
                }
                items.push(part_within(&item, levels - 1)?);
            }
            Reply::Array(items)
        }
        _ => Reply::Nil,
    })
}

/// A cast as in C: a number that does not fit becomes the smallest one.
fn whole(number: f64) -> i64 {
    match number.abs() < i64::MAX as f64 {
        true => number as i64,
        false => i64::MIN,
    }
}

pub(crate) fn lossy(value: &LuaValue) -> Option<String> {
    match value {
        LuaValue::String(text) => Some(text.to_string_lossy()),
        _ => None,
    }
}

/// The protocol ends an error at the end of its line.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ").trim_end().to_owned()
}

/// Redis goes deeper. A thread of a test has a small stack.
const DEEPEST_ANSWER: u32 = 100;
