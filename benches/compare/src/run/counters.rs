//! What a server counted: commands, and its CPU time.
//!
//! `INFO commandstats` counts the calls of scripts with those of clients. A short look at MONITOR
//! during the warm-up, where each line says which of the two it is, separates them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::Result;

/// The counters at one moment, or what was added to them between two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Calls by the name of the command.
    calls: BTreeMap<String, u64>,
    /// The time of all scripts with their calls, in microseconds.
    pub(crate) script_us: f64,
    /// Of the thread that runs commands.
    pub(crate) cpu_s: f64,
}

/// How many of a command's calls were seen to come from clients, and from scripts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(BTreeMap<String, [f64; 2]>);

/// Sees each command that the server executes.
pub(crate) struct Monitor {
    reader: BufReader<TcpStream>,
    line: Vec<u8>,
}

/// What comes next of a [`Monitor`].
enum Seen {
    /// The name of a command, and whether a script called it.
    Command(String, bool),
    /// Another line.
    Other,
    /// Nothing, for a moment.
    Nothing,
    /// The connection is closed.
    End,
}

/// Commands that clients sent, and commands that scripts called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Commands {
    pub(crate) sent: f64,
    pub(crate) inside: f64,
}

impl Counters {
    pub(crate) fn read(connection: &mut Connection) -> Result<Self> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
        let cpu: String = redis::cmd("INFO").arg("cpu").query(connection)?;
        let (mut calls, mut script_us) = (BTreeMap::new(), 0.0);
        for line in stats.lines() {
            let Some((name, rest)) = line
                .strip_prefix("cmdstat_")
                .and_then(|l| l.split_once(':'))
            else {
                continue;
            };
            // The runner's own, and those of the connections it makes.
            let name = name.split('|').next().unwrap_or(name);
            let count = rest
                .strip_prefix("calls=")
                .and_then(|r| r.split(',').next());
            let count: u64 = count.ok_or("commandstats has no calls")?.parse()?;
            if SCRIPTS.contains(&name) {
                let us = rest
                    .split(',')
                    .find_map(|field| field.strip_prefix("usec="));
                script_us += us.ok_or("commandstats has no times")?.parse::<f64>()?;
            }
            if !OWN.contains(&name) {
                *calls.entry(name.to_owned()).or_default() += count;
            }
        }
        let main_thread = ["used_cpu_sys_main_thread:", "used_cpu_user_main_thread:"];
        let cpu_s = cpu
            .lines()
            .filter_map(|line| main_thread.iter().find_map(|name| line.strip_prefix(name)))
            .filter_map(|value| value.parse::<f64>().ok())
            .sum();
        Ok(Self {
            calls,
            script_us,
            cpu_s,
        })
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let added = |(name, count): (&String, &u64)| {
            let old = before.calls.get(name).copied().unwrap_or_default();
            (name.clone(), count.saturating_sub(old))
        };
        Self {
            calls: self.calls.iter().map(added).collect(),
            script_us: self.script_us - before.script_us,
            cpu_s: self.cpu_s - before.cpu_s,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, count) in &other.calls {
            *self.calls.entry(name.clone()).or_default() += count;
        }
        self.script_us += other.script_us;
        self.cpu_s += other.cpu_s;
    }

    /// Scripts that were run.
    pub(crate) fn scripts(&self) -> f64 {
        let calls = |name: &str| self.calls.get(name).copied().unwrap_or_default();
        SCRIPTS.map(calls).iter().sum::<u64>() as f64
    }

    pub(crate) fn commands(&self, origins: &Origins) -> Commands {
        let mut commands = Commands::default();
        for (name, count) in &self.calls {
            let sent = origins.sent(name);
            commands.sent += *count as f64 * sent;
            commands.inside += *count as f64 * (1.0 - sent);
        }
        commands
    }
}

