//! The `lockdog run`s above this one.

use std::env;

use lockdog::Client;
use lockdog::report::HolderInfo;
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

    /// Which of the locks are held by them. A wait for one of these would never end.
    pub(super) async fn holding(
        &self,
        args: &Args,
        clients: &[Client],
    ) -> Result<Vec<String>, Failed> {
        let mut held = Vec::new();
        for name in args.names() {
            if self.is_holding(name, clients).await? {
                held.push(name.to_owned());
            }
        }
        Ok(held)
    }

    /// The servers are asked, because a daemon may outlive the run that started it.
    async fn is_holding(&self, name: &str, clients: &[Client]) -> Result<bool, Failed> {
        let holds: Vec<&Value> = self.0.iter().filter(|it| it["lock"] == name).collect();
        if holds.is_empty() {
            return Ok(false);
        }
        for client in clients {
            let holder = match client.lock(name).holder().await {
                Ok(holder) => holder,
                // The others have a quorum, or the acquire reports it.
                Err(_) if clients.len() > 1 => continue,
                Err(error) => return Err(error.into()),
            };
            let has = |holder: HolderInfo| holds.iter().any(|it| it["field"] == holder.field());
            if holder.is_some_and(has) {
                return Ok(true);
            }
        }
        Ok(false)
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
