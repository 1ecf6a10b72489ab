//! The environment of the command.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use super::acquire::HeldLock;
use super::ancestors::{Ancestors, HOLDS};
use super::arguments::Args;
use crate::connect::{Flag, Settings, has_password, without_passwords};

/// What the environment of the command has besides this process's, and what it lacks.
#[derive(Default)]
pub(super) struct Environment {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

impl Environment {
    pub(super) fn apply(&self, command: &mut Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }
}

pub(super) fn of(
    args: &Args,
    settings: &Settings,
    acquired: &HeldLock,
    ancestors: &Ancestors,
) -> Environment {
    let holds = &acquired.holds;
    let mut set: Vec<(&'static str, OsString)> = vec![
        ("LOCKDOG_HELD", "1".into()),
        (LOCK, args.name.clone().into()),
        (LEASE, args.lease.as_millis().to_string().into()),
    ];
    if let Some(hold) = holds.iter().find(|hold| hold.lock == args.name) {
        set.push((FIELD, hold.field.clone().into()));
    }
    let holds = holds.iter().map(|hold| (&*hold.lock, &*hold.field));
    set.push((HOLDS, ancestors.with(holds).into()));
    let secrets = without_secrets(args, settings);
    set.extend(secrets.set);
    let mut removed = secrets.removed;
    match acquired.guard().token() {
        Some(token) => set.push((TOKEN, token.to_string().into())),
        // That of a run above this one is not this lock's.
        None => removed.push(TOKEN),
    }
    Environment { set, removed }
}

/// For a command under the hold of a run above.
pub(super) fn under_hold_above(args: &Args, settings: &Settings) -> Environment {
    let mut environment = without_secrets(args, settings);
    if !is_of_lock_above(args) {
        // A run between that one and this one holds another lock, whose token is for other resources.
        environment.set.push((LOCK, args.name.clone().into()));
        environment.removed.extend([FIELD, LEASE, TOKEN]);
    }
    environment
}

/// Whether that command gets the token of the run above.
pub(super) fn has_token_above(args: &Args) -> bool {
    is_of_lock_above(args) && env::var_os(TOKEN).is_some()
}

/// Whether the environment is that of a run of this lock.
fn is_of_lock_above(args: &Args) -> bool {
    env::var_os(LOCK).is_some_and(|lock| lock == args.name.as_str())
}

/// Removes the passwords. The servers stay, also those that a flag names: a nested lockdog without them would use the
/// default server, and its lock would not exclude the clients of these servers.
fn without_secrets(args: &Args, settings: &Settings) -> Environment {
    let mut environment = Environment::default();
    let Environment { set, removed } = &mut environment;
    if !args.pass_credentials {
        removed.push(PASSWORD);
    }
    match settings.flag() {
        Some(Flag::Urls(urls)) => {
            let urls = match args.pass_credentials {
                true => urls.join(" "),
                false => without_passwords(urls.iter().map(String::as_str)),
            };
            set.push((URL, urls.into()));
            // Two answers of the environment are an error.
            removed.push(CONFIG);
        }
        Some(Flag::File(file)) => {
            set.push((CONFIG, file.into()));
            removed.push(URL);
        }
        None if args.pass_credentials => {}
        None => {
            let urls = env::var_os(URL).unwrap_or_default();
            let urls = urls.to_string_lossy();
            if urls.split_whitespace().any(has_password) {
                set.push((URL, without_passwords(urls.split_whitespace()).into()));
            }
        }
    }
    environment
}

const CONFIG: &str = "LOCKDOG_CONFIG";
const FIELD: &str = "LOCKDOG_FIELD";
const LEASE: &str = "LOCKDOG_LEASE_MS";
const LOCK: &str = "LOCKDOG_LOCK";
const PASSWORD: &str = "LOCKDOG_PASSWORD";
const TOKEN: &str = "LOCKDOG_TOKEN";
const URL: &str = "LOCKDOG_URL";
