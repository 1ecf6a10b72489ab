//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::duration;
use crate::run::Args as Run;

/// Runs commands under distributed locks of lockdog and Redisson, and shows who holds such locks.
#[derive(Debug, Parser)]
#[command(name = "lockdog", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Ls(Ls),
    Inspect(Inspect),
    Release(Release),
    Watch(Watch),
    Top(Top),
    Doctor(Doctor),
    Bench(Bench),
    Config(ConfigArgs),
    Completions(Completions),
    Man(Man),
}

/// What all commands share.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server and output")]
pub(crate) struct Common {
    /// The server: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://. Three or more make
    /// one RedLock. Default: LOCKDOG_URL, which may have several with spaces between them, or
    /// redis://127.0.0.1:6379
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Vec<String>,
    /// A configuration file of Redisson (YAML or JSON) or of lockdog, in place of --url. Flags, and the variables
    /// below, override it. Default: LOCKDOG_CONFIG
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    pub(crate) config: Option<PathBuf>,
    /// The user on the server. Default: LOCKDOG_USER, or the user in the URL
    #[arg(long, global = true, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// A file whose first line is the password. Default: the variable LOCKDOG_PASSWORD, or the password in
    /// the URL
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Root certificates in PEM, in place of the system's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// The client's certificate in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of the client's certificate in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// How long to wait for the answer to one command. Default: what the configuration says, or 3s
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) command_timeout: Option<Duration>,
    /// The form of the output
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Human)]
    pub(crate) output: Form,
    /// As --output json
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto)]
    pub(crate) color: Colour,
    /// No notes on stderr, only errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// More notes; twice: also the log at debug level; three times: the whole log
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Common {
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.output == Form::Json
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Form {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

/// List the locks on the servers
///
/// A key is listed if its content is that of a lock. Exit code 0: there are locks; 1: there are none.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Only keys of this pattern, as SCAN takes it
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Only locks with this hash: `lock.hash` in the logs of lockdog
    #[arg(long)]
    pub(crate) hash: Option<String>,
    /// List semaphores, and the counters of fencing tokens whose locks are free, too. Latches, and semaphores that
    /// were never used, are numbers like those of other programs, so they are not listed
    #[arg(long)]
    pub(crate) all: bool,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) limit: u64,
    /// Stop after this many keys, with exit code 125
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) max_keys: u64,
    /// The pause between two pages of keys
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration::parse)]
    pub(crate) pause: Duration,
}

/// Show who holds a lock, from where, and for how long
///
/// Exit code 0: all of them are held; 1: one of them is free.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The names of the locks: their keys
    #[arg(required_unless_present = "hash")]
    pub(crate) name: Vec<String>,
    /// Search all keys for the lock with this hash, `lock.hash` in the logs of lockdog
    #[arg(long, conflicts_with = "name")]
    pub(crate) hash: Option<String>,
}

/// Take a lock away from its holder
///
/// Exit code 0: that holder has lost it; 1: it is free, or another one holds it.
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The name of the lock: its key
    pub(crate) name: String,
    /// Take it away; a lock is otherwise released by its holder
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask; needs --holder
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only if this holder has it: its field, as `lockdog inspect` shows it. A RedLock has another field on each
    /// server: repeat the flag
    #[arg(long, value_name = "FIELD")]
    pub(crate) holder: Vec<String>,
}

/// Report each change of locks, one per line
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The names of the locks: their keys
    #[arg(required = true)]
    pub(crate) name: Vec<String>,
    /// The time between two queries
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = duration::parse)]
    pub(crate) interval: Duration,
    /// End with exit code 0 as soon as all of them are in this state
    #[arg(long, value_enum)]
    pub(crate) until: Option<Until>,
    /// End with exit code 1 after this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Until {
    Free,
    Held,
}

/// Show the locks as a table that refreshes itself
///
/// Keys: q quits, p pauses, / filters, s changes the order, Enter inspects the selected lock, r releases it.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Only keys of this pattern, as SCAN takes it
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// The time between two queries
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    pub(crate) interval: Duration,
    /// Print the table once, as plain text
    #[arg(long)]
    pub(crate) once: bool,
    /// Stop each scan after this many keys: the first one then ends with exit code 125
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) max_keys: u64,
}

/// Check the connection to the server and its set-up, and time each step
///
/// Exit code 0: all is well; 1: there is a warning or a failure; 125: no server can be reached.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The beginning of the name of the lock that it takes and releases
    #[arg(long, value_name = "PREFIX", default_value = "lockdog:doctor:")]
    pub(crate) lock_prefix: String,
}

/// Measure what locks cost on the server, beside a round trip alone
///
/// It loads the server meanwhile. Its locks have names of their own and are released at the end. Exit code 0: it
/// was measured; 125: it was not.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// How long it measures: from 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) duration: Duration,
    /// Load a server that has no loopback address, sentinels, a cluster or the servers of a file, too
    #[arg(long)]
    pub(crate) yes: bool,
    /// The beginning of the names of the locks that it takes and releases
    #[arg(long, value_name = "PREFIX", default_value = "lockdog:bench:")]
    pub(crate) lock_prefix: String,
}

/// Check a configuration file without connecting
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    Check(ConfigCheck),
}

/// Show how each key of a configuration file is handled
///
/// Exit code 0: the file can be used; 1: it cannot, or with --strict lockdog behaves differently from one of its
/// keys; 125: it cannot be read.
#[derive(Args, Debug)]
pub(crate) struct ConfigCheck {
    /// A configuration of Redisson (YAML or JSON) or of lockdog
    pub(crate) file: PathBuf,
    /// A key that lockdog handles differently is a problem, too
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Print the completions of a shell
#[derive(Args, Debug)]
pub(crate) struct Completions {
    pub(crate) shell: Shell,
}

/// Print the manual page, or write one for each command into a folder
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The folder, which must exist
    pub(crate) folder: Option<PathBuf>,
}

/// The command and its arguments.
pub(crate) type Words = Vec<OsString>;

/// The names of the commands.
pub(crate) const COMMANDS: [&str; 11] = [
    "run",
    "ls",
    "inspect",
    "release",
    "watch",
    "top",
    "doctor",
    "bench",
    "config",
    "completions",
    "man",
];
