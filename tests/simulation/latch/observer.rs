//! Compares the clients with the server, and checks invariants CL1 to CL4 of the design.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use redis::Value;

use super::command::{KEY, LatchCommand};
use super::task::{Report, WaitNumber, Waiting};
use crate::simulation::findings::Findings;
use crate::simulation::network::{Delivery, Faults, Network};
use crate::simulation::plan::Plan;
use crate::simulation::redis::Redis;
use crate::simulation::redisson::latch as redisson;
use crate::simulation::world::Observes;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    /// The expected count.
    count: Option<i64>,
    /// The answer to each request.
    answers: HashMap<String, i64>,
    /// The requests of all count-downs that were executed, or finally refused.
    counted: HashSet<String>,
    /// How many count-downs the callers began.
    begun: u64,
    /// The periods in which the latch was open, in nanoseconds: begin and end.
    open: Vec<[u64; 2]>,
    waits: BTreeMap<WaitNumber, Wait>,
    /// The clients that read a message of a zero that was in transit for longer than a poll cap, and
    /// the times.
    late: Vec<(usize, u64)>,
    times: Times,
    pub(super) seen: Seen,
}

/// A wait that has not ended.
struct Wait {
    client: usize,
    began: u64,
    is_polled: bool,
    /// The latest time at which the wait has to end.
    until: u64,
}

/// In nanoseconds.
struct Times {
    poll_cap: u64,
    /// How long an answer may take on a calm network.
    answer: u64,
    command_timeout: u64,
    pauses_end: u64,
    /// The time since which no fault occurs.
    calm: Option<u64>,
}

impl Times {
    /// How long after the last fault a query may still end without an answer.
    fn reconnected(&self) -> u64 {
        // The client finds within a command timeout that a connection is silent, or that an attempt to connect
        // hangs. After several attempts in a row it pauses before the next one. A query that began before the
        // connection was there ends within another command timeout.
        self.command_timeout + LONGEST_BACKOFF + OPENED + self.command_timeout
    }
}

/// How often each case occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) executed: u64,
    pub(super) copies: u64,
    /// Count-downs that lowered a count.
    pub(super) counted: u64,
    /// Commands of requests that were answered before.
    pub(super) repeated: u64,
    pub(super) zeros: u64,
    /// Waits that ended with an open latch.
    pub(super) opened: u64,
    /// Those that ended while the latch was closed again.
    pub(super) by_message: u64,
    /// Waits that ended with their time.
    pub(super) passed_over: u64,
    /// Messages of a zero.
    pub(super) received: u64,
    /// Those that were in transit for too long.
    pub(super) late: u64,
    pub(super) restarts: u64,
    pub(super) left: u64,
    /// Changes by Redisson.
    pub(super) redissons: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.counted += other.counted;
        self.repeated += other.repeated;
        self.zeros += other.zeros;
        self.opened += other.opened;
        self.by_message += other.by_message;
        self.passed_over += other.passed_over;
        self.received += other.received;
        self.late += other.late;
        self.restarts += other.restarts;
        self.left += other.left;
        self.redissons += other.redissons;
    }
}

impl Observer {
    pub(super) fn new(redis: Redis, network: Arc<Network>, found: Findings, plan: &Plan) -> Self {
        let ns = |ms: u64| ms * 1_000_000;
        Self {
            redis,
            network,
            found,
            count: None,
            answers: HashMap::new(),
            counted: HashSet::new(),
            begun: 0,
            open: vec![[0, u64::MAX]],
            waits: BTreeMap::new(),
            late: Vec::new(),
            times: Times {
                poll_cap: ns(plan.poll_cap_ms),
                // Three round trips: a poll, the subscription, and a poll after it.
                answer: ns(3 * 6 + 2),
                command_timeout: ns(plan.command_timeout_ms),
                pauses_end: ns(plan.pauses_end_ms()),
                calm: (plan.faults == Faults::default()).then_some(0),
            },
            seen: Seen::default(),
        }
    }

    pub(super) fn process(&mut self, report: Report) {
        match report {
            Report::Says(line) => self.found.note(|| line),
            Report::Counts => self.begun += 1,
            Report::Restarts => self.restart(),
            Report::Waits(waiting) => self.begin(&waiting),
            Report::Left(wait) => {
                self.seen.left += 1;
                if let Some(wait) = self.waits.get_mut(&wait) {
                    wait.is_polled = false;
                }
            }
            Report::Ended { wait, at, opened } => self.end(wait, at, opened),
        }
    }

    /// No fault occurs from now on.
    pub(super) fn calm(&mut self) {
        self.times.calm = Some(self.network.now() + self.times.reconnected());
    }

