//! Our side of a replay: clients for the recorded clients, owners for the recorded threads, and the state
//! of the servers after each step.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockdog::{AnyLock, Client, MultiLock};
use redis::Value;
use tokio::task::JoinHandle;

use super::QUIET;
use super::calls::{Call, Target};
use super::cast::Cast;
use super::deployment::{Deployment, Servers};
use super::differences::expected;
use super::facts::{Expiries, Expiry, Facts, Place, at, renewals};
use super::monitor::{Line, UNLOCK};
use super::observer::Observer;
use super::recorded_step::{Step, came_back_text, in_seconds};
use super::recording::Scenario;
use super::tokens::Tokens;
use crate::kinds;

pub(super) struct Ours<'a> {
    scenario: &'a Scenario,
    cast: Cast,
    tokens: Tokens,
    /// `multiLock` of the recording.
    several: Option<Arc<dyn AnyLock>>,
    waiting: BTreeMap<usize, JoinHandle<String>>,
    /// The callers by the number of the step.
    callers: HashMap<usize, String>,
    answer: String,
    came_back: Vec<(usize, String)>,
    asked: String,
    step: usize,
    expiries: Expiries,
    before: Expiries,
    observers: Vec<Observer>,
    servers: Servers,
}

impl<'a> Ours<'a> {
    pub(super) async fn start(scenario: &'a Scenario) -> Self {
        let servers = Servers::start(scenario.deployment).await;
        let mut cast = Cast::default();
        for name in scenario.deployment.clients() {
            cast.add(name, servers.client(scenario, name).await);
        }
        let mut several: Option<Arc<dyn AnyLock>> = None;
        if scenario.deployment == Deployment::Three {
            let lock = match &*scenario.name {
                "multi_lock_three_names_one_server" => three_names(&cast),
                _ => MultiLock::new(cast.clients().map(|client| client.lock("orders"))),
            };
            // The recorded clients had their connections and scripts before the first step, too.
            lock.lock()
                .await
                .expect("it is free")
                .unlock()
                .await
                .expect("it is held");
            several = Some(Arc::new(lock));
        }
        let mut observers = Vec::new();
        for (number, name) in scenario.deployment.servers().iter().enumerate() {
            let server = servers.all()[number];
            observers.push(Observer::start(name, server, servers.master_of(number)).await);
        }
        let ours = Self {
            scenario,
            cast,
            tokens: Tokens::of(scenario.kind),
            several,
            waiting: BTreeMap::new(),
            callers: HashMap::new(),
            answer: String::new(),
            came_back: Vec::new(),
            asked: String::new(),
            step: 0,
            expiries: Expiries::default(),
            before: Expiries::default(),
            observers,
            servers,
        };
        if scenario.name == "watchdog_timers_pile_up" {
            let client = ours.cast.client("A").expect("it is there");
            for _ in 0..6 {
                for call in ["lock.lock()", "lock.unlock()"] {
                    let call = Call::parse(scenario.kind, call);
                    let redis = ours.observers[0].redis.clone();
                    let answer = call.make(client.clone(), None, redis, 1).await;
                    assert_eq!(answer, "void");
                }
            }
        }
        ours
    }

    /// Does what the recorded step does.
    pub(super) async fn perform(&mut self, step: &Step) {
        if step.note.contains("DEBUG SLEEP") {
            self.freeze_replica();
        }
        self.tidy(step).await;
        self.step = step.number;
        self.came_back.clear();
        self.answer = if step.who.is_empty() {
            self.let_time_pass(step).await;
            String::new()
        } else if let Some(server) = step.cli_server() {
            self.run_command(server, step).await
        } else {
            let listed = expected(self.scenario, step.number);
            let waits = listed.iter().find(|it| it.aspect == "answer");
            let waits = waits.map_or(step.waits, |it| it.ours == WAITS);
            self.call(step, waits).await
        };
        if self.scenario.deployment != Deployment::One {
            // Before the test itself queries the servers.
            self.mark().await;
            self.asked = self.servers_where(Line::asks);
        }
    }

