//! Watches who leads.

use std::fmt;
use std::sync::Arc;

use super::{Election, Leader};
use crate::background::ensure_runtime;
use crate::clock::Moment;
use crate::error::Result;
use crate::owner::Owner;
use crate::wait::Listener;

/// The leaders of an election, one after the other, from [`Election::observe`].
///
/// It may skip a leadership that begins and ends between two of its queries. It reports what the server says, and on
/// one server the terms only grow, unless another program deletes their counter. After a failover to a replica that
/// missed the last writes, the server may name an earlier leader again, with a smaller [`term`](Leader::term).
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let mut leaders = client.election("scheduler").observe();
/// loop {
///     match leaders.next().await? {
///         Some(leader) => println!("{:?} leads", leader.value),
///         None => println!("no client leads"),
///     }
/// }
/// # }
/// ```
#[must_use = "it does nothing until `next` is called"]
pub struct Leaders {
    election: Election,
    /// What was reported last; `None` before the first report.
    seen: Option<Option<Leader>>,
    /// Registered before the second query.
    listener: Option<Listener>,
    has_subscribed: bool,
    /// When to ask again, if no message comes before; `None` if it has to ask now.
    asks_at: Option<Moment>,
}

impl Leaders {
    pub(super) fn new(election: Election) -> Self {
        Self {
            election,
            seen: None,
            listener: None,
            has_subscribed: false,
            asks_at: None,
        }
    }

    /// The next leader, or `None` if no client leads. The first call returns the current leader immediately. Each later
    /// call waits for a change. After a message it returns within one round trip, otherwise within one
    /// [`poll_cap`](crate::ClientBuilder::poll_cap).
    ///
    /// # Errors
    ///
    /// As [`Election::leader`]. After an error, the next call sends its query after one poll cap. After a shutdown of
    /// the client each call returns [`Error::Closed`](crate::Error::Closed), so end the loop then.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the next call continues: no change is lost.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        ensure_runtime()?;
        let next = self.change().await;
        if next.is_err() {
            // A task that calls this in a loop is aborted where it is pending. Without this it never would be: after a
            // shutdown each call returns immediately.
            tokio::task::yield_now().await;
        }
        next
    }

    async fn change(&mut self) -> Result<Option<Leader>> {
        loop {
            if let Some(at) = self.asks_at {
                self.wait(at).await?;
                // If the query below is cancelled, the next call sends one immediately.
                self.asks_at = None;
            }
            let asked = self.election.leader().await;
            let core = self.election.inner.object.core();
            // Set before the error is returned, so the call after a failure waits too.
            self.asks_at = Some(core.clock.now() + core.clock.jitter_down(core.settings.poll_cap));
            let leader = asked?;
            let is_known = match (&self.seen, &leader) {
                (Some(Some(seen)), Some(leader)) => seen.is_as(leader),
                (Some(None), None) => true,
                _ => false,
            };
            if !is_known {
                self.seen = Some(leader.clone());
                return Ok(leader);
            }
        }
    }

    /// Waits until there may be something new, at most until `until`.
    async fn wait(&mut self, until: Moment) -> Result<()> {
        let object = &self.election.inner.object;
        let (core, key) = (object.core(), object.key()?);
        let listener = match &mut self.listener {
            Some(listener) => listener,
            none => {
                let news = Arc::new(key.news());
                none.insert(core.waiters.add_listener(&news, Owner::new())?)
            }
        };
        let listens = core.backoff(key).is_none() && !self.has_subscribed;
        tokio::select! {
            biased;
            // A change may come before the subscription is active, so the caller queries once more after it.
            () = listener.subscribed(&core.server), if listens => {
                self.has_subscribed = true;
                Ok(())
            }
            waited = listener.wait(until) => waited,
        }
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders")
            .field("election", &self.election.name())
            .finish_non_exhaustive()
    }
}
