//! Which reply belongs to which command of a connection.
//!
//! Replies come in the order of the commands. Three things break that simple rule: messages come
//! unasked, so does the end of a sharded subscription whose slot moves away, and a subscription is
//! answered once per channel.

use std::collections::{BTreeSet, VecDeque};

use crate::support::proxy::gate::Gate;
use crate::support::proxy::rules::Rule;
use crate::support::resp::Reply;

/// The treatment of a reply.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// The proxy made the reply, so the server will not send one.
    Canned(Rule, Vec<u8>),
    Cut(Rule),
    Deliver,
    /// It is delivered, and shows that the request this gate held has been executed.
    DeliverPassed(Rule, Gate),
    /// It is delivered, and then these bytes go to the server again through the gate.
    DeliverThenReplay(Rule, Gate, Vec<u8>),
    Hold(Rule, Gate),
    Silence(Rule),
    Swallow(Rule),
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    pending: VecDeque<Pending>,
    resp3: bool,
    subscriptions: BTreeSet<(String, String)>,
}

impl Answers {
    /// Records a command before it is sent. Returns the replies that are due to the client now.
    pub(super) fn expect(&mut self, args: &[String], fate: Fate) -> Vec<(Vec<u8>, Fate)> {
        let name = args[0].to_ascii_lowercase();
        if name == "hello" && args.get(1).is_some_and(|version| version == "3") {
            self.resp3 = true;
        }
        let frames = self.confirmations(&name, &args[1..]);
        self.pending.push_back(Pending {
            collected: Vec::new(),
            fate,
            frames: frames.unwrap_or(1),
            confirms: frames.map(|_| name),
        });
        self.canned()
    }

    /// Takes a reply from the server. Returns the treatment of this reply and of those behind it.
    pub(super) fn arrived(&mut self, reply: &Reply, bytes: Vec<u8>) -> Vec<(Vec<u8>, Fate)> {
        let unasked = self.is_unasked(reply);
        let Some(head) = self.pending.front_mut().filter(|_| !unasked) else {
            return vec![(bytes, Fate::Deliver)];
        };
        // An error is the one answer to a subscription of any size.
        head.frames = if reply.kind == b'-' {
            0
        } else {
            head.frames - 1
        };
        head.collected.extend(bytes);
        if head.frames > 0 {
            // Messages may follow the first confirmation at once, so an untouched one may not wait
            // for the last.
            return match head.fate {
                Fate::Deliver => vec![(std::mem::take(&mut head.collected), Fate::Deliver)],
                _ => Vec::new(),
            };
        }
        let done = self.pending.pop_front().expect("it was just looked at");
        let mut due = vec![(done.collected, done.fate)];
        due.extend(self.canned());
        due
    }

    fn canned(&mut self) -> Vec<(Vec<u8>, Fate)> {
        let mut due = Vec::new();
        while let Some(Pending {
            fate: Fate::Canned(..),
            ..
        }) = self.pending.front()
        {
            let head = self.pending.pop_front().expect("it was just looked at");
            due.push((head.collected, head.fate));
        }
        due
    }

    /// How many confirmations a command about subscriptions gets; `None` for any other command.
    fn confirmations(&mut self, name: &str, channels: &[String]) -> Option<usize> {
        // The letter before the word is the kind: none for plain channels, `p` for patterns, `s` for shards; `un`
        // follows it.
        let prefix = name.strip_suffix("subscribe")?;
        let kind = prefix.strip_suffix("un").unwrap_or(prefix);
        let leaves = kind != prefix;
        let entry = |channel: &String| (kind.to_owned(), channel.clone());
        if !leaves {
            self.subscriptions.extend(channels.iter().map(entry));
            return Some(channels.len());
        }
        if channels.is_empty() {
            let before = self.subscriptions.len();
            self.subscriptions.retain(|(other, _)| other != kind);
            // Leaving everything is confirmed once even when there was nothing to leave.
            return Some((before - self.subscriptions.len()).max(1));
        }
        for channel in channels {
            self.subscriptions.remove(&entry(channel));
        }
        Some(channels.len())
    }

    fn is_unasked(&self, reply: &Reply) -> bool {
        let kind = reply.texts.first().map_or("", String::as_str);
        let expected = self.pending.front().and_then(|it| it.confirms.as_deref());
        match reply.kind {
            b'>' => expected != Some(kind),
            // With RESP2 a message looks like any array, but a subscribed connection gets no other
            // array of this form.
            b'*' if !self.resp3 => match kind {
                "message" | "pmessage" | "smessage" => self.may_get_messages(),
                "sunsubscribe" => expected != Some(kind) && self.may_get_messages(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Also true after the client asked to leave, until the server has confirmed it.
    fn may_get_messages(&self) -> bool {
        !self.subscriptions.is_empty()
            || self.pending.front().is_some_and(|it| it.confirms.is_some())
    }
}

#[derive(Debug)]
struct Pending {
    collected: Vec<u8>,
    /// The name of a command about subscriptions, which is what its confirmations begin with.
    confirms: Option<String>,
    fate: Fate,
    frames: usize,
}
