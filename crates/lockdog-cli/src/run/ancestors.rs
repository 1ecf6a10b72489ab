//! The `lockdog run`s above this one.

use std::env;

use lockdog::Client;
use serde_json::{Value, json};

use super::arguments::Args;
use crate::failed::Failed;

/// The holds that the environment names.
pub(super) struct Ancestors(Vec<Value>);

impl Ancestors {
    pub(super) fn of_environment() -> Self {
        let holds = env::var(HOLDS).ok();
        let holds = holds.and_then(|holds| serde_json::from_str(&holds).ok());
        Self(holds.unwrap_or_default())
    }

    /// Which of the locks is held by one of them. A wait for it would never end.
    ///
    /// The servers are asked, because a daemon may outlive the run that started it.
    pub(super) async fn holding(
        &self,
        args: &Args,
        clients: &[Client],
    ) -> Result<Option<String>, Failed> {
        for hold in &self.0 {
            let Some(name) = args.names().find(|name| hold["lock"] == *name) else {
                continue;
            };
            for client in clients {
                let holder = client.lock(name).holder().await;
                let holder = match holder {
                    Ok(holder) => holder,
                    // The others have a quorum, or the acquire reports it.
                    Err(_) if clients.len() > 1 => continue,
                    Err(error) => return Err(error.into()),
                };
                let field = |holder: &lockdog::report::HolderInfo| hold["field"] == holder.field();
                if holder.as_ref().is_some_and(field) {
                    return Ok(Some(name.to_owned()));
                }
            }
        }
        Ok(None)
    }

    /// The value of the variable for a command that also has these holds: names and fields.
    pub(super) fn with<'a>(&self, holds: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let mut all = self.0.clone();
        all.extend(holds.map(|(lock, field)| json!({ "lock": lock, "field": field })));
        Value::Array(all).to_string()
    }
}

/// The variable that has them, as JSON.
pub(super) const HOLDS: &str = "LOCKDOG_HOLDS";
