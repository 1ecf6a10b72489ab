//! The environment of the command.

use std::env;
use std::ffi::OsString;

use super::acquire::Acquired;
use super::ancestors::{Ancestors, HOLDS};
use super::arguments::Args;
use crate::connect::has_password;

/// What the environment of the command has besides this process's, and what it lacks.
#[derive(Default)]
pub(super) struct Environment {
    pub(super) set: Vec<(&'static str, OsString)>,
    pub(super) removed: Vec<&'static str>,
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
    let mut removed = secrets(args);
    match acquired.guard().token() {
        Some(token) => set.push(("LOCKDOG_TOKEN", token.to_string().into())),
        // That of a run above this one is not this lock's.
        None => removed.push("LOCKDOG_TOKEN"),
    }
    Environment { set, removed }
}

/// The variables with a password.
pub(super) fn secrets(args: &Args) -> Vec<&'static str> {
    if args.pass_credentials {
        return Vec::new();
    }
    let mut secrets = vec!["LOCKDOG_PASSWORD"];
    let url = env::var_os("LOCKDOG_URL").unwrap_or_default();
    if url.to_string_lossy().split_whitespace().any(has_password) {
        secrets.push("LOCKDOG_URL");
    }
    secrets
}
