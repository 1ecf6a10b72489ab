//! Lua 5.1, with the functions that Redis gives to scripts.
//!
//! Each thread has one interpreter for all servers, because scripts keep no state between runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};

use crate::database::Database;
use crate::lua_values::{argument, lossy, one_line, part_from_lua, to_lua};
use crate::reply::{CommandResult, Refusal, Reply};

/// The commands that a script can call. They are passed in, because some of them run scripts.
#[derive(Clone, Copy)]
pub(crate) struct Commands {
    pub(crate) call: fn(&mut Database, Option<u64>, &[Vec<u8>]) -> CommandResult,
    pub(crate) knows: fn(&str) -> bool,
}

/// The keys of a script, and its other arguments.
pub(crate) type Arguments<'a> = (&'a [Vec<u8>], &'a [Vec<u8>]);

/// The name of a script in SCRIPT LOAD and EVALSHA.
pub(crate) fn digest(script: &[u8]) -> String {
    sha1_smol::Sha1::from(script).digest().to_string()
}

/// An error if the text is not a script.
pub(crate) fn check(script: &[u8]) -> Result<(), Refusal> {
    with(|interpreter| interpreter.compiled(script).map(drop))
}

/// Runs a script that the server knows.
pub(crate) fn run(
    database: &mut Database,
    client: Option<u64>,
    commands: Commands,
    digest: &str,
    (keys, args): Arguments<'_>,
) -> CommandResult {
    let text = database.scripts.get(digest).cloned().unwrap_or_default();
    with(|interpreter| {
        let script = interpreter.compiled(&text)?;
        database.scripts_run += 1;
        let lent = Lent::new(&interpreter.lua, database, client, commands);
        let outcome = interpreter.evaluate(&script, keys, args);
        drop(lent);
        match outcome {
            Ok(answer) => answer.map_err(|line| Refusal::new(with_place(&line, digest))),
            Err(error) => Err(Refusal::new(one_line(&format!("ERR {error}")))),
        }
    })
}

/// While it lives, the calls of a script find the database in the app data of the interpreter. It returns the
/// database also if a command panics.
struct Lent<'a> {
    lua: &'a Lua,
    database: &'a mut Database,
}

impl<'a> Lent<'a> {
    fn new(
        lua: &'a Lua,
        database: &'a mut Database,
        client: Option<u64>,
        commands: Commands,
    ) -> Self {
        lua.set_app_data(Running {
            database: std::mem::take(database),
            client,
            commands,
        });
        Self { lua, database }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.lua.remove_app_data::<Running>() {
            *self.database = running.database;
        }
    }
}

/// What the calls of a running script use.
struct Running {
    database: Database,
    client: Option<u64>,
    commands: Commands,
}

/// How a script failed.
#[derive(Clone, Debug)]
struct Raised {
    line: String,
    place: Option<(String, i64)>,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Raised {}

struct Interpreter {
    lua: Lua,
    /// Runs a script and catches what it raises.
    guarded: Function,
    /// Scripts read global names here, but may not write any.
    globals: Table,
    environment: Table,
    compiled: RefCell<HashMap<Vec<u8>, Function>>,
}

fn with<T>(act: impl FnOnce(&Interpreter) -> T) -> T {
    thread_local! {
        static INTERPRETER: Interpreter =
            Interpreter::new().expect("the interpreter takes what Redis gives to scripts");
    }
    INTERPRETER.with(act)
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let native = lua.create_table()?;
        native.set("call", lua.create_function(raising_call)?)?;
        native.set(
            "pcall",
            lua.create_function(|lua, args| Ok(call_from_lua(lua, args)?.1))?,
        )?;
        native.set("caught", lua.create_function(caught)?)?;
        native.set("sha1hex", lua.create_function(sha1hex)?)?;
        native.set("acl_check_cmd", lua.create_function(may_call)?)?;
        native.set(
            "line",
            lua.create_function(|lua, ()| Ok(line_of_script(lua)))?,
        )?;
        let prelude = lua.load(PRELUDE).set_name("=prelude");
        let (guarded, globals, environment) = prelude.call((native, lua.globals()))?;
        Ok(Self {
            lua,
            guarded,
            globals,
            environment,
            compiled: RefCell::default(),
        })
    }

