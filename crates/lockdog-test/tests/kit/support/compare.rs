//! Two servers that receive the same commands.

use super::Embedded;
use super::real::Redis;
use super::resp::{Connection, Value};

/// The test server and a real one, each with a connection for commands, one that listens and one that reads keys.
pub(crate) struct Pair {
    sides: [Side; 2],
    embedded: Embedded,
    real: Redis,
}

struct Side {
    commands: Connection,
    listener: Connection,
    keys: Connection,
    /// `run_id:master_replid`, which some scripts return.
    identity: String,
}

impl Pair {
    pub(crate) fn start() -> Self {
        let (embedded, real) = (Embedded::start(), Redis::start());
        let sides = [
            Side::new([(); 3].map(|()| embedded.connect())),
            Side::new([(); 3].map(|()| real.connect())),
        ];
        Self {
            sides,
            embedded,
            real,
        }
    }

    /// The commands are answered in RESP3.
    pub(crate) fn with_resp3() -> Self {
        let mut pair = Self::start();
        for side in &mut pair.sides {
            let hello = side.commands.send(&["HELLO", "3"]);
            assert!(matches!(hello, Value::Map(_)), "{hello:?}");
        }
        pair
    }

    /// Makes both servers require a password, and reconnects without it.
    pub(crate) fn require_password(&mut self, password: &str) {
        self.embedded.require_password(password);
        let [_, real] = &mut self.sides;
        let set = ["CONFIG", "SET", "requirepass", password];
        assert_eq!(real.commands.send(&set), Value::Status("OK".to_owned()));
        let fresh = [self.embedded.connect(), self.real.connect()];
        for (side, connection) in self.sides.iter_mut().zip(fresh) {
            side.commands = connection;
        }
    }

    /// Sends a command to both. Fails if their answers differ by more than the time between the two.
    pub(crate) fn send(&mut self, args: &[impl AsRef<[u8]>]) -> Result<(), String> {
        let shown: Vec<_> = args
            .iter()
            .map(|arg| String::from_utf8_lossy(arg.as_ref()).into_owned())
            .collect();
        let [ours, theirs] = self.answers(args);
        if shown[0] == "TTL" && are_near_seconds(&ours, &theirs) {
            return Ok(());
        }
        same(&format!("{shown:?}"), &ours, &theirs)
    }

    /// Listens on these channels from now on, and no others.
    pub(crate) fn listen(&mut self, channels: &[&str]) {
        for side in &mut self.sides {
            side.listener.send(&["UNSUBSCRIBE"]);
            for channel in channels {
                side.listener.send(&["SUBSCRIBE", channel]);
            }
            // What is unsubscribed is answered once for each channel.
            side.listener.write(&["PING", "listening"]);
            while !is_pong(&side.listener.read()) {}
        }
    }

    /// Fails if the keys, their values, their expiries or the messages since then differ.
    pub(crate) fn compare(&mut self) -> Result<(), String> {
        let [ours, theirs] = self.sides.each_mut().map(|side| side.dump());
        same("keys", &ours, &theirs)?;
        let [ours, theirs] = self.sides.each_mut().map(|side| side.messages());
        same("messages", &ours, &theirs)
    }

    fn answers(&mut self, args: &[impl AsRef<[u8]>]) -> [Value; 2] {
        self.sides.each_mut().map(|side| {
            let answer = side.commands.send(args);
            named(answer, &side.identity)
        })
    }
}

impl Side {
    fn new([mut commands, listener, keys]: [Connection; 3]) -> Self {
        let part = |info: &str, name: &str| {
            let mut lines = info.lines();
            let line = lines.find_map(|line| line.strip_prefix(name));
            line.expect("INFO has the line").to_owned()
        };
        let server = commands.send(&["INFO", "server"]).text();
        let replication = commands.send(&["INFO", "replication"]).text();
        let identity = format!(
            "{}:{}",
            part(&server, "run_id:"),
            part(&replication, "master_replid:")
        );
        Self {
            commands,
            listener,
            keys,
            identity,
        }
    }

