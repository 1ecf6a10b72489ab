//! Recorded calls: their Java text is parsed, and they are made through our API.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockdog::report::Ttl;
use lockdog::{AnyLock, Client, Error, Guard, Lock, Owner};

use super::cast::thread_number;
use super::tokens::{self, counter};
use crate::kinds::{FAIR, FENCED, FENCED_FROM_ONE, Kind, READ};
use crate::support::Redis;
use crate::{latch, recorded, semaphore};

/// One call on one lock.
#[derive(Clone, Debug)]
pub(super) struct Call {
    kind: &'static Kind,
    pub(super) lock: String,
    pub(super) on: Target,
    /// The owner that the call names. By default it is the thread's.
    owner: Option<u64>,
    pub(super) what: What,
    /// The commands of Redisson's call that no call of ours sends. The test sends them.
    pub(super) commands: Vec<Vec<String>>,
}

/// The object of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// One lock, and the number of its server if there are several clients.
    Lock(Option<usize>),
    /// `multiLock` or `redLock`: the scenario's lock of several locks.
    Several,
    /// A semaphore or a latch, which has its own replay. Its `lock` is its name.
    Object(Object),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Object {
    Semaphore,
    Latch,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Lock {
        lease: Option<Duration>,
        answer: Answer,
    },
    TryLock {
        wait: Option<Duration>,
        lease: Option<Duration>,
        answer: Answer,
    },
    Unlock,
    ForceUnlock,
    IsLocked,
    IsHeld,
    HoldCount,
    RemainingTtl,
    LastToken,
    /// A call without a counterpart. The test sends its commands.
    Absent,
    /// A method of an object, and its arguments.
    Of(String, Vec<String>),
    Shutdown,
    Start,
}

/// The results of an acquire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Whether it acquired.
    Plain,
    Token,
}

impl Call {
    /// `kind` is that of `lock`.
    pub(super) fn parse(kind: &'static Kind, text: &str) -> Self {
        if text == "Redisson.create(config)" {
            return Self::on(kind, "orders", What::Start);
        }
        if text == "redisson.shutdown()" {
            return Self::on(kind, "orders", What::Shutdown);
        }
        let (text, server) = match text.split_once(" on s") {
            Some((text, server)) => (text, Some(server.parse().expect("a number"))),
            None => (text, None),
        };
        if let Some(call) = Self::on_object(kind, text) {
            return call;
        }
        // The call that creates the lock comes before the first call on it.
        let of_several = text.strip_prefix(THREE_NAMES);
        let of_several = of_several.map(|call| format!("multiLock{call}"));
        let text = of_several.as_deref().unwrap_or(text);
        // `lock.unlock()`, `lockOnS3.unlock()`, `getLock.unlock()` or `getLock("a b").unlock()`
        let (handle, call) = text.split_once('.').expect("a call follows the lock");
        let (handle, lock, call) = match text.split_once("(\"") {
            Some((getter, rest)) if !getter.contains('.') => {
                let (lock, call) = rest.split_once("\").").expect("a call follows the lock");
                (getter, lock, call)
            }
            _ => match handle {
                "readLock" => (handle, "doc", call),
                "fairLock" => (handle, "fair", call),
                _ => (handle, "orders", call),
            },
        };
        let kind = match handle {
            getter if getter == kind.java => kind,
            "readLock" => &READ,
            "fairLock" => &FAIR,
            // The recordings of this file are replayed with both kinds.
            "fencedLock" => &FENCED_FROM_ONE,
            other => Kind::find(other).unwrap_or(kind),
        };
        let on = match (handle, handle.strip_prefix("lockOnS")) {
            ("multiLock" | "redLock", _) => Target::Several,
            (_, Some(server)) => Target::Lock(Some(server.parse().expect("a number"))),
            (_, None) => Target::Lock(server),
        };
        let call = call.trim_end_matches(".get()");
        let (method, args) = call.split_once('(').expect("a call has parentheses");
        let args = args.strip_suffix(')').expect("a call has parentheses");
        let mut args: Vec<&str> = args.split(", ").filter(|arg| !arg.is_empty()).collect();
        let mut owner = None;
        if method.ends_with("Async") || method == "isHeldByThread" {
            // Otherwise the owner is the thread that calls.
            owner = args.pop_if(|arg| !is_unit(arg)).map(thread_number);
        }
        let method = method.trim_end_matches("Async");
        let commands = commands_of_the_test(kind, lock, method, &args);
        let (method, answer) = match method.strip_suffix("AndGetToken") {
            Some(method) => (method, Answer::Token),
            None => (method, Answer::Plain),
        };
        let what = match (method, &args[..]) {
            ("lock" | "lockInterruptibly", []) | ("lock", ["-1", _]) => What::Lock {
                lease: None,
                answer,
            },
            ("lock", [lease, unit]) => What::Lock {
                lease: Some(time(lease, unit)),
                answer,
            },
            ("tryLock", []) => What::TryLock {
                wait: None,
                lease: None,
                answer,
            },
            ("tryLock", [wait, unit]) => What::TryLock {
                wait: Some(time(wait, unit)),
                lease: None,
                answer,
            },
            ("tryLock", [wait, lease, unit]) => What::TryLock {
                wait: Some(time(wait, unit)),
                lease: Some(time(lease, unit)),
                answer,
            },
            ("unlock", []) => What::Unlock,
            ("forceUnlock" | "delete", []) => What::ForceUnlock,
            ("isLocked", []) => What::IsLocked,
            ("isHeldByCurrentThread" | "isHeldByThread", []) => What::IsHeld,
            ("getHoldCount", []) => What::HoldCount,
            ("remainTimeToLive", []) => What::RemainingTtl,
            ("getToken", []) => What::LastToken,
            ("expire", [_]) | ("clearExpire", []) => What::Absent,
            other => panic!("{text} is not known: {other:?}"),
        };
        Self {
            on,
            owner,
            commands,
            ..Self::on(kind, lock, what)
        }
    }