    fn begin(&mut self, waiting: &Waiting) {
        let Waiting {
            wait,
            client,
            began,
        } = *waiting;
        let until = self.latest(began);
        let wait_of = Wait {
            client,
            began,
            is_polled: true,
            until: if self.is_open() { until } else { u64::MAX },
        };
        self.waits.insert(wait, wait_of);
    }

    /// CL4: no wait ends with an open latch that was not open meanwhile.
    fn end(&mut self, wait: WaitNumber, at: u64, opened: Option<bool>) {
        self.found
            .note(|| format!("wait {wait:?} ends: {opened:?}"));
        let Some(ended) = self.waits.remove(&wait) else {
            return;
        };
        match opened {
            Some(true) => self.seen.opened += 1,
            Some(false) => self.seen.passed_over += 1,
            None => {}
        }
        if opened != Some(true) {
            return;
        }
        let was_open = |[from, to]: &[u64; 2]| *from <= at && *to >= ended.began;
        let opens = self.open.iter().any(was_open);
        self.seen.by_message += u64::from(opens && !self.is_open());
        // The assumption about messages does not hold for this one.
        let is_late =
            |(client, received): &(usize, u64)| *client == ended.client && *received >= ended.began;
        let opens = opens || self.late.iter().any(is_late);
        self.found.claim(opens, || {
            format!("wait {wait:?} ended, and the latch was never open")
        });
    }

    fn is_open(&self) -> bool {
        self.count.unwrap_or(0) <= 0
    }

    /// CL2 and CL3: when a wait ends at the latest if the latch is open from now on.
    fn latest(&self, now: u64) -> u64 {
        match self.times.calm {
            Some(calm) => {
                // A query that was under way when its machine paused may end without an answer first.
                let continues = self.times.pauses_end + self.times.command_timeout;
                let from = now.max(calm).max(continues);
                // Its clock may be slow.
                from + self.times.poll_cap * 51 / 50 + self.times.answer
            }
            // A fault may cost any time.
            None => u64::MAX,
        }
    }

    fn restart(&mut self) {
        self.found
            .note(|| "the server starts again without its data".to_owned());
        self.seen.restarts += 1;
        self.redis.restart();
        self.network.restart();
        self.answers.clear();
        self.set(None);
        let now = self.network.now();
        let again = now + self.times.reconnected();
        self.times.calm = self.times.calm.map(|calm| calm.max(again));
        let latest = self.latest(now);
        for wait in self.waits.values_mut() {
            wait.until = latest;
        }
    }

    fn set(&mut self, count: Option<i64>) {
        let was_open = self.is_open();
        self.count = count;
        let now = self.network.now();
        match (was_open, self.is_open()) {
            (false, true) => {
                self.open.push([now, u64::MAX]);
                self.seen.zeros += 1;
                let latest = self.latest(now);
                for wait in self.waits.values_mut() {
                    wait.until = wait.until.min(latest);
                }
            }
            (true, false) => {
                if let Some(last) = self.open.last_mut() {
                    last[1] = now;
                }
                // The latch need not have stayed open until they polled.
                for wait in self.waits.values_mut() {
                    wait.until = u64::MAX;
                }
            }
            _ => {}
        }
    }

    /// The answer that the request has to get, and the change that it has to make: CL1.
    fn expect(&mut self, mark: &str, [answer, count]: [Option<i64>; 2]) -> i64 {
        if let Some(answer) = self.answers.get(mark) {
            self.seen.repeated += 1;
            return *answer;
        }
        let answer = answer.unwrap_or(0);
        self.answers.insert(mark.to_owned(), answer);
        self.set(count);
        answer
    }

    fn expected(&mut self, command: &LatchCommand<'_>) -> Option<i64> {
        let was = self.count;
        match *command {
            LatchCommand::CountDown { mark } => {
                self.counted.insert(mark.to_owned());
                let is_new = !self.answers.contains_key(mark);
                self.seen.counted += u64::from(is_new && was.is_some());
                let less = was.map(|count| count - 1).filter(|count| *count > 0);
                Some(self.expect(mark, [was.map(|_| 1), less]))
            }
            LatchCommand::Delete { mark } => Some(self.expect(mark, [was.map(|_| 1), None])),
            LatchCommand::TrySet { mark, count } => {
                let is_set = was.is_none().then_some(1);
                Some(self.expect(mark, [is_set, was.or(Some(count))]))
            }
            _ => None,
        }
    }

