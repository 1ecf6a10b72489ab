//! The environment of the command.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use super::acquire::Acquired;
use super::ancestors::{Ancestors, HOLDS};
use super::arguments::Args;
use crate::connect::{has_password, without_passwords};

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

pub(super) fn of(args: &Args, acquired: &Acquired, ancestors: &Ancestors) -> Environment {
    let holds = &acquired.holds;
    let mut set: Vec<(&'static str, OsString)> = vec![
        ("LOCKDOG_HELD", "1".into()),
        ("LOCKDOG_LOCK", args.name.clone().into()),
        (
            "LOCKDOG_LEASE_MS",
            args.lease.as_millis().to_string().into(),
        ),
    ];
    if let Some(hold) = holds.iter().find(|hold| hold.lock == args.name) {
        set.push(("LOCKDOG_FIELD", hold.field.clone().into()));
    }
    let holds = holds.iter().map(|hold| (&*hold.lock, &*hold.field));
    set.push((HOLDS, ancestors.with(holds).into()));
    let secrets = without_secrets(args);
    set.extend(secrets.set);
    let mut removed = secrets.removed;
    match acquired.guard().token() {
        Some(token) => set.push(("LOCKDOG_TOKEN", token.to_string().into())),
        // That of a run above this one is not this lock's.
        None => removed.push("LOCKDOG_TOKEN"),
    }
    Environment { set, removed }
}

/// Removes the passwords. A URL stays, without its password: a nested lockdog without a URL would use the default
/// server, and its lock would exclude no other program there.
pub(super) fn without_secrets(args: &Args) -> Environment {
    if args.pass_credentials {
        return Environment::default();
    }
    let mut environment = Environment {
        set: Vec::new(),
        removed: vec!["LOCKDOG_PASSWORD"],
    };
    let urls = env::var_os("LOCKDOG_URL").unwrap_or_default();
    let urls = urls.to_string_lossy();
    if urls.split_whitespace().any(has_password) {
        let urls = without_passwords(&urls).into();
        environment.set.push(("LOCKDOG_URL", urls));
    }
    environment
}