    fn compiled(&self, text: &[u8]) -> Result<Function, Refusal> {
        if let Some(found) = self.compiled.borrow().get(text) {
            return Ok(found.clone());
        }
        let chunk = self.lua.load(text).set_name("@user_script");
        let function = chunk
            .set_environment(self.environment.clone())
            .into_function();
        let function = function.map_err(|error| {
            let reason = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            let line = format!("ERR Error compiling script (new function): {reason}");
            Refusal::new(one_line(&line))
        })?;
        let mut compiled = self.compiled.borrow_mut();
        if compiled.len() == MOST_COMPILED {
            compiled.clear();
        }
        compiled.insert(text.to_vec(), function.clone());
        Ok(function)
    }

    fn evaluate(
        &self,
        script: &Function,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> mlua::Result<Result<Reply, Raised>> {
        for (name, values) in [("KEYS", keys), ("ARGV", args)] {
            let table = self.lua.create_table()?;
            for (index, value) in values.iter().enumerate() {
                table.raw_set(index + 1, self.lua.create_string(value)?)?;
            }
            self.globals.raw_set(name, table)?;
        }
        let (is_fine, value): (bool, LuaValue) = self.guarded.call(script.clone())?;
        if is_fine {
            return from_lua(&value);
        }
        let LuaValue::Table(error) = value else {
            let line = "ERR the script failed without an error".to_owned();
            return Ok(Err(Raised { line, place: None }));
        };
        Ok(Err(raised(&error)?))
    }
}

/// The error of a script, with the place that Redis adds to it.
fn with_place(raised: &Raised, digest: &str) -> String {
    let line = one_line(&raised.line);
    match &raised.place {
        Some((source, number)) => format!("{line} script: {digest}, on {source}:{number}."),
        None => line,
    }
}

fn raised(error: &Table) -> mlua::Result<Raised> {
    let line = lossy(&error.raw_get::<LuaValue>("err")?).unwrap_or_default();
    let source: Option<String> = error.raw_get("source")?;
    let number: Option<i64> = error.raw_get("line")?;
    Ok(Raised {
        line,
        place: source.zip(number),
    })
}

/// `redis.call`. The error names the line of the call. It is determined here, because after a tail call
/// that frame is gone when the error is caught.
fn raising_call(lua: &Lua, args: MultiValue) -> mlua::Result<LuaValue> {
    let (is_fine, answer) = call_from_lua(lua, args)?;
    match answer {
        LuaValue::Table(error) if !is_fine => {
            let line = lossy(&error.raw_get::<LuaValue>("err")?).unwrap_or_default();
            Err(raise(lua, line))
        }
        answer => Ok(answer),
    }
}

fn raise(lua: &Lua, line: String) -> mlua::Error {
    let place = Some(("@user_script".to_owned(), line_of_script(lua)));
    mlua::Error::external(Raised { line, place })
}

/// An error of `redis.call` as the table that Redis raises; other errors unchanged.
fn caught(lua: &Lua, raised: LuaValue) -> mlua::Result<LuaValue> {
    let LuaValue::Error(error) = &raised else {
        return Ok(raised);
    };
    let mut error = &**error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    let table = lua.create_table()?;
    match error.downcast_ref::<Raised>() {
        Some(raised) => {
            table.raw_set("err", &*raised.line)?;
            table.raw_set("line", raised.place.as_ref().map(|(_, line)| *line))?;
        }
        None => table.raw_set("err", format!("ERR {error}"))?,
    }
    Ok(LuaValue::Table(table))
}

/// `redis.pcall`: whether it succeeded, and the answer or error.
fn call_from_lua(lua: &Lua, args: MultiValue) -> mlua::Result<(bool, LuaValue)> {
    let refuse = |line: &str| {
        let table = lua.create_table()?;
        table.raw_set("err", line)?;
        Ok((false, LuaValue::Table(table)))
    };
    if args.is_empty() {
        return refuse("ERR Please specify at least one argument for this redis lib call");
    }
    let Some(args) = args.iter().map(argument).collect::<Option<Vec<_>>>() else {
        return refuse("ERR Lua redis lib command arguments must be strings or integers");
    };
    let answer = match lua.app_data_mut::<Running>() {
        Some(mut running) => {
            let (client, commands) = (running.client, running.commands);
            (commands.call)(&mut running.database, client, &args)
        }
        None => return refuse("ERR redis.call can only be called inside a script invocation"),
    };
    match answer {
        Ok(reply) => Ok((true, to_lua(lua, reply)?)),
        Err(refusal) => refuse(&refusal.0),
    }
}

fn sha1hex(_: &Lua, text: mlua::LuaString) -> mlua::Result<String> {
    Ok(digest(&text.as_bytes()))
}

/// Whether the default user may run a command: true for all that the server knows, with any arguments.
fn may_call(lua: &Lua, args: MultiValue) -> mlua::Result<bool> {
    let name = args.front().and_then(argument).unwrap_or_default();
    let running = lua.app_data_ref::<Running>();
    if running.is_some_and(|it| (it.commands.knows)(&crate::database::text(&name))) {
        return Ok(true);
    }
    let line = "ERR Invalid command passed to redis.acl_check_cmd()".to_owned();
    Err(raise(lua, line))
}

/// The line of the script that the interpreter is executing; 0 outside of a script.
fn line_of_script(lua: &Lua) -> i64 {
    for level in 0..DEEPEST {
        let line = lua.inspect_stack(level, |frame| {
            let is_script = frame.source().source.as_deref() == Some("@user_script");
            let line = frame.current_line().filter(|_| is_script);
            line.map(|line| line as i64)
        });
        match line {
            None => break,
            Some(Some(line)) => return line,
            Some(None) => {}
        }
    }
    0
}

/// A script's answer. A table with an error as the whole answer is an error.
fn from_lua(value: &LuaValue) -> mlua::Result<Result<Reply, Raised>> {
    if let LuaValue::Table(table) = value
        && !table.raw_get::<LuaValue>("err")?.is_nil()
    {
        return Ok(Err(raised(table)?));
    }
    part_from_lua(value).map(Ok)
}

const PRELUDE: &str = include_str!("prelude.lua");
/// Some levels belong to the prelude and the interpreter.
const DEEPEST: usize = 50;
/// A test that generates scripts must not fill the memory.
const MOST_COMPILED: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(script: &str) -> CommandResult {
        let mut database = Database::new();
        database.begin(0);
        let digest = digest(script.as_bytes());
        database
            .scripts
            .insert(digest.clone(), script.as_bytes().to_vec());
        run(
            &mut database,
            None,
            crate::commands::FOR_SCRIPTS,
            &digest,
            (&[b"key".to_vec()], &[b"arg".to_vec()]),
        )
    }

