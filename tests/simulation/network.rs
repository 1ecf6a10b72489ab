//! A network that delivers every command once or twice, late and out of order over several
//! connections, and loses replies and connections.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::chance::Chance;
use super::redis::error_answer;
use crate::key::kind::PLAIN;
use crate::server::Failure;

/// How often each fault occurs, in percent, and how long delays are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Faults {
    pub(super) slow: u64,
    pub(super) slow_ms: u64,
    pub(super) twice: u64,
    pub(super) silenced: u64,
    pub(super) broken: u64,
    pub(super) refused: u64,
    pub(super) unreachable: u64,
    pub(super) flushed: u64,
    /// Messages that no connection receives.
    pub(super) undelivered: u64,
    /// Acquires and unlocks that wait for others, which the connection then carries as one command.
    pub(super) batched: u64,
    /// Scripts of Redisson that are late. The answers to a third as many are lost.
    pub(super) redissons: u64,
    /// Abandoned connections may be killed.
    pub(super) kill: bool,
    /// Nothing arrives at the server between these two milliseconds.
    pub(super) stalls: [u64; 2],
}

impl Faults {
    /// The time of arrival of something that would otherwise arrive at the given time, in nanoseconds.
    fn arrival(&self, at: u64) -> u64 {
        let [begin, end] = self.stalls.map(|ms| ms * 1_000_000);
        if (begin..end).contains(&at) { end } else { at }
    }
}

pub(super) struct Network {
    start: Instant,
    /// The holds whose counts a command may change.
    counted: fn(&[String]) -> Vec<String>,
    wires: Mutex<Wires>,
    changed: Notify,
}

struct Wires {
    chance: Chance,
    faults: Faults,
    events: BTreeMap<(u64, u64), NetworkEvent>,
    connections: Vec<SimulatedLine>,
    serial: u64,
    /// The number of the last command that was sent about each hold's count.
    last_sent: HashMap<String, u64>,
    /// The time since which each command of lockdog has no answer, in nanoseconds, by its keys and
    /// arguments; and the commands with these numbers.
    unanswered: HashMap<Vec<String>, u64>,
    asking: HashMap<u64, Vec<String>>,
    received: Vec<ReceivedMessage>,
    /// The client that has died.
    dead: Option<usize>,
    batches: BatchesSeen,
}

/// How often a run met the cases of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchesSeen {
    /// Batches with several commands.
    pub(super) sent: u64,
    /// Commands that did nothing in a batch and were sent by themselves.
    pub(super) alone: u64,
    /// Commands whose callers left before the batch was sent.
    pub(super) left: u64,
}

impl BatchesSeen {
    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.alone += other.alone;
        self.left += other.left;
    }
}

/// One connection.
struct SimulatedLine {
    open: bool,
    /// The number of its client. `None`: it is a Redisson client's, and has no faults.
    client: Option<usize>,
    /// Its replies no longer arrive.
    silenced: bool,
    last_delivery: u64,
    last_reply: u64,
    waiting: HashMap<u64, WaitingCaller>,
    /// The commands that the client has not sent yet, because it collects them.
    batch: Vec<CollectedCommand>,
    /// To the reader of a connection for messages.
    messages: Option<UnboundedSender<SimulatedMessage>>,
    channels: HashSet<String>,
}

/// A caller that waits for an answer.
struct WaitingCaller {
    answer: oneshot::Sender<LineAnswer>,
    /// Its command was sent together with others.
    in_batch: bool,
}

/// A command that was not sent yet.
struct CollectedCommand {
    asked: u64,
    args: Vec<String>,
    answer: oneshot::Sender<LineAnswer>,
}

/// What a caller learns of its command.
enum LineAnswer {
    Answered(RedisResult<Value>),
    /// The command did nothing, because of the others. It has to be sent by itself.
    Alone,
}

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub(super) struct SimulatedMessage {
    pub(super) channel: String,
    pub(super) text: String,
    /// In nanoseconds.
    pub(super) published: u64,
}

/// A message that a subscribed client has read.
pub(super) struct ReceivedMessage {
    pub(super) client: Uuid,
    pub(super) message: SimulatedMessage,
}

