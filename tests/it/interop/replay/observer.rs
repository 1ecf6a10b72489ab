//! One server of a replay: its keys, the commands that it ran, and the messages that were published there.

use std::time::Duration;

use super::facts::{
    Expiries, Expiry, Place, at, hash_text, is_queue, is_side_key, key_text, list_text, lock_of,
    message_text, places_text,
};
use super::monitor::{Line, expiry_changes, replicated_changes};
use super::tokens::{Tokens, is_counter};
use crate::support::redis::{Redis, WAITING};
use crate::support::tap::{Messages, Monitor};
use crate::support::{RedisServer, eventually};

pub(super) struct Observer {
    /// The recorded name.
    pub(super) name: &'static str,
    pub(super) redis: Redis,
    /// The recorded text instead of the keys of a server that does not answer.
    absent: Option<&'static str>,
    is_replica: bool,
    /// For a replica that follows it.
    master: Option<Redis>,
    messages: Messages,
    monitor: Monitor,
    lines: Vec<Line>,
    /// The number of entries of earlier steps.
    lines_before: usize,
    messages_before: usize,
    marks: usize,
}

impl Observer {
    pub(super) async fn start(
        name: &'static str,
        server: &RedisServer,
        master: Option<Redis>,
    ) -> Self {
        let redis = server.redis().await;
        Self {
            name,
            absent: None,
            is_replica: master.is_some(),
            master,
            messages: redis.messages("*").await,
            monitor: redis.monitor().await,
            redis,
            lines: Vec::new(),
            lines_before: 0,
            messages_before: 0,
            marks: 0,
        }
    }

    /// From now on the server does not answer. `recorded` replaces its keys.
    pub(super) fn set_absent(&mut self, recorded: &'static str) {
        self.absent = Some(recorded);
    }

    /// From now on it is not a replica of a running master.
    pub(super) fn end_replication(&mut self) {
        self.master = None;
    }

    pub(super) async fn begin_step(&mut self) {
        self.mark().await;
        self.lines_before = self.lines.len();
        self.messages_before = self.messages.seen().len();
    }

    /// Waits until the recorders have received everything that happened before.
    pub(super) async fn mark(&mut self) {
        if self.absent.is_some() {
            return;
        }
        self.marks += 1;
        // The servers of one deployment forward messages to each other.
        let mark = format!("{} {}", self.name, self.marks);
        // The stream from its master comes before the mark that it receives from its master.
        let at = self.master.as_ref().unwrap_or(&self.redis);
        at.cmd(&["PUBLISH", MARKS, &mark]).await;
        let (messages, monitor) = (&self.messages, &self.monitor);
        eventually(
            Duration::from_secs(20),
            "the recorders saw the mark",
            async || {
                let has_message = messages
                    .seen()
                    .iter()
                    .any(|(channel, text)| channel == MARKS && *text == mark);
                let line = format!("\"PUBLISH\" \"{MARKS}\" \"{mark}\"");
                has_message && monitor.seen().iter().any(|seen| seen.ends_with(&line))
            },
        )
        .await;
        let lines = self.monitor.seen();
        let new = lines[self.lines.len()..].iter();
        let new = new.map(|line| Line::parse(line).expect("a line of MONITOR"));
        self.lines.extend(new);
    }

    /// The commands that it ran in this step, up to the last mark.
    pub(super) fn ran(&self) -> &[Line] {
        &self.lines[self.lines_before..]
    }

    /// The newest call of a script, as it was sent.
    pub(super) fn newest(&self, script: &str) -> Option<&[String]> {
        let newest = self.lines.iter().rfind(|line| line.runs(script));
        newest.map(|line| &*line.args)
    }

    pub(super) fn expiry_changes(&self) -> Vec<Expiry> {
        if self.is_replica {
            replicated_changes(self.name, self.ran())
        } else {
            expiry_changes(self.name, self.ran())
        }
    }

    /// The messages of this step. A message that wakes one client of a waiting list is shown as the recorded one,
    /// which wakes all clients.
    pub(super) fn published(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for (channel, message) in &self.messages.seen()[self.messages_before..] {
            if let Some(rest) = channel.strip_prefix(WAITING) {
                if message == "1" {
                    let name = rest.rsplit_once(':').map_or(rest, |(name, _client)| name);
                    let channel = format!("redisson_lock__channel:{name}");
                    texts.push(message_text(&channel, "0", false));
                }
            } else if channel != MARKS {
                texts.push(message_text(channel, message, false));
            }
        }
        // No client can subscribe to all sharded channels.
        let sharded = self.ran().iter().filter_map(Line::sharded_message);
        texts.extend(sharded.map(|(channel, message)| message_text(channel, message, true)));
        texts
    }