    #[test]
    fn script_values_are_converted_as_in_redis() {
        assert_eq!(eval("return 3.99"), Ok(Reply::Int(3)));
        assert_eq!(eval("return false"), Ok(Reply::Nil));
        assert_eq!(eval("return true"), Ok(Reply::Int(1)));
        assert_eq!(
            eval("return redis.call('hget', KEYS[1], ARGV[1]) == false"),
            Ok(Reply::Int(1))
        );
        assert_eq!(
            eval("return {1, nil, 2}"),
            Ok(Reply::Array(vec![Reply::Int(1)]))
        );
        assert_eq!(
            eval("return redis.status_reply('FINE')"),
            Ok(Reply::Status("FINE".into()))
        );
    }

    #[test]
    fn an_answer_without_an_end_is_cut_off() {
        let mut answer = eval("local t = {} t[1] = t return t").expect("it is an answer");
        let mut levels = 0;
        while let Reply::Array(mut items) = answer {
            answer = items.remove(0);
            levels += 1;
        }
        assert_eq!(levels, 100);
        let limit = "ERR reached lua stack limit";
        assert_eq!(answer, Reply::Error(limit.to_owned()));
    }

    #[test]
    fn an_error_names_its_place_in_the_script() {
        let Err(Refusal(line)) = eval("local x = 1\nreturn redis.call('hincrby', 'k', 'f', 'x')")
        else {
            panic!("x is no number");
        };
        let expected = "ERR value is not an integer or out of range script: ";
        assert!(line.starts_with(expected), "{line}");
        assert!(line.ends_with(", on @user_script:2."), "{line}");
    }

    #[test]
    fn a_script_leaves_no_state_in_the_interpreter() {
        assert!(eval("x = 1").is_err());
        assert!(eval("return x").is_err());
        assert_eq!(eval("local x = 1 return x"), Ok(Reply::Int(1)));
    }
}
