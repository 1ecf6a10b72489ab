//! How many replicas to wait for, by the earlier acknowledgements.

use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use crate::server::ack::{
    AckResult, AwaitedReplicas, Behind, PendingWrite, Replicas, is_unknown_command,
};
use crate::server::connection::Connection;
use crate::server::failure::Failure;
use crate::server::followers;
use crate::server::node::Node;

impl Node {
    /// How many replicas can be expected to acknowledge, and whether there are others. `is_whole`: a connection that
    /// does not answer within `limit` is silent. A caller with less time does not show that.
    pub(super) async fn expected(
        &self,
        written: &PendingWrite<'_>,
        now: Moment,
        limit: Duration,
        is_whole: bool,
    ) -> AwaitedReplicas {
        let acker = self.acker();
        if acker.refusal(written.on).is_some() {
            let (count, others) = (0, false);
            return AwaitedReplicas { count, others };
        }
        let is_due = {
            let mut known = acker.known.lock();
            let is_due = known.counted.is_none_or(|at| now.since(at) >= A_SECOND);
            if is_due {
                // One caller counts the replicas for all callers.
                known.counted = Some(now);
            }
            is_due
        };
        let identity = self.endpoint().identity();
        if is_due {
            // Boxed: it is rare, and would otherwise enlarge the future of every acquire.
            match Box::pin(self.ask_followers(written.on, limit, is_whole)).await {
                Ok(info) => identity.count_replicas(&info),
                Err(failure) => tracing::debug!(
                    target: "lockdog::server",
                    %failure, "the replicas could not be counted"
                ),
            }
        }
        let following = identity.replicas();
        let others = identity.lost_replicas(now);
        match acker.known.lock().behind {
            // An earlier acquire waited for the other replicas without success, so this one does not wait.
            Some(behind) if now < behind.until => {
                let count = following.min(behind.acknowledged);
                let others = (count < following || others) && !behind.forbidden;
                AwaitedReplicas { count, others }
            }
            _ => AwaitedReplicas {
                count: following,
                others,
            },
        }
    }

    /// Asks the master which replicas follow it, on the connection for `WAIT`. Without replicas no `WAIT` is sent, so no
    /// other command would detect that this connection is broken or silent.
    async fn ask_followers(
        &self,
        on: &Connection,
        limit: Duration,
        is_whole: bool,
    ) -> Result<Value, Failure> {
        let acker = self.acker();
        let clock = &acker.context.clock;
        let until = clock.now() + limit;
        // A connection that is opened now leaves the question less than the whole time, so it does not count as silent.
        // Otherwise each question to a distant server would open another one, and none would be answered.
        let kept = acker.slot.current().filter(|_| is_whole);
        let mut is_first = true;
        loop {
            let left = until.since(clock.now());
            let opened = tokio::time::timeout(left, self.ack_connection(on, left)).await;
            let connection = opened.unwrap_or_else(|_| Err(Failure::silent(limit)))?;
            let left = until.since(clock.now());
            let answer = connection.send(&followers::question(), left).await;
            let is_broken = matches!(answer, Err(Failure::Broken(_)));
            let is_silent = matches!(answer, Err(Failure::Silent { .. }))
                && kept.as_ref().is_some_and(|kept| kept.is(&connection));
            if is_broken || is_silent {
                acker.slot.remove(&connection);
            }
            // The server may have closed the connection because it was idle, so a new one is tried.
            if !is_broken || !std::mem::replace(&mut is_first, false) {
                return answer;
            }
        }
    }

    /// Records how many acknowledged, so that later locks do not wait for the others each time.
    pub(super) fn record(&self, outcome: &AckResult, replicas: Replicas, now: Moment) {
        let mut known = self.acker().known.lock();
        let (acknowledged, required) = match outcome {
            Ok(count) => (count.acknowledged, count.required),
            // This failure says nothing about the replicas.
            Err(failure) if failure.passes() || matches!(failure, Failure::Unsent(_)) => return,
            Err(_) => (0, replicas.of(0)),
        };
        let before = known.behind;
        if acknowledged >= required {
            // The round may not have waited for the replicas that were behind. Then they still count as
            // behind.
            if before.is_some_and(|before| required > before.acknowledged) {
                known.behind = None;
                // The user's log subscriber may block.
                drop(known);
                tracing::debug!(
                    target: "lockdog::server",
                    server = self.address(),
                    acknowledged,
                    "the replicas acknowledge again"
                );
            }
            return;
        }
        // The other callers of this round have recorded the same.
        if before.is_some_and(|before| now < before.until && acknowledged >= before.acknowledged) {
            return;
        }
        let pause = before.map_or(A_SECOND, |before| (before.pause * 2).min(HALF_A_MINUTE));
        known.behind = Some(Behind {
            acknowledged,
            until: now + pause,
            pause,
            forbidden: outcome.as_ref().is_err_and(Failure::is_forbidden),
        });
        drop(known);
        let is_news = before.is_none();
        let failure = outcome.as_ref().err();
        if is_news && !failure.is_some_and(is_unknown_command) {
            let failure = failure.map(tracing::field::display);
            tracing::warn!(
                target: "lockdog::server",
                server = self.address(),
                acknowledged,
                expected = required,
                failure,
                "replicas do not acknowledge locks in time; granting locks anyway"
            );
        }
    }

    pub(super) fn note_unknown(&self, on: &Connection, failure: &Failure) {
        let mut known = self.acker().known.lock();
        let is_news = known
            .unknown
            .as_ref()
            .is_none_or(|(server, _)| *server != on.server_run());
        known.unknown = Some((on.server_run(), failure.clone()));
        drop(known);
        if is_news {
            tracing::warn!(
                target: "lockdog::server",
                server = self.address(),
                %failure,
                "the server does not support WAIT or WAITAOF"
            );
        }
    }
}

const A_SECOND: Duration = Duration::from_secs(1);
const HALF_A_MINUTE: Duration = Duration::from_secs(30);
