//! Our side of a replay: clients for the recorded clients, owners for the recorded threads, and what
//! the server says after each step.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use lockdog::Client;
use redis::Value;
use tokio::task::JoinHandle;

use super::QUIET;
use super::calls::{Call, What, thread_number};
use super::differences::expected;
use super::facts::{Expiries, Facts, hash_text, key_text, renewals};
use super::monitor::{Line, UNLOCK, expiry_changes};
use super::recording::{Scenario, Step, came_back_text};
use crate::kinds::{self, Kind};
use crate::support::redis::Redis;
use crate::support::tap::{Messages, Monitor};
use crate::support::{RedisServer, eventually};

pub(super) struct Ours {
    kind: &'static Kind,
    clients: BTreeMap<char, Client>,
    /// Which of our clients and owners plays a recorded thread.
    cast: HashMap<String, (char, u64)>,
    waiting: BTreeMap<usize, JoinHandle<String>>,
    /// Who made the call of a step.
    callers: HashMap<usize, String>,
    answer: String,
    came_back: Vec<(usize, String)>,
    step: usize,
    /// See [`Scenario::slower`].
    slower: u32,
    expiries: Expiries,
    before: Expiries,
    lines: Vec<Line>,
    lines_before: usize,
    messages_before: usize,
    marks: usize,
    unlocks: HashMap<usize, Vec<String>>,
    messages: Messages,
    monitor: Monitor,
    redis: Redis,
    _server: RedisServer,
}

impl Ours {
    pub(super) async fn start(scenario: &Scenario) -> Self {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        let mut clients = BTreeMap::new();
        for name in ['A', 'B'] {
            let mut builder = Client::builder()
                .url(server.url())
                .watchdog_lease(scenario.watchdog_lease())
                // So long that no timer of ours ends a step of the recording in which nothing happens.
                .poll_cap(Duration::from_millis(2_500));
            if scenario.name == "name_mapper" {
                builder = builder.name_mapper(|name| format!("app:{name}"));
            }
            clients.insert(name, builder.build().await.expect("the server is there"));
        }
        let ours = Self {
            kind: scenario.kind,
            clients,
            cast: HashMap::new(),
            waiting: BTreeMap::new(),
            callers: HashMap::new(),
            answer: String::new(),
            came_back: Vec::new(),
            step: 0,
            slower: scenario.slower(),
            expiries: Expiries::default(),
            before: Expiries::default(),
            lines: Vec::new(),
            lines_before: 0,
            messages_before: 0,
            marks: 0,
            unlocks: HashMap::new(),
            messages: redis.messages("*").await,
            monitor: redis.monitor().await,
            redis,
            _server: server,
        };
        if scenario.name == "watchdog_timers_pile_up" {
            for _ in 0..6 {
                for call in ["lock.lock()", "lock.unlock()"] {
                    let answer = Call::parse(scenario.kind, call)
                        .make(ours.clients[&'A'].clone(), 1)
                        .await;
                    assert_eq!(answer, "void");
                }
            }
        }
        ours
    }

    /// Does what the recorded step does.
    pub(super) async fn perform(&mut self, scenario: &Scenario, step: &Step) {
        self.tidy(scenario, step).await;
        self.step = step.number;
        self.came_back.clear();
        self.answer = match step.who.as_str() {
            "" => {
                self.let_time_pass(step).await;
                String::new()
            }
            "redis-cli" if step.command.is_empty() => {
                // Our unlock instead of theirs: the newest one, byte for byte.
                let newest = self.unlocks.keys().max().expect("an unlock was seen");
                let args: Vec<&str> = self.unlocks[newest].iter().map(String::as_str).collect();
                text(&self.redis.cmd(&args).await)
            }
            "redis-cli" => {
                let args: Vec<&str> = step.command.iter().map(String::as_str).collect();
                text(&self.redis.cmd(&args).await)
            }
            who => {
                let listed = expected(&scenario.name, step.number);
                let waits = listed.iter().find(|it| it.aspect == "answer");
                let waits = waits.map_or(step.waits, |it| it.ours == WAITS);
                self.call(who, step, waits).await
            }
        };
    }

