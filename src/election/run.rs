//! Campaigns again after each leadership that is lost.

use super::{CampaignRequest, Election, Leadership, Leading};
use crate::error::{Error, Result};

impl Election {
    /// Campaigns, does the work while it leads, and resigns. If the leadership is lost, the work is cancelled (its
    /// future is dropped), and the call campaigns again. If it led until the work ended, the call returns the
    /// output of the work. Corresponds to Curator's `LeaderSelector` with `autoRequeue`, until the work ends.
    ///
    /// It also campaigns again, after a [`poll_cap`](crate::ClientBuilder::poll_cap), if the server does not answer.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), except those for which [`Error::is_retriable`] is true.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the work is dropped, and the client resigns in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let election = client.election("scheduler");
    /// election.run("10.0.0.7:9000", |lead| async move { schedule(lead.term()).await }).await?;
    /// # Ok(())
    /// # }
    /// # async fn schedule(_term: u64) {}
    /// ```
    pub async fn run<F, Fut>(&self, value: impl Into<String>, mut work: F) -> Result<Fut::Output>
    where
        F: FnMut(Leading) -> Fut,
        Fut: Future,
    {
        let value = value.into();
        loop {
            let lead = self.until_elected(self.campaign(&*value)).await?;
            let leading = lead.leading();
            let work = work(leading.clone());
            let output = tokio::select! {
                biased;
                _ = leading.lost() => continue,
                output = work => output,
            };
            match lead.resign().await {
                // It led until the end of the work, so the output counts even if the end is not confirmed.
                Ok(()) | Err(Error::UnlockUnconfirmed(_)) => return Ok(output),
                Err(Error::Lost(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Campaigns until it leads: again after an outage, and if the leadership is lost before its value was
    /// published.
    async fn until_elected(&self, campaign: CampaignRequest) -> Result<Leadership> {
        loop {
            let error = match campaign.elected().await {
                Ok(guard) => match campaign.clone().begin(guard).await {
                    Err(error) if error.is_retriable() || error.is_lost() => error,
                    begun => return begun,
                },
                Err(error) if error.is_retriable() => error,
                Err(error) => return Err(error),
            };
            tracing::debug!(
                target: "lockdog::lock",
                { election = self.name(), %error },
                "the campaign failed; campaigning again"
            );
            let core = self.inner.object.core();
            tokio::time::sleep(core.settings.poll_cap).await;
        }
    }
}
