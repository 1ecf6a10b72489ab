//! The state of the group on the server.

use std::collections::BTreeMap;

use super::command::KEY;
use crate::simulation::redis::Redis;

/// The owner of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Has {
    pub(super) field: String,
    /// In ms since the start of the run.
    pub(super) ends: f64,
    pub(super) count: i64,
}

/// The owner of each value, including owners whose time has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupState {
    pub(super) values: BTreeMap<String, Has>,
    pub(super) until_ms: Option<u64>,
}

impl GroupState {
    pub(super) fn of(redis: &Redis, now_ms: u64) -> Self {
        let fields = redis.fields(KEY, now_ms);
        let number = |name: &str| fields.get(name).and_then(|text| text.parse::<f64>().ok());
        let owned = fields.iter().filter(|(name, _)| !name.contains(':'));
        let values = owned.map(|(value, field)| {
            let ends = number(&format!("{value}:{field}:expire_time"));
            let count = number(&format!("{value}:{field}:lock_count"));
            let has = Has {
                field: field.clone(),
                ends: ends.unwrap_or(0.0) - EPOCH_MS as f64,
                count: count.unwrap_or(0.0) as i64,
            };
            (value.clone(), has)
        });
        Self {
            values: values.collect(),
            until_ms: redis.until_ms(KEY, now_ms),
        }
    }

    /// The values of one hold, also if its time has ended.
    pub(super) fn of_field(&self, field: &str) -> impl Iterator<Item = (&String, &Has)> {
        self.values
            .iter()
            .filter(move |(_, has)| has.field == field)
    }
}

/// The time of the server's clock at the start.
pub(super) const EPOCH_MS: u64 = 1_800_000_000_000;