    /// What the recording does not show: its clean-ups, where a later step needs them.
    async fn tidy(&mut self, scenario: &Scenario, step: &Step) {
        let left_out =
            scenario.name == "watchdog_one_lock" && step.call.contains("no renewal any more");
        let needed = step.found_it_free
            && self
                .redis
                .exists(&Call::parse(scenario.kind, &step.call).lock)
                .await;
        if left_out || needed {
            self.release_everything().await;
        }
        self.mark().await;
        self.before = self.expiries.clone();
        self.lines_before = self.lines.len();
        self.messages_before = self.messages.seen().len();
    }

    async fn let_time_pass(&mut self, step: &Step) {
        if let Some(pause) = step.pause() {
            tokio::time::sleep(pause * self.slower).await;
        } else if step.call.contains("interrupted") {
            // Our cancellation: the future is dropped.
            let (waiter, task) = self.waiting.pop_first().expect("somebody waits");
            task.abort();
            let ended = task.await.expect_err("it still waited");
            assert!(ended.is_cancelled());
            self.came_back.push((waiter, "cancelled".to_owned()));
        }
    }

    /// `waits`: no answer is expected before a later step.
    async fn call(&mut self, who: &str, step: &Step, waits: bool) -> String {
        let actor = self.actor(who);
        self.callers.insert(step.number, who.to_owned());
        let call = Call::parse(self.kind, &step.call).slowed(self.slower);
        if let What::Plain(args) = &call.what {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            self.redis.cmd(&args).await;
        }
        let client = self.clients[&actor.0].clone();
        let mut task = tokio::spawn(call.make(client, actor.1));
        let patience = if waits {
            LOOKS_LIKE_WAITING
        } else {
            NEVER_WAITS
        };
        match tokio::time::timeout(patience, &mut task).await {
            Ok(answer) => answer.expect("the call does not panic"),
            Err(_) => {
                self.waiting.insert(step.number, task);
                WAITS.to_owned()
            }
        }
    }

    /// `B <t2>` is our client B and its owner number 2, unless waiters changed places. A client's
    /// own step has no thread.
    fn actor(&mut self, who: &str) -> (char, u64) {
        let client = who.chars().next().expect("somebody calls");
        let thread = who.split(' ').nth(1).map_or(0, thread_number);
        *self.cast.entry(who.to_owned()).or_insert((client, thread))
    }

    /// Looks again and again until it sees what is wanted; what it saw last if that takes long.
    pub(super) async fn settle_on(&mut self, step: &Step, wanted: &Facts) -> Facts {
        let began = Instant::now();
        loop {
            tokio::time::sleep(QUIET).await;
            let seen = self.look(step).await;
            if seen == *wanted || began.elapsed() > SETTLES_WITHIN {
                return seen;
            }
        }
    }

    async fn look(&mut self, step: &Step) -> Facts {
        self.collect_answers().await;
        self.change_places(step);
        self.mark().await;
        self.expiries = self.before.clone();
        let changes = expiry_changes(&self.lines[self.lines_before..]);
        for (_, change) in &changes {
            self.expiries.apply(self.step, change);
        }
        let names = self.redis.keys().await;
        self.expiries.keep(&names);
        let mut keys = Vec::new();
        for name in &names {
            // A key can expire between two questions; then the next look sees it.
            if let Some(text) = self.key_facts(name).await {
                keys.push(text);
            }
        }
        let mut published = Vec::new();
        for (channel, message) in &self.messages.seen()[self.messages_before..] {
            if channel != MARKS {
                published.push(format!("{channel} <- {message}"));
            }
        }
        let mut facts = Facts::default();
        facts.set("answer", self.answer.clone());
        facts.set("came back", came_back_text(&self.came_back));
        facts.set("published", published.join(", "));
        facts.set("keys", keys.join(", "));
        if step.who.is_empty() {
            facts.set(
                "renewals",
                renewals(changes.iter().map(|(_, change)| change)),
            );
        } else {
            facts.set("renewals", "");
        }
        facts
    }

    async fn key_facts(&mut self, name: &str) -> Option<String> {
        let kind: String = self.redis.ask(&["TYPE", name]).await;
        let content = match kind.as_str() {
            "none" => return None,
            "hash" => {
                let hash = self.redis.hash(name).await;
                let fields = hash
                    .into_iter()
                    .map(|(field, count)| (self.recorded(&field), count));
                hash_text(&fields.collect())
            }
            _ => self.redis.ask(&["GET", name]).await,
        };
        let pttl = self.redis.pttl(name).await;
        let mut expiry = self.expiries.text(name);
        // The expiry told by the commands is the one that the server has.
        if !self
            .expiries
            .of(name)
            .map_or(pttl == -1, |set| (0..=set).contains(&pttl))
        {
            expiry = format!("{expiry}, really {pttl}");
        }
        Some(key_text(name, &kind, &content, &expiry))
    }

