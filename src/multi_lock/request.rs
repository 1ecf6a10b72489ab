//! How a multi lock executes a request.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Inner;
use super::acquire::MultiLockCall;
use super::hold::MultiHold;
use super::members::MemberGroups;
use super::unlocked::whole;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock_request::{Acquire, AcquireOptions, Boxed, WaitLimit, WatchedCall, unlocker};
use crate::observe::How;
use crate::owner::Owner;
use crate::session::{Claim, Unlocked};

impl Acquire for Inner {
    fn name(&self) -> &str {
        &self.name
    }

    fn lock(self: Arc<Self>, options: AcquireOptions) -> Boxed<Guard> {
        Box::pin(async move {
            let guard = self.acquired(options, WaitLimit::ForEver).await?;
            // A wait without a limit ends with a guard or an error.
            guard.ok_or(Error::Closed)
        })
    }

    fn acquire(self: Arc<Self>, options: AcquireOptions, wait: WaitLimit) -> Boxed<Option<Guard>> {
        Box::pin(async move { self.acquired(options, wait).await })
    }

    fn unlock(self: Arc<Self>, owner: Option<Owner>) -> Boxed<Unlocked> {
        Box::pin(async move {
            self.members()?;
            let owner = unlocker(owner)?;
            let ends = self
                .locks
                .iter()
                .map(|lock| lock.unlock().owner(&owner).into_future());
            whole(join_all(ends).await)
        })
    }
}

impl Inner {
    async fn acquired(
        &self,
        mut options: AcquireOptions,
        wait: WaitLimit,
    ) -> Result<Option<Guard>> {
        let owner = options.owner()?;
        let members = self.members()?;
        let core = members.first().core();
        let watched = WatchedCall::begin(core, || members.shown(&self.name, owner));
        let outcome = self.acquired_by(owner, members, options, wait).await;
        // One member that its owner did not have makes it a first acquire.
        watched.end(&outcome, |claims| {
            let is_again = |claim: &Claim| claim.how() == How::Reentered;
            match claims.iter().all(is_again) {
                true => How::Reentered,
                false => How::First,
            }
        });
        let claims = outcome?;
        Ok(claims.map(|claims| {
            let members = members.list();
            Guard::several(MultiHold::new(&self.name, owner, members, claims))
        }))
    }

    async fn acquired_by(
        &self,
        owner: Owner,
        members: &Arc<MemberGroups>,
        options: AcquireOptions,
        wait: WaitLimit,
    ) -> Result<Option<Vec<Claim>>> {
        let mut members = members.clone();
        let mut time = None;
        loop {
            if let Some(regrouped) = members.regrouped() {
                members = Arc::new(regrouped);
            }
            let mut call = MultiLockCall::new(&self.name, &members, owner, &options, wait)?;
            match time {
                None => {
                    // Checked only once. If another call of this owner acquires a member later, this call
                    // waits for it.
                    call.refuse_held()?;
                    time = Some((call.began, call.deadline));
                }
                Some(first) => (call.began, call.deadline) = first,
            }
            // A loop of calls that never wait must still let other tasks run.
            tokio::task::consume_budget().await;
            let claims = call.acquire().await;
            // A server refused several keys in one command and changed nothing. Retry with one command for
            // each key.
            if claims.is_err() && members.regrouped().is_some() {
                continue;
            }
            return claims;
        }
    }
}
