//! What the tasks of a run contend for: a fair lock, or the leadership of an election.

use std::pin::Pin;
use std::time::Duration;

use super::command::KEY;
use crate::election::{Election, Leader, Leaders, Leadership};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::key::kind;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::session::Unlocked;
use crate::simulation::world::SimulatedClient;

pub(super) struct Contest {
    /// The lock of an election.
    lock: Lock,
    election: Option<Election>,
}

/// What a task has won.
pub(super) enum Won {
    Hold(Guard),
    Lead(Leadership),
}

/// A hold that ended, from the view of its task.
#[derive(Clone)]
pub(super) enum HoldName {
    Field(String),
    Term(u64),
}

pub(super) type Call<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl Contest {
    pub(super) fn new(client: &SimulatedClient, is_election: bool) -> Self {
        let session = &client.session;
        let kind = match is_election {
            true => &kind::ELECTION,
            false => &kind::FAIR,
        };
        Self {
            lock: Lock::new(session.clone(), kind, KEY),
            election: is_election.then(|| Election::new(session.clone(), KEY)),
        }
    }

    /// Acquires the lock for at least `least`, or campaigns with this value. Without a wait it makes
    /// one attempt.
    pub(super) fn acquire(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
        lease: Option<Duration>,
        least: Option<Duration>,
        value: String,
    ) -> Call<Option<Won>> {
        let Some(election) = &self.election else {
            let mut request = self.lock.try_lock().owner(owner);
            if let Some(wait) = wait {
                request = request.wait(wait);
            }
            if let Some(lease) = lease {
                request = request.lease(lease);
            }
            if let Some(least) = least {
                request = request.hold_at_least(least);
            }
            return Box::pin(async move { Ok(request.await?.map(Won::Hold)) });
        };
        let campaign = election.campaign(value).owner(owner);
        let mut campaign = campaign.wait(wait.unwrap_or_default());
        if let Some(lease) = lease {
            campaign = campaign.lease(lease);
        }
        Box::pin(async move { Ok(campaign.await?.map(Won::Lead)) })
    }

    pub(super) async fn force_unlock(&self) {
        // The observer checks the effect.
        let _ = self.lock.force_unlock().await;
    }

    /// Observes the leaders of an election.
    pub(super) fn observe(&self) -> Option<Leaders> {
        self.election.as_ref().map(Election::observe)
    }

    /// Asks for the leader. `None` if there is no answer, or no election.
    pub(super) async fn leader(&self) -> Option<Option<Leader>> {
        self.election.as_ref()?.leader().await.ok()
    }
}

impl Won {
    pub(super) fn name(&self) -> HoldName {
        match self {
            Self::Hold(guard) => HoldName::Field(guard.field()),
            Self::Lead(lead) => HoldName::Term(lead.term()),
        }
    }

    /// Unlocks, or resigns.
    pub(super) fn end(self) -> Call<Unlocked> {
        match self {
            Self::Hold(guard) => Box::pin(guard.unlock()),
            Self::Lead(lead) => {
                Box::pin(async move { lead.resign().await.map(|()| Unlocked::Released) })
            }
        }
    }

    /// Publishes another value, if the task is the leader.
    pub(super) async fn proclaim(&self, value: String) -> Result<(), Error> {
        match self {
            Self::Hold(_) => Ok(()),
            Self::Lead(lead) => lead.proclaim(value).await,
        }
    }
}