    /// Our field as the recording writes it: `<uuid1>:<t2>`; the hold's number is left away.
    fn recorded(&self, field: &str) -> String {
        let own = self.clients.iter().find_map(|(name, client)| {
            let task = field
                .strip_prefix(&client.id().to_string())?
                .strip_prefix(':')?;
            let (id, hold) = task.split_once('.').expect("a hold has a number");
            hold.parse::<u64>().expect("a hold has a number");
            Some((*name, id.parse::<u64>().expect("our owners are numbers")))
        });
        let Some((client, id)) = own else {
            return field.to_owned();
        };
        let plays = self.cast.iter().find(|(_, actor)| **actor == (client, id));
        let (client, thread) = match plays {
            Some((who, _)) => who
                .split_once(' ')
                .map(|(c, t)| (c.to_owned(), t.to_owned())),
            None => Some((client.to_string(), id.to_string())),
        }
        .expect("a thread has a name");
        format!("<uuid{}>:{thread}", if client == "A" { 1 } else { 2 })
    }

    async fn collect_answers(&mut self) {
        let done: Vec<usize> = self
            .waiting
            .iter()
            .filter(|(_, task)| task.is_finished())
            .map(|(step, _)| *step)
            .collect();
        for step in done {
            let task = self.waiting.remove(&step).expect("it is there");
            self.came_back
                .push((step, task.await.expect("the call does not panic")));
        }
    }

    /// Which of several waiters wins a wake-up is nobody's promise: ours then plays the other's part.
    fn change_places(&mut self, step: &Step) {
        let ([(theirs, _)], [(ours, _)]) = (&step.came_back[..], &mut self.came_back[..]) else {
            return;
        };
        if theirs == ours {
            return;
        }
        let Some(task) = self.waiting.remove(theirs) else {
            return;
        };
        self.waiting.insert(*ours, task);
        let (winner, planned) = (self.callers[ours].clone(), self.callers[theirs].clone());
        *ours = *theirs;
        let (a, b) = (self.cast[&winner], self.cast[&planned]);
        self.cast.insert(winner, b);
        self.cast.insert(planned, a);
    }

    /// Waits until recorders have everything that happened up to now.
    async fn mark(&mut self) {
        self.marks += 1;
        let mark = self.marks.to_string();
        self.redis.cmd(&["PUBLISH", MARKS, &mark]).await;
        let (messages, monitor) = (&self.messages, &self.monitor);
        eventually(
            Duration::from_secs(20),
            "the recorders saw the mark",
            async || {
                let heard = messages
                    .seen()
                    .iter()
                    .any(|(channel, text)| channel == MARKS && *text == mark);
                let line = format!("\"PUBLISH\" \"{MARKS}\" \"{mark}\"");
                heard && monitor.seen().iter().any(|seen| seen.ends_with(&line))
            },
        )
        .await;
        let lines = self.monitor.seen();
        let new = lines[self.lines.len()..].iter();
        for line in new.map(|line| Line::parse(line).expect("a line of MONITOR")) {
            if line.runs(UNLOCK) {
                self.unlocks.insert(self.lines.len(), line.args.clone());
            }
            self.lines.push(line);
        }
    }

    async fn release_everything(&mut self) {
        for client in self.clients.values() {
            for hold in client.holds() {
                for kind in kinds::ALL {
                    let lock = kind.lock(client, &hold.lock);
                    // Of each kind, until it is not held.
                    while lock.unlock().owner(&hold.owner).await.is_ok() {}
                }
            }
        }
        assert_eq!(self.redis.keys().await, Vec::<String>::new());
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Okay => "OK".to_owned(),
        Value::Nil => "nil".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The answer to a call that has none yet.
const WAITS: &str = "waits";

/// A call that waits has made its first attempts by then; one that is slower waits all the same.
const LOOKS_LIKE_WAITING: Duration = Duration::from_millis(250);
const NEVER_WAITS: Duration = Duration::from_secs(20);
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// Where we tell the recorders how far to read.
const MARKS: &str = "replay:marks";