impl Monitor {
    pub(crate) fn start(port: u16) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"MONITOR\r\n")?;
        stream.set_read_timeout(Some(LONGEST_LOOK))?;
        Ok(Self {
            reader: BufReader::with_capacity(1 << 20, stream),
            line: Vec::new(),
        })
    }

    /// Waits until a script calls a command, as the first pair does.
    pub(crate) fn until_a_script_runs(mut self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Seen::Command(_, true) | Seen::End = self.next()? {
                break;
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Seen> {
        let seen = match self.reader.read_until(b'\n', &mut self.line) {
            Ok(0) => Seen::End,
            Ok(_) => match parse(&String::from_utf8_lossy(&self.line)) {
                Some((name, by_script)) => Seen::Command(name, by_script),
                None => Seen::Other,
            },
            // What has come of a line stays.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(Seen::Nothing);
            }
            Err(failure) => return Err(failure.into()),
        };
        self.line.clear();
        Ok(seen)
    }
}

impl Origins {
    /// Looks on for a moment.
    pub(crate) fn watch(port: u16) -> Result<Self> {
        let mut monitor = Monitor::start(port)?;
        let end = Instant::now() + LONGEST_LOOK;
        let mut seen: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for _ in 0..ENOUGH_LINES {
            if Instant::now() > end {
                break;
            }
            match monitor.next()? {
                Seen::Command(name, by_script) => {
                    seen.entry(name).or_default()[usize::from(by_script)] += 1.0;
                }
                Seen::Other => {}
                Seen::Nothing | Seen::End => break,
            }
        }
        Ok(Self(seen))
    }

    /// Which part of a command's calls clients sent. One that was not seen is taken for a client's,
    /// unless it is one of those that make up a lock.
    fn sent(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some([sent, inside]) => sent / (sent + inside),
            None if OF_SCRIPTS.contains(&name) => 0.0,
            None => 1.0,
        }
    }
}

/// The command in a line of MONITOR, and whether a script called it.
fn parse(line: &str) -> Option<(String, bool)> {
    let (_, rest) = line.split_once(" [")?;
    let (source, rest) = rest.split_once("] \"")?;
    let (name, _) = rest.split_once('"')?;
    Some((name.to_lowercase(), source.ends_with(" lua")))
}

const SCRIPTS: [&str; 2] = ["evalsha", "eval"];

const OWN: [&str; 4] = ["info", "flushall", "monitor", "client"];

const OF_SCRIPTS: [&str; 22] = [
    "decrby", "del", "exists", "get", "hdel", "hexists", "hget", "hincrby", "hlen", "incrby",
    "lindex", "llen", "lpop", "lrange", "lrem", "pexpire", "pttl", "publish", "rpush", "zadd",
    "zrem", "zscore",
];

const LONGEST_LOOK: Duration = Duration::from_millis(150);
const ENOUGH_LINES: usize = 4_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_lines_distinguish_clients_from_scripts() {
        let sent = "1339518083.107412 [0 127.0.0.1:60866] \"EVALSHA\" \"149c\" \"1\"";
        let called = "1339518083.107413 [0 lua] \"hincrby\" \"a] \\\"b\" \"1\"";
        assert_eq!(parse(sent), Some(("evalsha".to_owned(), false)));
        assert_eq!(parse(called), Some(("hincrby".to_owned(), true)));
        assert_eq!(parse("+OK"), None);
    }

    #[test]
    fn counted_calls_are_split_by_the_observed_origins() {
        let calls = [("evalsha", 20), ("del", 40), ("hincrby", 20)];
        let counters = Counters {
            calls: calls.map(|(name, count)| (name.to_owned(), count)).into(),
            script_us: 0.0,
            cpu_s: 0.0,
        };
        let seen = [("del".to_owned(), [1.0, 3.0])];
        let commands = counters.commands(&Origins(seen.into()));
        assert_eq!((commands.sent, commands.inside), (30.0, 50.0));
    }
}
