//! Sends a script until it is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::Connection;
use super::failure::{Failure, Remedy};
use super::node::Node;
use super::nodes::{Nodes, Server};
use super::route::Route;
use super::sent::{Sent, TimeBox};
use crate::background::Background;
use crate::clock::Moment;

impl Server {
    /// Sends a script on the callers' connection until it is answered, cannot succeed, or `until`
    /// is reached. It retries after a transient error reply. `script` makes the command for a given
    /// connection, either with the whole text or by digest.
    ///
    /// # Cancel safety
    ///
    /// `sent` records what may have run.
    pub(crate) async fn call(
        &self,
        key: &str,
        script: impl Fn(bool, &Connection) -> Cmd,
        time: TimeBox,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        let TimeBox { mut now, until } = time;
        let mut pause = SHORTEST_PAUSE;
        let mut whole = false;
        let mut refusal = None;
        let mut route = None;
        let mut hops = 0;
        loop {
            let limit = self.limit(now, until);
            let there = match route.take() {
                Some(route) => Ok(route),
                // No redirection: the slot map names the server.
                None => {
                    sent.moved = false;
                    self.find(key, limit).await
                }
            };
            let answer = match &there {
                Ok(there) => {
                    let script = |on: &Connection| script(whole, on);
                    self.call_once(there, script, now, until, sent).await
                }
                Err(failure) => Err(failure.clone()),
            };
            let failure = match answer {
                Ok(value) => return Ok(value),
                // The server does not know the script, and ran nothing: send the text, without a pause.
                Err(Failure::Refused { code, .. }) if code == "NOSCRIPT" && !whole => {
                    whole = true;
                    now = self.context.clock.now();
                    continue;
                }
                Err(failure) => failure,
            };
            match failure.remedy() {
                Remedy::GiveUp => return Err(self.failed(failure, there.ok(), sent)),
                Remedy::Reconnect => {
                    // A command that could not be sent says nothing about the connection of the
                    // previous sending.
                    let is_its = !matches!(failure, Failure::Unsent(_));
                    if let Some(broken) = sent.on.as_ref().filter(|_| is_its) {
                        self.abandon(broken);
                    }
                }
                // The server answers, so the connection is good.
                Remedy::Wait => {}
            }
            route = self.redirected(&failure, sent.on.as_ref());
            sent.moved |= route.as_ref().is_some_and(|route| !route.asking);
            // A redirection needs no pause. Further ones do, because the nodes may not agree yet.
            if route.is_some() && hops < HOPS {
                hops += 1;
                now = self.context.clock.now();
                continue;
            }
            let has_time = until.since(self.context.clock.now()) > pause * 2;
            if has_time {
                tracing::debug!(target: "lockdog::server", %failure, "retrying a command");
                tokio::time::sleep(pause).await;
            }
            now = self.context.clock.now();
            // A sending without time for its answer would only hide why the earlier ones failed. The
            // time is checked after the pause too, because it may last longer on a busy machine.
            if !has_time || until.since(now) <= pause / 2 {
                return Err(match (failure, refusal) {
                    (Failure::Unsent(_), Some(refusal)) => refusal,
                    (failure, _) => self.failed(failure, there.ok(), sent),
                });
            }
            // Kept for the end of the call: the server's refusal is more exact than a failed connection.
            if matches!(failure, Failure::Refused { .. }) {
                let node = there.as_ref().ok().map(|route| &route.node);
                refusal = Some(self.named(failure, node, sent));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// From now on, rejects calls that need no permit and are not for a shutdown.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The client has ended: closes all connections once no call waits for an answer on them, and opens no more.
    pub(crate) fn end(&self) {
        match &self.nodes {
            Nodes::One { node, .. } => node.end(),
            Nodes::Cluster(cluster) => cluster.end(),
        }
    }

    /// The client's shutdown itself ends calls that need permits. Other calls end here.
    fn may_send(&self, sent: &Sent) -> Result<(), Failure> {
        if sent.permits.is_empty() && !sent.in_shutdown && self.closed.load(Ordering::Acquire) {
            return Err(Failure::Closed);
        }
        Ok(())
    }

    async fn call_once(
        &self,
        route: &Route,
        command: impl Fn(&Connection) -> Cmd,
        mut now: Moment,
        until: Moment,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        sent.was_sent = false;
        if let Some(addressee) = &sent.addressee {
            addressee.set(route);
        }
        let connection = match route.node.current() {
            Some(current) => current,
            None => {
                self.may_send(sent)?;
                let opened = route.node.connection(self.limit(now, until)).await?;
                now = self.context.clock.now();
                opened
            }
        };
        // Checked again here: the future may have been abandoned while it waited for the
        // connection.
        self.may_send(sent)?;
        let limit = self.limit(now, until);
        let on = route.on(connection);
        if !sent.permits.iter().all(|permit| permit.leaves(&on)) {
            return Err(Failure::taken_over());
        }
        sent.repeated |= sent.unanswered;
        sent.first = sent.first.or(Some(now));
        sent.last = Some(now);
        sent.unanswered = true;
        sent.was_sent = true;
        let on = sent.on.insert(on);
        let command = command(on);
        let answer = on.send(&command, limit).await;
        sent.unanswered = answer.as_ref().is_err_and(Failure::is_ambiguous);
        answer
    }

    /// The failure of a whole call, with the server's name: see [`Server::named`].
    fn failed(&self, failure: Failure, route: Option<Route>, sent: &mut Sent) -> Failure {
        sent.failed_at = route.map(|route| route.node);
        self.named(failure, sent.failed_at.as_ref(), sent)
    }

    /// Adds the server's address to the failure, if the deployment has several servers. It is the
    /// server that was asked, which may differ from the one that the map names (design: invariant
    /// 15).
    fn named(&self, failure: Failure, node: Option<&Arc<Node>>, sent: &Sent) -> Failure {
        let asked = sent.on.as_ref().filter(|_| sent.was_sent);
        match (asked.and_then(Connection::server), node) {
            (Some(server), _) => failure.at(server),
            // No connection could be opened. With sentinels the failure has the address already, or
            // is about the sentinels.
            (None, Some(node)) if self.is_cluster() => failure.at(&node.address()),
            _ => failure,
        }
    }

    /// Abandons the connection of a call that was not answered and is not settled. The connection
    /// may be half open, and no later command would detect it.
    pub(crate) fn abandon_unanswered<T>(&self, answer: &Result<T, Failure>, sent: &Sent) {
        if let (Err(Failure::Silent { .. }), Some(silent)) = (answer, &sent.on) {
            self.abandon(silent);
        }
    }

    /// The time limit for a command that begins now.
    pub(crate) fn time_box(&self, now: Moment) -> TimeBox {
        TimeBox {
            now,
            until: now + self.command_timeout(),
        }
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.context.command_timeout
    }

    /// Runs what no caller's future may drive.
    pub(crate) fn background(&self) -> &Background {
        &self.context.background
    }

    /// One sending gets at most the command timeout, and at most the rest of the call's time.
    fn limit(&self, now: Moment, until: Moment) -> Duration {
        let left = until.since(now);
        self.command_timeout().min(left).max(SHORTEST_PAUSE)
    }
}

/// The maximum number of redirections that one call follows without a pause.
const HOPS: usize = 3;
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
