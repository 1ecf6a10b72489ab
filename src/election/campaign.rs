//! The requests to lead.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use super::{Election, Leadership, check_value};
use crate::clock::Moment;
use crate::error::Result;
use crate::guard::Guard;
use crate::lock_request::{Boxed, FIRST_ATTEMPT, WaitLimit, not_a_future};
use crate::owner::Owner;

/// A pending campaign, from [`Election::campaign`]. It does nothing until it is awaited, and then waits without
/// limit.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited; keep the leadership that it returns"]
pub struct CampaignRequest {
    election: Election,
    value: String,
    lease: Option<Duration>,
    owner: Option<Owner>,
}

/// A pending campaign that waits for at most some time, from [`CampaignRequest::wait`]. It does nothing until it is
/// awaited.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited; keep the leadership that it returns"]
pub struct TimedCampaignRequest {
    campaign: CampaignRequest,
    wait: Duration,
}

macro_rules! options {
    ($($campaign:ident)?) => {
        /// Leads with a fixed lease: the watchdog does not renew it, and the leadership ends when this time ends.
        /// From 10 ms up to the client's `max_lease`, in whole milliseconds; any other lease is
        /// [`Error::Invalid`](crate::Error::Invalid).
        pub fn lease(mut self, lease: Duration) -> Self {
            self.$($campaign.)?lease = Some(lease);
            self
        }

        /// Campaigns for this owner instead of the current one. Use `&Owner::new()` if another task than this one
        /// will end the leadership.
        pub fn owner(mut self, owner: &Owner) -> Self {
            self.$($campaign.)?owner = Some(*owner);
            self
        }
    };
}

impl CampaignRequest {
    pub(super) fn new(election: Election, value: String) -> Self {
        Self {
            election,
            value,
            lease: None,
            owner: None,
        }
    }

    /// Limits the time of the whole call, as [`TryLockRequest::wait`](crate::request::TryLockRequest::wait). The
    /// call returns `None` if another client leads then. With zero it makes one attempt: it takes no place in the
    /// queue, and leads only if no client leads or waits.
    pub fn wait(self, wait: Duration) -> TimedCampaignRequest {
        TimedCampaignRequest {
            campaign: self,
            wait,
        }
    }

    options!();

    /// Waits until its owner leads. Publishes nothing yet.
    pub(super) async fn elected(&self) -> Result<Guard> {
        check_value(&self.value)?;
        let mut request = self.election.inner.lock.lock();
        if let Some(lease) = self.lease {
            request = request.lease(lease);
        }
        if let Some(owner) = &self.owner {
            request = request.owner(owner);
        }
        request.await
    }

    /// Begins the leadership of this guard's owner: publishes its value.
    pub(super) async fn begin(self, guard: Guard) -> Result<Leadership> {
        Leadership::begin(self.election, guard, self.value, Moment::NEVER).await
    }

    async fn lead(self) -> Result<Leadership> {
        let guard = self.elected().await?;
        self.begin(guard).await
    }
}

impl TimedCampaignRequest {
    options!(campaign);

    async fn lead(self) -> Result<Option<Leadership>> {
        let Self { campaign, wait } = self;
        check_value(&campaign.value)?;
        let mut request = campaign.election.inner.lock.try_lock().wait(wait);
        if let Some(lease) = campaign.lease {
            request = request.lease(lease);
        }
        if let Some(owner) = &campaign.owner {
            request = request.owner(owner);
        }
        let core = campaign.election.inner.object.core();
        let (began, timeout) = (core.clock.now(), core.server.command_timeout());
        let until = WaitLimit::of_try(Some(wait)).deadline(began, timeout);
        let until = until.map_or(Moment::NEVER, |until| until.max(began + FIRST_ATTEMPT));
        let Some(guard) = request.await? else {
            return Ok(None);
        };
        let lead = Leadership::begin(campaign.election, guard, campaign.value, until);
        lead.await.map(Some)
    }
}

impl IntoFuture for CampaignRequest {
    type Output = Result<Leadership>;
    type IntoFuture = Boxed<Leadership>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.lead())
    }
}

impl IntoFuture for TimedCampaignRequest {
    type Output = Result<Option<Leadership>>;
    type IntoFuture = Boxed<Option<Leadership>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.lead())
    }
}

not_a_future!(CampaignRequest, Result<Leadership>);
not_a_future!(TimedCampaignRequest, Result<Option<Leadership>>);

impl fmt::Debug for CampaignRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CampaignRequest")
            .field("election", &self.election.name())
            .field("lease", &self.lease)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TimedCampaignRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedCampaignRequest")
            .field("campaign", &self.campaign)
            .field("wait", &self.wait)
            .finish()
    }
}
