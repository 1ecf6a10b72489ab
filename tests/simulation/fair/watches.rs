//! The observers of an election (`Election::observe`): the reports of each stream, and their times.

use std::collections::HashMap;

use super::election::Shown;
use crate::simulation::plan;

/// A stream of a task.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct StreamId {
    pub(super) client: usize,
    pub(super) task: usize,
    pub(super) number: u64,
}

/// The times are in milliseconds.
pub(super) struct Watches {
    streams: HashMap<StreamId, Stream>,
    /// The leader, and the time since which it is the leader.
    leader: (Option<Shown>, u64),
    /// How long a stream may take to report another one.
    longest: u64,
    /// Whether the clients are subscribed to messages, and the time of the last published message.
    listens: bool,
    published: Option<u64>,
}

#[derive(Default)]
struct Stream {
    /// The time since which the stream is polled, if it is.
    polled: Option<u64>,
    has_paused: bool,
    last: Option<Option<Shown>>,
    term: u64,
}

/// The report of a stream.
pub(super) struct News {
    /// The stream reported another leader before.
    pub(super) is_change: bool,
    /// The stream was not polled for a while, or its call was cancelled.
    pub(super) is_resumed: bool,
}

impl Watches {
    pub(super) fn new(world: &plan::Plan) -> Self {
        Self {
            streams: HashMap::new(),
            leader: (None, 0),
            longest: world.poll_cap_ms + PAUSES_MS,
            listens: world.listens,
            published: None,
        }
    }

    pub(super) fn are_none(&self) -> bool {
        self.streams.is_empty()
    }

    /// A stream is polled from now on.
    pub(super) fn begin(&mut self, stream: StreamId, now: u64) {
        self.streams.entry(stream).or_default().polled = Some(now);
    }

    /// The stream is no longer polled, and has not returned.
    pub(super) fn pause(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.polled = None;
            stream.has_paused = true;
        }
    }

    /// A message about the leader is published.
    pub(super) fn note_published(&mut self, now: u64) {
        self.published = Some(now);
    }

    pub(super) fn die(&mut self, client: usize) {
        self.streams.retain(|stream, _| stream.client != client);
    }

    /// Each report differs from the last, and its term is not lower, unless the server shows an outdated one.
    pub(super) fn report(
        &mut self,
        id: StreamId,
        leader: Option<Shown>,
        is_outdated: bool,
    ) -> Result<News, String> {
        let stream = self.streams.entry(id).or_default();
        stream.polled = None;
        if stream.last.as_ref() == Some(&leader) {
            return Err(format!("{id:?} reported {leader:?} twice"));
        }
        let term = leader.as_ref().and_then(Shown::term);
        if term.is_some_and(|term| term < stream.term) && !is_outdated {
            let last = stream.term;
            return Err(format!("{id:?} reported {leader:?} after the term {last}"));
        }
        stream.term = stream.term.max(term.unwrap_or(0));
        Ok(News {
            is_change: stream.last.replace(leader).is_some(),
            is_resumed: std::mem::take(&mut stream.has_paused),
        })
    }

    /// The check without faults: a stream that is polled reports another leader soon.
    pub(super) fn look(&mut self, leader: Option<Shown>, now: u64) -> Result<(), String> {
        if self.leader.0 != leader {
            self.leader = (leader, now);
        }
        let (leader, since) = &self.leader;
        let published = self.published.filter(|at| self.listens && at >= since);
        for (id, stream) in &self.streams {
            let Some(polled) = stream
                .polled
                .filter(|_| stream.last.as_ref() != Some(leader))
            else {
                continue;
            };
            let late = now - polled.max(*since);
            if late > self.longest {
                return Err(format!("{id:?} does not report {leader:?} for {late} ms"));
            }
            // The stream is subscribed from its second call on.
            let listens = |at: &u64| stream.last.is_some() && polled + PAUSES_MS <= *at;
            if let Some(at) = published.filter(listens)
                && now - at > PAUSES_MS
            {
                let late = now - at;
                return Err(format!("{id:?} has a message of {leader:?} for {late} ms"));
            }
        }
        Ok(())
    }
}

/// Two polls, and the pauses before them.
const PAUSES_MS: u64 = 300;