    /// `semaphore.release()` or `getCountDownLatch("a").countDown()`
    fn on_object(kind: &'static Kind, text: &str) -> Option<Self> {
        let (handle, call) = text.split_once('.')?;
        let (object, name) = match handle.split_once("(\"") {
            None if handle == "semaphore" => (Object::Semaphore, "seats"),
            None if handle == "latch" => (Object::Latch, "start"),
            Some(("getCountDownLatch", name)) => (Object::Latch, name.strip_suffix("\")")?),
            _ => return None,
        };
        let (method, args) = call.strip_suffix(')')?.split_once('(')?;
        let args = args.split(", ").filter(|arg| !arg.is_empty());
        let what = What::Of(method.to_owned(), args.map(str::to_owned).collect());
        Some(Self {
            on: Target::Object(object),
            ..Self::on(kind, name, what)
        })
    }

    fn on(kind: &'static Kind, lock: &str, what: What) -> Self {
        let lock = lock.to_owned();
        Self {
            kind,
            lock,
            on: Target::Lock(None),
            owner: None,
            what,
            commands: Vec::new(),
        }
    }

    /// Multiplies all times.
    pub(super) fn slowed(mut self, times: u32) -> Self {
        if let What::Lock { lease, .. } | What::TryLock { lease, .. } = &mut self.what {
            *lease = lease.map(|lease| lease * times);
        }
        if let What::TryLock { wait, .. } = &mut self.what {
            *wait = wait.map(|wait| wait * times);
        }
        self
    }

    /// Makes the call as ported code does: guards are forgotten, and unlocks name their owner. `several` is
    /// the lock of a call on [`Target::Several`]. `redis` sends the commands that no call of ours sends.
    pub(super) async fn make(
        self,
        client: Client,
        several: Option<Arc<dyn AnyLock>>,
        redis: Redis,
        thread: u64,
    ) -> String {
        let owner = Owner::from_id(self.owner.unwrap_or(thread));
        let made = match (self.on, self.what) {
            (Target::Several, what) => {
                let several = several.expect("the scenario has such a lock");
                make_on_any(&*several, &owner, &what).await
            }
            (Target::Object(object), What::Of(method, args)) => {
                let call = recorded::Call {
                    client,
                    redis,
                    name: self.lock,
                    method,
                    args,
                };
                owner.scope(make_on_object(object, call)).await
            }
            (_, what) => {
                let lock = self.kind.lock(&client, &self.lock);
                make(&client, &lock, &owner, &what).await
            }
        };
        made.unwrap_or_else(|error| named(&error))
    }
}

async fn make(client: &Client, lock: &Lock, owner: &Owner, what: &What) -> Result<String, Error> {
    Ok(match what {
        What::ForceUnlock => lock.force_unlock().await?.to_string(),
        What::IsLocked => lock.is_locked().await?.to_string(),
        What::RemainingTtl => match lock.remaining_ttl().await? {
            Some(Ttl::Expires(_)) => "a ttl".to_owned(),
            Some(Ttl::Persistent) => "-1".to_owned(),
            None => "-2".to_owned(),
        },
        What::LastToken => tokens::answer(lock.last_token().await?.unwrap_or(0)),
        What::Shutdown => {
            client.shutdown().await;
            "void".to_owned()
        }
        What::Start => String::new(),
        what => make_on_any(lock, owner, what).await?,
    })
}