    /// Clean-ups that the recording omits, where a later step needs them.
    async fn tidy(&mut self, step: &Step) {
        let left_out =
            self.scenario.name == "watchdog_one_lock" && step.call.contains("no renewal any more");
        let mut needed = false;
        if let Some(server) = &step.found_it_free {
            let lock = Call::parse(self.scenario.kind, &step.call).lock;
            needed = self.places().await.contains(&Place::new(server, &lock));
        }
        if left_out || needed {
            self.release_everything().await;
        }
        for observer in &mut self.observers {
            observer.begin_step().await;
        }
        self.before = self.expiries.clone();
    }

    /// The recording's replica stays silent for the rest of the scenario.
    fn freeze_replica(&mut self) {
        let (number, replica) = (1, &mut self.observers[1]);
        replica.set_absent("server is asleep");
        self.servers.all()[number].pause();
    }

    async fn run_command(&mut self, server: &str, step: &Step) -> String {
        let mut observers = self.observers.iter_mut();
        let observer = observers.find(|observer| observer.name == server);
        let observer = observer.expect("it is recorded");
        if step.command.is_empty() {
            // Our unlock instead of Redisson's: the newest one, with the same bytes.
            let unlock = observer.newest(UNLOCK).expect("an unlock was seen");
            let args: Vec<&str> = unlock.iter().map(String::as_str).collect();
            return text(&observer.redis.cmd(&args).await);
        }
        let now: Vec<f64> = observer.redis.ask(&["TIME"]).await;
        let slower = f64::from(self.scenario.slower());
        let moment = |arg: &String| match in_seconds(arg) {
            Some(seconds) => format!("{:.0}", (now[0] + seconds * slower) * 1_000.0),
            None => arg.clone(),
        };
        let args: Vec<String> = step.command.iter().map(moment).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let reply = text(&observer.redis.cmd(&args).await);
        if args == ["REPLICAOF", "NO", "ONE"] {
            observer.end_replication();
        }
        reply
    }

    async fn let_time_pass(&mut self, step: &Step) {
        if let Some(pause) = step.pause() {
            tokio::time::sleep(pause * self.scenario.slower()).await;
        } else if step.call.contains("place is over") {
            tokio::time::sleep(PLACE_IS_OVER * self.scenario.slower()).await;
        } else if step.call.contains("interrupted") {
            // We cancel by dropping the future.
            let (waiter, task) = self.waiting.pop_first().expect("an owner waits");
            task.abort();
            let ended = task.await.expect_err("it still waited");
            assert!(ended.is_cancelled());
            self.came_back.push((waiter, "cancelled".to_owned()));
        }
    }