    fn dump(&mut self) -> Value {
        let mut names: Vec<String> = self
            .keys
            .send(&["KEYS", "*"])
            .items()
            .into_iter()
            .map(Value::text)
            .collect();
        names.sort();
        let mut all = Vec::new();
        for name in names {
            let kind = self.keys.send(&["TYPE", &name]).text();
            let value = match kind.as_str() {
                "hash" => by_field(self.keys.send(&["HGETALL", &name])),
                "list" => self.keys.send(&["LRANGE", &name, "0", "-1"]),
                "set" => sorted(self.keys.send(&["SMEMBERS", &name])),
                "string" => self.keys.send(&["GET", &name]),
                // Two scores from the clock may be equal on one server and not on the other, which
                // changes their order. `commands_as_redis` compares the order.
                "zset" => by_field(self.keys.send(&["ZRANGE", &name, "0", "-1", "WITHSCORES"])),
                other => panic!("{name} is a {other}"),
            };
            let value = named(value, &self.identity);
            let ttl = self.keys.send(&["PTTL", &name]);
            all.push(Value::Array(vec![
                Value::Bulk(name),
                Value::Bulk(kind),
                value,
                ttl,
            ]));
        }
        Value::Array(all)
    }

    fn messages(&mut self) -> Value {
        // Published before, so they come before the answer.
        self.listener.write(&["PING", "listening"]);
        let mut all = Vec::new();
        loop {
            let next = self.listener.read();
            if is_pong(&next) {
                return Value::Array(all);
            }
            all.push(next);
        }
    }
}

/// Runs a case, and once more if the servers differ. If the machine stalls between the two questions, their times
/// differ; a real difference comes again.
pub(crate) fn twice_if_different(
    mut case: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let Err(difference) = case() else {
        return Ok(());
    };
    case()?;
    println!("this difference did not come again: {difference}");
    Ok(())
}

fn is_pong(value: &Value) -> bool {
    match value {
        Value::Bulk(text) => text == "listening",
        Value::Array(items) => items.last() == Some(&Value::Bulk("listening".to_owned())),
        _ => false,
    }
}

pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Array(mut items) => {
            items.sort_by_key(|item| format!("{item:?}"));
            Value::Array(items)
        }
        other => other,
    }
}

/// Redis keeps the order of fields only while a hash is small.
fn by_field(value: Value) -> Value {
    let mut pairs: Vec<Vec<Value>> = value.items().chunks(2).map(<[Value]>::to_vec).collect();
    pairs.sort_by_key(|pair| format!("{pair:?}"));
    Value::Array(pairs.concat())
}

/// A server's own identity, called the same for both.
fn named(value: Value, identity: &str) -> Value {
    match value {
        Value::Array(items) => {
            let items = items.into_iter().map(|item| named(item, identity));
            Value::Array(items.collect())
        }
        Value::Bulk(text) => Value::Bulk(text.replace(identity, "<identity>")),
        other => other,
    }
}

fn same(what: &str, ours: &Value, theirs: &Value) -> Result<(), String> {
    if alike(ours, theirs) {
        return Ok(());
    }
    Err(format!(
        "{what}\n  test server {ours:?}\n  redis       {theirs:?}"
    ))
}

/// Equal except for times, because the two servers were asked one after the other.
fn alike(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs))
        | (Value::Map(ours), Value::Map(theirs))
        | (Value::Set(ours), Value::Set(theirs))
        | (Value::Push(ours), Value::Push(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| alike(a, b))
        }
        (Value::Int(ours), Value::Int(theirs)) => near(*ours, *theirs),
        (Value::Bulk(ours), Value::Bulk(theirs)) => {
            let parts =
                |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
            let (ours, theirs) = (parts(ours), parts(theirs));
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| {
                a == b
                    || matches!((a.parse(), b.parse()), (Ok(a), Ok(b)) if near_with_fraction(a, b))
            })
        }
        (ours, theirs) => ours == theirs,
    }
}

/// A moment to which half a millisecond was added keeps the half.
fn near_with_fraction(ours: f64, theirs: f64) -> bool {
    ours.is_finite() && ours.fract() == theirs.fract() && near(ours as i64, theirs as i64)
}

/// Whether both are times to live in seconds that differ only by the time between the two questions.
fn are_near_seconds(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Int(ours @ 1..), Value::Int(theirs @ 1..)) => ours.abs_diff(*theirs) <= 5,
        _ => false,
    }
}

/// Times of day in seconds, milliseconds or microseconds, and what is left of leases of seconds. The
/// tests' other numbers are small, or so far apart that none passes for its neighbour.
fn near(ours: i64, theirs: i64) -> bool {
    let tolerance = match ours {
        1_000..1_000_000_000_000 => 5_000,
        1_000_000_000_000..1_000_000_000_000_000 => 5_000,
        1_000_000_000_000_000.. => 5_000_000,
        _ => 0,
    };
    ours.abs_diff(theirs) <= tolerance
}