pub(super) enum NetworkEvent {
    Deliver(Delivery),
    Reply {
        connection: usize,
        serial: u64,
        value: Value,
    },
    Message {
        connection: usize,
        message: SimulatedMessage,
    },
    Break(usize),
    FlushScripts,
    /// The client sends what it has collected for this connection.
    SendBatch(usize),
}

/// A command that arrives at the server.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) connection: usize,
    pub(super) serial: u64,
    /// The time at which it was first sent, also if this is a repetition, in nanoseconds.
    pub(super) asked: u64,
    pub(super) args: Vec<String>,
    /// A further delivery of a command, with a delay of its own.
    pub(super) copy: bool,
    answered: bool,
    /// A Redisson client sent it.
    pub(super) is_redissons: bool,
    /// The server's error, if it does not execute the command.
    pub(super) refusal: Option<&'static str>,
}

impl Network {
    /// A network whose time starts now.
    pub(super) fn new(
        chance: Chance,
        faults: Faults,
        counted: fn(&[String]) -> Vec<String>,
    ) -> Self {
        Self {
            start: Instant::now(),
            counted,
            wires: Mutex::new(Wires {
                chance,
                faults,
                events: BTreeMap::new(),
                connections: Vec::new(),
                serial: 0,
                last_sent: HashMap::new(),
                unanswered: HashMap::new(),
                asking: HashMap::new(),
                received: Vec::new(),
                dead: None,
                batches: BatchesSeen::default(),
            }),
            changed: Notify::new(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// No more faults from now on, except on connections that are already silenced.
    pub(super) fn calm(&self) {
        let mut wires = self.wires.lock();
        let kill = wires.faults.kill;
        wires.faults = Faults {
            kill,
            ..Faults::default()
        };
    }

    /// Whether all commands have arrived, and all replies that can arrive.
    pub(super) fn is_idle(&self) -> bool {
        self.wires.lock().events.is_empty()
    }

    pub(super) fn last_sent(&self, field: &str) -> Option<u64> {
        self.wires.lock().last_sent.get(field).copied()
    }

    /// Waits for the time of the next event and returns it.
    pub(super) async fn next(&self) -> NetworkEvent {
        loop {
            let at = {
                let mut wires = self.wires.lock();
                let first = wires.events.first_entry();
                match first {
                    Some(first) if first.key().0 <= self.now() => return first.remove(),
                    Some(first) => Some(first.key().0),
                    None => None,
                }
            };
            let sleep = async {
                match at {
                    Some(at) => {
                        let at = self.start + Duration::from_nanos(at);
                        tokio::time::sleep_until(at).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = sleep => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Sends the reply to a command that the server executed or refused.
    pub(super) fn reply(&self, delivery: &Delivery, value: Value) {
        let mut wires = self.wires.lock();
        if !delivery.answered {
            return;
        }
        let now = self.now();
        let delay = wires.delay();
        let line = &mut wires.connections[delivery.connection];
        if line.silenced || !line.open {
            return;
        }
        line.last_reply = line.last_reply.max(now + delay);
        let at = line.last_reply;
        wires.add(
            at,
            NetworkEvent::Reply {
                connection: delivery.connection,
                serial: delivery.serial,
                value,
            },
        );
    }

    pub(super) fn send_batch(&self, connection: usize) {
        let now = self.now();
        self.wires.lock().send_batch(now, connection, self.counted);
    }

    /// How often the run met the cases of a batch.
    pub(super) fn batches(&self) -> BatchesSeen {
        self.wires.lock().batches
    }

    pub(super) fn hand_over(&self, connection: usize, serial: u64, value: Value) {
        let mut wires = self.wires.lock();
        let asking = wires.asking.remove(&serial);
        let line = &mut wires.connections[connection];
        let Some(waiting) = line.waiting.remove(&serial) else {
            return;
        };
        let is_refused = matches!(value, Value::ServerError(_));
        let answer = match is_refused && waiting.in_batch {
            true => {
                wires.batches.alone += 1;
                LineAnswer::Alone
            }
            false => LineAnswer::Answered(Ok(value)),
        };
        // The receiver may be gone.
        if waiting.answer.send(answer).is_ok()
            && !is_refused
            && let Some(command) = asking
        {
            wires.unanswered.remove(&command);
        }
    }

    /// The messages that arrive on this connection from now on.
    pub(super) fn receiver(&self, connection: usize) -> UnboundedReceiver<SimulatedMessage> {
        let (sender, receiver) = unbounded_channel();
        let line = &mut self.wires.lock().connections[connection];
        // If the connection broke meanwhile, there are none.
        line.messages = line.open.then_some(sender);
        receiver
    }

    pub(super) fn subscribe(&self, connection: usize, channel: &str) {
        let line = &mut self.wires.lock().connections[connection];
        if line.open {
            line.channels.insert(channel.to_owned());
        }
    }

    pub(super) fn unsubscribe(&self, connection: usize, channel: &str) {
        let line = &mut self.wires.lock().connections[connection];
        line.channels.remove(channel);
    }

    /// How many connections are subscribed to each channel.
    pub(super) fn listening(&self) -> HashMap<String, i64> {
        let wires = self.wires.lock();
        let open = wires.connections.iter().filter(|line| line.open);
        let mut listening = HashMap::new();
        for channel in open.flat_map(|line| &line.channels) {
            *listening.entry(channel.clone()).or_default() += 1;
        }
        listening
    }

    /// Whether a connection of a Redisson client is subscribed to this channel.
    pub(super) fn redisson_listens(&self, channel: &str) -> bool {
        let wires = self.wires.lock();
        let mut redissons = wires
            .connections
            .iter()
            .filter(|line| line.client.is_none());
        redissons.any(|line| line.open && line.channels.contains(channel))
    }

    /// Sends a message to the subscribed connections, after the replies that were sent to them before.
    pub(super) fn publish(&self, channel: &str, text: &str) {
        let mut wires = self.wires.lock();
        let now = self.now();
        for connection in 0..wires.connections.len() {
            let undelivered = wires.faults.undelivered;
            if !wires.connections[connection].channels.contains(channel)
                || wires.chance.percent(undelivered)
            {
                continue;
            }
            let delay = wires.delay();
            let line = &mut wires.connections[connection];
            if line.silenced {
                continue;
            }
            line.last_reply = line.last_reply.max(now + delay);
            let at = line.last_reply;
            let message = SimulatedMessage {
                channel: channel.to_owned(),
                text: text.to_owned(),
                published: now,
            };
            let event = NetworkEvent::Message {
                connection,
                message,
            };
            wires.add(at, event);
        }
        drop(wires);
        self.changed.notify_one();
    }

    pub(super) fn hand_message_over(&self, connection: usize, message: SimulatedMessage) {
        if let Some(reader) = &self.wires.lock().connections[connection].messages {
            // The reader may be gone.
            let _ = reader.send(message);
        }
    }

    /// A subscribed client has read a message.
    pub(super) fn note_received(&self, client: Uuid, message: SimulatedMessage) {
        let received = ReceivedMessage { client, message };
        self.wires.lock().received.push(received);
    }

    pub(super) fn take_received(&self) -> Vec<ReceivedMessage> {
        std::mem::take(&mut self.wires.lock().received)
    }

    /// The server restarts: every connection ends, and nothing that was sent before arrives.
    pub(super) fn restart(&self) {
        let mut wires = self.wires.lock();
        wires.events.clear();
        for connection in 0..wires.connections.len() {
            wires.end(connection);
        }
    }

    /// This client sends no more commands, and none of its calls ends. Commands in flight still arrive.
    pub(super) fn die(&self, client: usize) {
        self.wires.lock().dead = Some(client);
    }

    /// Ends a connection from the client's side. Commands in flight still arrive.
    pub(super) fn end(&self, connection: usize) {
        self.wires.lock().end(connection);
    }

    /// Ends a connection from the server's side. Nothing that it carries arrives any more.
    pub(super) fn kill(&self, client_id: &str) -> Value {
        let mut wires = self.wires.lock();
        if !wires.faults.kill {
            return error_answer("NOPERM this user has no permissions to run 'client|kill'");
        }
        let Some(connection) = client_id.parse().ok().map(|id: usize| id - 1) else {
            return error_answer("ERR client-id should be greater than 0");
        };
        wires.events.retain(|_, event| {
            !matches!(event, NetworkEvent::Deliver(delivery)
                if delivery.connection == connection && !delivery.copy)
        });
        wires.end(connection);
        Value::Int(1)
    }

    fn open(&self, client: Option<usize>) -> usize {
        let mut wires = self.wires.lock();
        wires.connections.push(SimulatedLine {
            open: true,
            client,
            silenced: false,
            last_delivery: 0,
            last_reply: 0,
            waiting: HashMap::new(),
            batch: Vec::new(),
            messages: None,
            channels: HashSet::new(),
        });
        wires.connections.len() - 1
    }

    /// Sends a command. `may_wait`: the client may collect it, and send it together with others.
    fn send(
        &self,
        connection: usize,
        args: Vec<String>,
        may_wait: bool,
    ) -> Option<oneshot::Receiver<LineAnswer>> {
        let now = self.now();
        let mut wires = self.wires.lock();
        let is_redissons = wires.connections[connection].client.is_none();
        // The client does not know whether a broken connection still carried it.
        let asked = wires.ask(&args, now, is_redissons);
        if !wires.connections[connection].open {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let command = CollectedCommand {
            asked,
            args,
            answer,
        };
        let collected = wires.connections[connection].batch.len();
        let batched = wires.faults.batched;
        if may_wait && (collected > 0 || wires.chance.percent(batched)) {
            if collected == 0 {
                let at = now + wires.chance.within(0, 3 * USUAL_NS);
                wires.add(at, NetworkEvent::SendBatch(connection));
            }
            wires.connections[connection].batch.push(command);
        } else {
            // No command overtakes those that the client has collected.
            wires.send_batch(now, connection, self.counted);
            wires.give(now, connection, vec![command], self.counted);
        }
        drop(wires);
        self.changed.notify_one();
        Some(answered)
    }
}

/// The longest time in transit, for what is not slow.
const USUAL_NS: u64 = 3_000_000;

impl Wires {
    fn add(&mut self, at: u64, event: NetworkEvent) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    /// Sends what the client has collected for a connection, as one command.
    fn send_batch(&mut self, now: u64, connection: usize, counted: fn(&[String]) -> Vec<String>) {
        let mut batch = std::mem::take(&mut self.connections[connection].batch);
        let collected = batch.len();
        // The command of a caller that has left is never sent.
        batch.retain(|command| !command.answer.is_closed());
        self.batches.left += (collected - batch.len()) as u64;
        self.batches.sent += u64::from(batch.len() > 1);
        if !batch.is_empty() {
            self.give(now, connection, batch, counted);
        }
    }

    /// Gives commands to a connection, which carries them as one.
    fn give(
        &mut self,
        now: u64,
        connection: usize,
        commands: Vec<CollectedCommand>,
        counted: fn(&[String]) -> Vec<String>,
    ) {
        let client = self.connections[connection].client;
        let is_redissons = client.is_none();
        let in_batch = commands.len() > 1;
        let mut deliveries = Vec::new();
        for CollectedCommand {
            asked,
            args,
            answer,
        } in commands
        {
            self.serial += 1;
            let serial = self.serial;
            self.asking
                .insert(serial, args.get(2..).unwrap_or_default().to_vec());
            let caller = WaitingCaller { answer, in_batch };
            self.connections[connection].waiting.insert(serial, caller);
            if client.is_some() && client == self.dead {
                continue;
            }
            if !is_redissons {
                for field in counted(&args) {
                    self.last_sent.insert(field, serial);
                }
            }
            deliveries.push(Delivery {
                connection,
                serial,
                asked,
                args,
                copy: false,
                answered: true,
                is_redissons,
                refusal: None,
            });
        }
        let Some(first) = deliveries.first() else {
            return;
        };
        // Redisson sends no batches, so the first command is its only one.
        let (faults, delay) = match is_redissons {
            true => self.redissons(&first.args),
            false => (self.faults, self.delay()),
        };
        let arrival = faults.arrival(now + delay);
        let copy_arrival = faults.arrival(now + self.late());
        let second_answers = self.chance.percent(50);
        let silenced = self.chance.percent(faults.silenced);
        let breaks = self.chance.percent(faults.broken);
        let break_at = now + self.delay();
        let refusals = ["LOADING loading", "BUSY busy", "OOM command not allowed"];
        let refusal = self.chance.one_of(&refusals);
        let refusal = self.chance.percent(faults.refused).then_some(refusal);
        // A repeated command is answered by its last delivery, so a refusal has to refuse all of them.
        let twice = self.chance.percent(faults.twice) && refusal.is_none();
        if self.chance.percent(faults.flushed) {
            self.add(now, NetworkEvent::FlushScripts);
        }
        let line = &mut self.connections[connection];
        line.silenced |= silenced;
        line.last_delivery = line.last_delivery.max(arrival);
        let arrival = line.last_delivery;
        if twice {
            for delivery in &deliveries {
                let copy = Delivery {
                    copy: true,
                    answered: second_answers,
                    ..delivery.clone()
                };
                self.add(copy_arrival, NetworkEvent::Deliver(copy));
            }
        }
        for delivery in deliveries {
            let delivery = Delivery {
                answered: !(twice && second_answers),
                refusal,
                ..delivery
            };
            self.add(arrival, NetworkEvent::Deliver(delivery));
        }
        if breaks {
            self.add(break_at, NetworkEvent::Break(connection));
        }
    }

    /// In nanoseconds: usually a few milliseconds.
    fn delay(&mut self) -> u64 {
        let faults = self.faults;
        if self.chance.percent(faults.slow) {
            return self.late();
        }
        self.chance.within(0, USUAL_NS)
    }

    /// The time at which a command that is sent now was first sent.
    fn ask(&mut self, args: &[String], now: u64, is_redissons: bool) -> u64 {
        if is_redissons || !args[0].starts_with("EVAL") {
            return now;
        }
        let command = args[2..].to_vec();
        *self.unanswered.entry(command).or_insert(now)
    }

    /// The faults of a command of Redisson, and its time in transit.
    fn redissons(&mut self, args: &[String]) -> (Faults, u64) {
        let percent = self.faults.redissons;
        if percent == 0 || !args[0].starts_with("EVAL") {
            return (Faults::default(), self.chance.within(0, USUAL_NS));
        }
        let faults = Faults {
            silenced: percent / 3,
            ..Faults::default()
        };
        let delay = match self.chance.percent(percent) {
            true => self.late(),
            false => self.chance.within(0, USUAL_NS),
        };
        (faults, delay)
    }

    fn late(&mut self) -> u64 {
        let longest = self.faults.slow_ms.max(3) * 1_000_000;
        self.chance.within(0, longest)
    }

    fn end(&mut self, connection: usize) {
        let line = &mut self.connections[connection];
        line.open = false;
        line.messages = None;
        line.channels.clear();
        let mut waiting: Vec<_> = line.waiting.drain().collect();
        waiting.sort_by_key(|(serial, _)| *serial);
        for (_, waiting) in waiting {
            // The receiver may be gone.
            let _ = waiting.answer.send(LineAnswer::Answered(Err(broken())));
        }
        for collected in std::mem::take(&mut self.connections[connection].batch) {
            let _ = collected.answer.send(LineAnswer::Answered(Err(broken())));
        }
    }
}

/// A connection of a Redisson client. What it sends arrives once, and its replies arrive.
pub(super) struct RedissonWire {
    network: Arc<Network>,
    connection: Option<usize>,
}

impl RedissonWire {
    pub(super) fn new(network: Arc<Network>) -> Self {
        Self {
            network,
            connection: None,
        }
    }

    /// `None` if the server restarted meanwhile.
    pub(super) async fn send(&mut self, args: Vec<String>) -> Option<Value> {
        let network = &self.network;
        let connection = *self.connection.get_or_insert_with(|| network.open(None));
        let answer = match network.send(connection, args, false) {
            Some(answered) => match answered.await {
                Ok(LineAnswer::Answered(answer)) => answer.ok(),
                _ => None,
            },
            None => None,
        };
        if answer.is_none() {
            self.connection = None;
        }
        answer
    }

    /// As Redisson does: if no answer arrives in time, it repeats the command on another connection, a
    /// limited number of times. `None` if no answer arrived.
    pub(super) async fn send_again(&mut self, args: Vec<String>) -> Option<Value> {
        for _ in 0..ATTEMPTS {
            let sent = self.send(args.clone());
            if let Ok(Some(answer)) = tokio::time::timeout(ANSWERS_IN, sent).await {
                return Some(answer);
            }
            self.connection = None;
        }
        None
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.network.now() / 1_000_000
    }
}

/// Redisson's `timeout` and `retryAttempts`, with smaller values.
const ANSWERS_IN: Duration = Duration::from_millis(150);
const ATTEMPTS: u32 = 3;

/// A connection of a Redisson client for the messages on a channel.
pub(super) struct RedissonListener {
    network: Arc<Network>,
    connection: usize,
    channel: String,
    messages: UnboundedReceiver<SimulatedMessage>,
}

impl RedissonListener {
    /// Subscribes. `None` if there is no answer.
    pub(super) async fn new(network: &Arc<Network>, channel: &str) -> Option<Self> {
        let connection = network.open(None);
        let listener = Self {
            network: network.clone(),
            connection,
            channel: channel.to_owned(),
            messages: network.receiver(connection),
        };
        let answered = listener.send("SUBSCRIBE")?;
        match answered.await {
            Ok(LineAnswer::Answered(Ok(_))) => Some(listener),
            _ => None,
        }
    }

    /// Waits for a message until this time at most. The message may have arrived before. True if there
    /// was one.
    pub(super) async fn receive(&mut self, until: Instant) -> bool {
        let received = tokio::time::timeout_at(until, self.messages.recv()).await;
        matches!(received, Ok(Some(_)))
    }

    fn send(&self, name: &str) -> Option<oneshot::Receiver<LineAnswer>> {
        let args = [name, &self.channel].map(str::to_owned);
        self.network.send(self.connection, args.into(), false)
    }
}

impl Drop for RedissonListener {
    fn drop(&mut self) {
        // It does not wait for the answer.
        drop(self.send("UNSUBSCRIBE"));
    }
}

/// Opens a client's connections.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(super) network: Arc<Network>,
    /// The number of the client.
    pub(super) client: usize,
}

/// One connection of a client.
#[derive(Clone)]
pub(crate) struct SimulatedWire {
    network: Arc<Network>,
    pub(super) connection: usize,
}

impl Wiring {
    pub(crate) async fn open(&self) -> Result<SimulatedWire, Failure> {
        let network = &self.network;
        let (delay, refused, is_dead) = {
            let mut wires = network.wires.lock();
            let unreachable = wires.faults.unreachable;
            let is_dead = wires.dead == Some(self.client);
            (wires.delay(), wires.chance.percent(unreachable), is_dead)
        };
        if is_dead {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_nanos(delay)).await;
        if refused {
            return Err(Failure::Unsent("simulated: connection refused".into()));
        }
        Ok(SimulatedWire {
            network: network.clone(),
            connection: network.open(Some(self.client)),
        })
    }
}

impl SimulatedWire {
    pub(crate) fn client_id(&self) -> u64 {
        self.connection as u64 + 1
    }

    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let args = command.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        });
        let args: Vec<String> = args.collect();
        // As the socket of a real connection, it collects only these, and sends one by itself that failed
        // among others.
        let batched = [PLAIN.scripts.acquire, PLAIN.scripts.unlock];
        let mut may_wait = args[0] == "EVALSHA" && batched.iter().any(|it| it.digest() == args[1]);
        loop {
            let answered = self.network.send(self.connection, args.clone(), may_wait);
            let Some(answered) = answered else {
                return Err(broken());
            };
            match answered.await {
                Ok(LineAnswer::Answered(answer)) => return answer,
                Ok(LineAnswer::Alone) => may_wait = false,
                Err(_) => return Err(broken()),
            }
        }
    }
}

fn broken() -> RedisError {
    (ErrorKind::Io, "simulated: connection broken").into()
}