    pub(super) async fn places(&self) -> Vec<Place> {
        if self.absent.is_some() {
            return Vec::new();
        }
        let keys = self.redis.all_keys().await;
        keys.iter().map(|key| Place::new(self.name, key)).collect()
    }

    /// Its keys. `recorded` writes a field, or a key with a field, in the form of the recording.
    pub(super) async fn keys(
        &self,
        places: &[Place],
        expiries: &Expiries,
        recorded: impl Fn(&str) -> String,
        tokens: &Tokens,
    ) -> Vec<String> {
        if let Some(absent) = self.absent {
            return vec![format!("{} {absent}", self.name)];
        }
        let mut texts = Vec::new();
        let is_shown = |place: &&Place| place.server == self.name && !is_side_key(&place.key);
        for place in places.iter().filter(is_shown) {
            // A key may expire between two queries. The next query shows that.
            if let Some(text) = self.key_facts(place, expiries, &recorded, tokens).await {
                texts.push(text);
            }
        }
        texts
    }

    /// What only lockdog has: the fields of the present waiters in their order, and those of the acquires
    /// in the ledgers of semaphores. The marks of calls are not shown, because they expire.
    pub(super) async fn side_keys(
        &self,
        places: &[Place],
        recorded: impl Fn(&str) -> String,
    ) -> Vec<String> {
        let mut texts = Vec::new();
        // The list of the waiting clients says only who is woken first.
        let is_side = |place: &&Place| {
            place.server == self.name && is_side_key(&place.key) && !place.key.starts_with(WAITING)
        };
        for place in places.iter().filter(is_side) {
            let kind: String = self.redis.ask(&["TYPE", &place.key]).await;
            if kind != "zset" {
                continue;
            }
            let what = match place.key.starts_with(LEDGERS) {
                true => "ledger",
                false => "present",
            };
            let fields: Vec<String> = self.redis.ask(&["ZRANGE", &place.key, "0", "-1"]).await;
            let fields = fields.iter().filter(|field| !field.is_empty());
            let mut fields: Vec<String> = fields.map(|field| recorded(field)).collect();
            fields.sort();
            if !fields.is_empty() {
                let text = format!("{what} {}", list_text(&fields));
                texts.push(at(self.name, &text));
            }
        }
        texts
    }

    async fn key_facts(
        &self,
        place: &Place,
        expiries: &Expiries,
        recorded: impl Fn(&str) -> String,
        tokens: &Tokens,
    ) -> Option<String> {
        let name = &place.key;
        let kind: String = self.redis.ask(&["TYPE", name]).await;
        let content = match kind.as_str() {
            "none" => return None,
            "hash" => {
                let hash = self.redis.hash(name).await.into_iter();
                let fields = hash.map(|(field, count)| (recorded(&field), count));
                hash_text(&fields.collect())
            }
            "list" => {
                let items: Vec<String> = self.redis.ask(&["LRANGE", name, "0", "-1"]).await;
                list_text(
                    &items
                        .iter()
                        .map(|field| recorded(field))
                        .collect::<Vec<_>>(),
                )
            }
            "zset" => {
                let range = ["ZRANGE", name, "0", "-1", "WITHSCORES"];
                let scores: Vec<(String, f64)> = self.redis.ask(&range).await;
                let left = self.redis.pttl(lock_of(name)).await.max(0) as f64;
                let time: Vec<f64> = self.redis.ask(&["TIME"]).await;
                let now = time[0] * 1_000.0 + time[1] / 1_000.0;
                let good_for =
                    |(field, moment): (String, f64)| (recorded(&field), moment - now - left);
                places_text(&scores.into_iter().map(good_for).collect::<Vec<_>>())
            }
            _ => {
                let content: String = self.redis.ask(&["GET", name]).await;
                if is_counter(name) {
                    tokens.shown(&content)
                } else {
                    content
                }
            }
        };
        let pttl = self.redis.pttl(name).await;
        let mut expiry = expiries.text(place);
        // The expiry from the commands is the one on the server.
        let is_as_set = match expiries.of(place) {
            Some(set) => (0..=set).contains(&pttl),
            None => pttl == -1 || is_queue(name),
        };
        if !is_as_set {
            expiry = format!("{expiry}, really {pttl}");
        }
        Some(key_text(
            self.name,
            &recorded(name),
            &kind,
            &content,
            &expiry,
        ))
    }
}

const LEDGERS: &str = "lockdog_ledger:";

/// The mark up to which the recorders read.
const MARKS: &str = "replay:marks";