    /// Executes a command of Redisson.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let now_ms = self.found.now_ms();
        let value = self.redis.execute(&delivery.args, now_ms);
        let count = match (&*delivery.args[1], self.count) {
            (redisson::COUNT_DOWN, Some(count)) => Some(count - 1).filter(|count| *count > 0),
            (redisson::SET, None) => delivery.args[6].parse().ok(),
            (redisson::SET, count) => count,
            // It deletes it, or counts below zero.
            _ => None,
        };
        self.seen.redissons += u64::from(count != self.count);
        self.set(count);
        let has = self.redis.text(KEY, now_ms);
        self.found.note(|| {
            format!(
                "Redisson: {:?} -> {value:?}; count {has:?}",
                &delivery.args[3..]
            )
        });
        self.look_at_count(has);
        self.send_published();
        self.look();
        value
    }

    fn look_at_count(&mut self, has: Option<String>) {
        let count = self.count;
        let is_right = has.as_deref().map(str::parse) == count.map(Ok);
        self.found.claim(is_right, || {
            format!("the count is {has:?} and not {count:?}")
        });
    }

    fn send_published(&mut self) {
        for (channel, text) in self.redis.take_published() {
            self.network.publish(&channel, &text);
        }
    }

    /// CL2: a wait that has lasted for a poll cap, and whose client was subscribed when the message
    /// arrived, has to end, whatever the count is then.
    fn look_at_messages(&mut self) {
        let now = self.network.now();
        // The clients' clocks differ from the server's.
        let poll_cap = self.times.poll_cap * 51 / 50;
        for received in self.network.take_received() {
            if received.message.text != "0" {
                continue;
            }
            self.seen.received += 1;
            let clients = self.found.clients.iter();
            let number = clients
                .map(|(core, _)| core.id)
                .position(|id| id == received.client);
            let from = now.max(self.times.pauses_end);
            let until = from + self.times.command_timeout * 51 / 50 + self.times.answer;
            for wait in self.waits.values_mut() {
                if Some(wait.client) == number && wait.began + poll_cap < now {
                    wait.until = wait.until.min(until);
                }
            }
            let way = now - received.message.published;
            if way + poll_cap / 25 > poll_cap {
                self.seen.late += 1;
                self.late.extend(number.map(|number| (number, now)));
            }
        }
    }

    fn look_at_waits(&mut self) {
        let now = self.network.now();
        let late = self
            .waits
            .iter()
            .find(|(_, wait)| wait.is_polled && wait.until < now);
        let late = late.map(|(number, wait)| format!("wait {number:?} since {} lasts", wait.began));
        self.found
            .claim(late.is_none(), || late.unwrap_or_default());
    }

    /// The check when every call was answered: each count-down counted once.
    pub(super) fn has_counted_all(&self) -> bool {
        self.counted.len() as u64 == self.begun
    }

    pub(super) fn look_at_the_end(&mut self) {
        let (counted, begun) = (self.counted.len(), self.begun);
        self.found.claim(self.has_counted_all(), || {
            format!("{begun} calls counted down {counted} times")
        });
        let left = self.waits.len();
        self.found
            .claim(left == 0, || format!("{left} waits have not ended"));
    }
}

impl Observes for Observer {
    fn execute(&mut self, delivery: &Delivery) -> Value {
        if delivery.is_redissons {
            return self.execute_redissons(delivery);
        }
        let now_ms = self.found.now_ms();
        let command = LatchCommand::of(&delivery.args);
        let value = self
            .network
            .execute(delivery)
            .unwrap_or_else(|| self.redis.execute(&delivery.args, now_ms));
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        let has = self.redis.text(KEY, now_ms);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; count {has:?}",
                delivery.serial, delivery.connection,
            )
        });
        // The server no longer has the script of this digest.
        if !matches!(value, Value::ServerError(_))
            && let Some(answer) = self.expected(&command)
        {
            self.found.claim(value == Value::Int(answer), || {
                format!("{command:?} answered {value:?} and not {answer}")
            });
        }
        self.look_at_count(has);
        self.send_published();
        self.look();
        value
    }

    fn refuse(&mut self, delivery: &Delivery, error: &str) {
        // The client does not send it again: this error may last.
        if let LatchCommand::CountDown { mark } = LatchCommand::of(&delivery.args)
            && error.starts_with("OOM")
        {
            self.counted.insert(mark.to_owned());
        }
    }

    fn look(&mut self) {
        self.look_at_messages();
        self.look_at_waits();
    }

    fn found(&mut self) -> &mut Findings {
        &mut self.found
    }

    fn redis(&mut self) -> &mut Redis {
        &mut self.redis
    }
}

/// The longest pause of a client before an attempt to connect that follows others, in nanoseconds.
const LONGEST_BACKOFF: u64 = 250_000_000;
/// How long an attempt takes on a calm network, in nanoseconds.
const OPENED: u64 = 3_000_000;