    /// `waits`: no answer is expected before a later step.
    async fn call(&mut self, step: &Step, waits: bool) -> String {
        let (role, thread) = self.cast.actor(&step.who);
        self.callers.insert(step.number, step.who.clone());
        let call = Call::parse(self.scenario.kind, &step.call).slowed(self.scenario.slower());
        for args in &call.commands {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            self.observers[0].redis.cmd(&args).await;
        }
        let client = match call.on {
            Target::Lock(Some(server)) => self.client(&format!("{role}{server}")).await,
            Target::Several => self.client(&format!("{role}1")).await,
            Target::Lock(None) | Target::Object(_) => self.client(&role.to_string()).await,
        };
        let redis = self.observers[0].redis.clone();
        let mut task = tokio::spawn(call.make(client, self.several.clone(), redis, thread));
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

    /// The recorded clients of a server start with their first call, and so do ours.
    async fn client(&mut self, name: &str) -> Client {
        if let Some(client) = self.cast.client(name) {
            return client.clone();
        }
        let client = self.servers.client(self.scenario, name).await;
        self.cast.add(name, client.clone());
        client
    }

    /// Looks repeatedly until the facts are those that are wanted. Returns the last ones after a time
    /// limit.
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
        let changes: Vec<Expiry> = self
            .observers
            .iter()
            .flat_map(Observer::expiry_changes)
            .collect();
        for change in &changes {
            self.expiries.apply(self.step, change);
        }
        let places = self.places().await;
        self.expiries.keep(&places);
        // The tokens in the answers change the rank of the counter's token.
        self.answers();
        let (mut keys, mut published, mut side_keys) = (Vec::new(), Vec::new(), Vec::new());
        for observer in &self.observers {
            let recorded = |field: &str| self.cast.recorded(field);
            let seen = observer.keys(&places, &self.expiries, recorded, &self.tokens);
            keys.extend(seen.await);
            side_keys.extend(observer.side_keys(&places, recorded).await);
            let messages = observer.published().into_iter();
            let messages = messages.map(|message| self.cast.recorded(&message));
            published.extend(messages.map(|message| at(observer.name, &message)));
        }
        let mut facts = Facts::default();
        let (answer, came_back) = self.answers();
        facts.set("answer", answer);
        facts.set("came back", came_back_text(&came_back));
        facts.set("published", published.join(", "));
        facts.set("keys", keys.join(", "));
        facts.set("side keys", side_keys.join(", "));
        if step.who.is_empty() {
            let renewals = renewals(changes.iter(), |key| self.cast.recorded(key));
            facts.set("renewals", renewals);
        }
        if self.scenario.deployment != Deployment::One {
            facts.set("asked", self.asked.clone());
            let waited = self.servers_where(Line::waits_for_replicas);
            facts.set("waits for replicas", waited);
        }
        facts
    }

    /// The answer of the step's call, and those of earlier calls that ended, in the form of the recording.
    fn answers(&self) -> (String, Vec<(usize, String)>) {
        let came_back = self.came_back.iter();
        let came_back = came_back.map(|(step, answer)| (*step, self.tokens.in_answer(answer)));
        (self.tokens.in_answer(&self.answer), came_back.collect())
    }

    /// For every server that answers.
    async fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for observer in &self.observers {
            places.extend(observer.places().await);
        }
        places
    }

    /// The servers that ran such a command in this step.
    fn servers_where(&self, is_such: impl Fn(&Line) -> bool) -> String {
        let ran = |observer: &&Observer| observer.ran().iter().any(&is_such);
        let names: Vec<&str> = self
            .observers
            .iter()
            .filter(ran)
            .map(|it| it.name)
            .collect();
        names.join(", ")
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

    /// Any of several waiters may win a wake-up. Ours then exchange their roles.
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
        self.cast.swap(&self.callers[ours], &self.callers[theirs]);
        *ours = *theirs;
    }

    /// Waits until the recorders have received everything that happened before.
    async fn mark(&mut self) {
        for observer in &mut self.observers {
            observer.mark().await;
        }
    }

    async fn release_everything(&mut self) {
        for client in self.cast.clients() {
            for hold in client.holds() {
                for kind in kinds::ALL {
                    let lock = kind.lock(client, &hold.lock);
                    // Unlocks each kind until it is not held.
                    while lock.unlock().owner(&hold.owner).await.is_ok() {}
                }
            }
        }
        assert_eq!(self.places().await, []);
    }
}

/// Of the first client.
fn three_names(cast: &Cast) -> MultiLock {
    let client = cast.client("A1").expect("it is there");
    MultiLock::new([
        client.lock("one"),
        client.fair_lock("two"),
        client.read_write_lock("three").write().into(),
    ])
}

fn text(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Okay => "OK".to_owned(),
        Value::Nil => "nil".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The answer to a call that still waits.
const WAITS: &str = "waits";

/// A waiting call has made its first attempts by then. A slower call waits, too.
const LOOKS_LIKE_WAITING: Duration = Duration::from_millis(250);
const NEVER_WAITS: Duration = Duration::from_secs(20);
/// Longer than the place of a dead waiter is valid in a recording.
const PLACE_IS_OVER: Duration = Duration::from_secs(2);
const SETTLES_WITHIN: Duration = Duration::from_secs(20);
