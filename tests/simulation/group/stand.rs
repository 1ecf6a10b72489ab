//! What the server has of the group.

use std::collections::BTreeMap;

use super::command::KEY;
use crate::simulation::redis::Redis;

/// Who has a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Has {
    pub(super) field: String,
    /// In ms since the start of the run.
    pub(super) ends: f64,
    pub(super) count: i64,
}

/// Who has which value, also if the time of an owner is over.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stand {
    pub(super) values: BTreeMap<String, Has>,
    pub(super) until_ms: Option<u64>,
}

impl Stand {
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

    /// What one hold has, also if its time is over.
    pub(super) fn of_field(&self, field: &str) -> impl Iterator<Item = (&String, &Has)> {
        self.values
            .iter()
            .filter(move |(_, has)| has.field == field)
    }
}

/// What the server's clock shows at the start.
pub(super) const EPOCH_MS: u64 = 1_800_000_000_000;
