//! Queries about the values of a group.

use super::Lock;
use super::holder::{HolderInfo, Ttl};
use crate::background::ensure_runtime;
use crate::error::Result;
use crate::lock_request::FromGuard;
use crate::script::group::{self, ValueHolder};
use crate::server::Sent;

impl<G: FromGuard> Lock<G> {
    /// The owners of the lock's values, each once.
    pub(super) async fn holders_of_values(&self) -> Result<Vec<HolderInfo>> {
        let core = self.session().core();
        let mut holders: Vec<HolderInfo> = Vec::new();
        for ValueHolder { field, count, left } in self.of_values_now().await? {
            if holders.iter().all(|holder| holder.field() != field) {
                let is_ours = core.number_of(&field).is_some();
                holders.push(HolderInfo::new(field, count, Ttl::Expires(left), is_ours));
            }
        }
        Ok(holders)
    }

    /// The owner of each of the lock's values that has one.
    pub(super) async fn of_values_now(&self) -> Result<Vec<ValueHolder>> {
        let (core, key) = (self.session().core(), self.key()?);
        ensure_runtime()?;
        core.ensure_open()?;
        let time = core.server.time_box(core.clock.now());
        let mut sent = Sent::default();
        let answer = group::holders(&core.server, key, time, &mut sent).await;
        core.server.abandon_unanswered(&answer, &sent);
        Ok(answer?)
    }
}