/// The answer in the form of the recordings with several servers.
async fn make_on_object(object: Object, call: recorded::Call) -> Result<String, Error> {
    let answer = match object {
        Object::Semaphore => semaphore::replay::perform(call).await?,
        Object::Latch => latch::replay::perform(call).await?,
    };
    Ok(match answer.as_str() {
        "" => "void".to_owned(),
        _ => answer,
    })
}

/// The calls that locks of all kinds have.
async fn make_on_any(lock: &dyn AnyLock, owner: &Owner, what: &What) -> Result<String, Error> {
    Ok(match what {
        What::Lock { lease, answer } => {
            let request = lock.lock().owner(owner);
            let guard = match lease {
                Some(lease) => request.lease(*lease).await?,
                None => request.await?,
            };
            let answer = answer.granted(&guard);
            guard.forget();
            answer.unwrap_or_else(|| "void".to_owned())
        }
        What::TryLock {
            wait,
            lease,
            answer,
        } => {
            let mut request = lock.try_lock().owner(owner);
            if let Some(wait) = wait {
                request = request.wait(*wait);
            }
            if let Some(lease) = lease {
                request = request.lease(*lease);
            }
            let Some(guard) = request.await? else {
                return Ok(answer.not_granted().to_owned());
            };
            let answer = answer.granted(&guard);
            guard.forget();
            answer.unwrap_or_else(|| "true".to_owned())
        }
        What::Unlock => {
            lock.unlock().owner(owner).await?;
            "void".to_owned()
        }
        What::IsHeld => lock.is_held_by(owner).await?.to_string(),
        What::HoldCount => owner.scope(lock.hold_count()).await?.to_string(),
        _ => "no such call".to_owned(),
    })
}

impl Answer {
    /// For a caller that acquired. `None` if its guard has no token or needs none.
    fn granted(self, guard: &Guard) -> Option<String> {
        match self {
            Self::Plain => None,
            Self::Token => guard.token().map(tokens::answer),
        }
    }

    /// For a caller that did not acquire.
    fn not_granted(self) -> &'static str {
        match self {
            Self::Plain => "false",
            Self::Token => "null",
        }
    }
}

/// The kind of an error, in the words of the recording.
fn named(error: &Error) -> String {
    match error {
        Error::AlreadyHeld(_) => "already held".to_owned(),
        Error::NotHeld(_) | Error::Lost(_) => "not held".to_owned(),
        Error::NotReplicated(_) => "not replicated".to_owned(),
        Error::Refused { code, .. } => format!("refused {code}"),
        Error::Invalid { what, .. } => format!("invalid {what}"),
        other => format!("{other:?}"),
    }
}

/// The commands of a recorded call that no call of ours sends.
fn commands_of_the_test(kind: &Kind, lock: &str, method: &str, args: &[&str]) -> Vec<Vec<String>> {
    let counter = (kind.java == FENCED.java).then(|| counter(lock));
    let queue = |prefix: &str| {
        let is_fair = kind.java == FAIR.java;
        is_fair.then(|| format!("{prefix}:{{{lock}}}"))
    };
    let queue = [queue("redisson_lock_queue"), queue("redisson_lock_timeout")];
    // A call of ours frees the lock.
    let of_lock = (method != "delete").then(|| lock.to_owned());
    let at = in_20_seconds();
    let command: &[&str] = match (method, args) {
        ("expire", ["Duration.ofSeconds(10)"]) => &["PEXPIRE", "10000"],
        ("expire", ["Duration.ofSeconds(6)"]) => &["PEXPIRE", "6000"],
        ("expire", ["Instant.now() + 20 s"]) => &["PEXPIREAT", &at],
        ("clearExpire", []) => &["PERSIST"],
        ("delete", []) => &["DEL"],
        _ => return Vec::new(),
    };
    let on_key = |key| {
        let mut command: Vec<String> = command.iter().map(|arg| (*arg).to_owned()).collect();
        command.insert(1, key);
        command
    };
    let queue = queue.into_iter().flatten();
    let keys = of_lock.into_iter().chain(counter).chain(queue);
    keys.map(on_key).collect()
}

fn in_20_seconds() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
    (now + Duration::from_secs(20)).as_millis().to_string()
}

/// Creates the multi lock of one scenario.
const THREE_NAMES: &str =
    "getMultiLock(getLock one, getFairLock two, getReadWriteLock three .writeLock())";

fn is_unit(arg: &str) -> bool {
    arg.ends_with("SECONDS")
}

fn time(number: &str, unit: &str) -> Duration {
    let number = number.parse().expect("a number");
    match unit {
        "SECONDS" => Duration::from_secs(number),
        "MILLISECONDS" => Duration::from_millis(number),
        "MICROSECONDS" => Duration::from_micros(number),
        other => panic!("{other} is no unit"),
    }
}
