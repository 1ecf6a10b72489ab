//! A real Redisson client in a JVM of its own, told call by call what to do.
//!
//! The JVM runs the driver of `tests/redisson`. Calls go down its standard input in the order in which
//! they were started; answers come back in any order. All of it is blocking pipes and threads, so that
//! a client does not depend on the runtime of one test.

mod driver;
mod several;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use driver::{Driver, Jvm};

/// A running client; dropping it is a crash (SIGKILL), as is [`Redisson::kill`].
pub(crate) struct Redisson {
    jvm: Jvm,
    driver: Arc<Driver>,
    uuid: String,
}

impl Redisson {
    /// Starts a client with Redisson's defaults.
    pub(crate) async fn start(url: &str) -> Self {
        Self::builder(url).start().await
    }

    pub(crate) fn builder(url: &str) -> Builder {
        Builder {
            settings: json!({ "url": url }),
        }
    }

    /// The logical thread of this name: one Java thread, made by its first call and kept.
    pub(crate) fn thread(&self, name: &str) -> JavaThread {
        JavaThread {
            driver: Arc::clone(&self.driver),
            uuid: self.uuid.clone(),
            name: name.to_owned(),
        }
    }

    /// The client's id, the first half of every [`JavaThread::field`].
    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    pub(crate) fn pid(&self) -> u32 {
        self.jvm.pid()
    }

    /// SIGKILL: nothing is released. Calls in flight are never answered.
    pub(crate) fn kill(self) {
        drop(self.jvm);
    }

    /// Redisson's own `shutdown()`, which releases no lock either; returns when the JVM is gone.
    pub(crate) async fn shutdown(self) {
        let call = PendingCall::<()>::start(&self.driver, json!({ "call": "shutdown" }));
        call.value().await;
        let status = tokio::task::spawn_blocking(|| self.jvm.wait())
            .await
            .expect("waiting for the JVM does not panic");
        assert!(status.success(), "the driver ended with {status}");
    }
}

/// What to change of Redisson's defaults.
#[must_use = "a builder does nothing itself, use `.start()`"]
pub(crate) struct Builder {
    settings: Value,
}

impl Builder {
    /// `lockWatchdogTimeout`: the lease of a lock without one. Defaults to 30 s.
    pub(crate) fn watchdog_timeout(self, timeout: Duration) -> Self {
        self.set("watchdogTimeoutMs", millis(timeout))
    }

    /// A further client in the same JVM, of this server: for locks of several.
    pub(crate) fn and(mut self, url: &str) -> Self {
        match &mut self.settings["more"] {
            Value::Array(more) => more.push(url.into()),
            none => *none = json!([url]),
        }
        self
    }

    /// A name mapper that puts this before every name, the cell's key included. Defaults to none.
    pub(crate) fn name_prefix(self, prefix: &str) -> Self {
        self.set("namePrefix", prefix)
    }

    /// `timeout`: how long a command may take. Defaults to 3 s.
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        self.set("timeoutMs", millis(timeout))
    }

    /// `connectTimeout`. Defaults to 10 s.
    pub(crate) fn connect_timeout(self, timeout: Duration) -> Self {
        self.set("connectTimeoutMs", millis(timeout))
    }

    /// `retryAttempts` of a command. Defaults to 4.
    pub(crate) fn retry_attempts(self, attempts: u32) -> Self {
        self.set("retryAttempts", attempts)
    }

    /// Builds the driver if need be, starts it and waits until it is connected.
    ///
    /// # Panics
    /// With everything the JVM said on stderr, if it is not ready within 60 s.
    pub(crate) async fn start(self) -> Redisson {
        let launched = tokio::task::spawn_blocking(move || driver::launch(&self.settings)).await;
        let (jvm, driver, uuid) =
            launched.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        Redisson { jvm, driver, uuid }
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings[key] = value.into();
        self
    }
}

/// An owner on the Java side. Its calls run in order; those of different threads run side by side.
///
/// The async functions panic with Java's error where they do not return it.
#[derive(Clone)]
pub(crate) struct JavaThread {
    driver: Arc<Driver>,
    uuid: String,
    name: String,
}

impl JavaThread {
    /// The hash field under which this thread holds a lock: `<uuid>:<thread id>`.
    pub(crate) async fn field(&self) -> String {
        let id = self.call::<u64>("threadId", json!({})).value().await;
        format!("{}:{id}", self.uuid)
    }

    /// `lock()`: waits for ever, kept alive by the watchdog.
    pub(crate) async fn lock(&self, name: &str) {
        self.start_lock(name).value().await;
    }

    pub(crate) fn start_lock(&self, name: &str) -> PendingCall<()> {
        self.call("lock", json!({ "name": name }))
    }

    /// `lock(lease, unit)`: waits for ever, ends with the lease.
    pub(crate) async fn lock_for(&self, name: &str, lease: Duration) {
        self.start_lock_for(name, lease).value().await;
    }

    pub(crate) fn start_lock_for(&self, name: &str, lease: Duration) -> PendingCall<()> {
        self.call("lock", json!({ "name": name, "leaseMs": millis(lease) }))
    }

    /// `tryLock()`: one attempt, kept alive by the watchdog.
    pub(crate) async fn try_lock(&self, name: &str) -> bool {
        self.call("tryLock", json!({ "name": name })).value().await
    }

    /// `tryLock(wait, lease, unit)`, or `tryLock(wait, unit)` with the watchdog if there is no lease.
    pub(crate) async fn try_lock_for(
        &self,
        name: &str,
        wait: Duration,
        lease: Option<Duration>,
    ) -> bool {
        self.start_try_lock_for(name, wait, lease).value().await
    }

    pub(crate) fn start_try_lock_for(
        &self,
        name: &str,
        wait: Duration,
        lease: Option<Duration>,
    ) -> PendingCall<bool> {
        let mut arguments = json!({ "name": name, "waitMs": millis(wait) });
        if let Some(lease) = lease {
            arguments["leaseMs"] = millis(lease).into();
        }
        self.call("tryLock", arguments)
    }

    pub(crate) async fn unlock(&self, name: &str) -> Result<(), JavaError> {
        self.start_unlock(name).answer().await.result
    }

    pub(crate) fn start_unlock(&self, name: &str) -> PendingCall<()> {
        self.call("unlock", json!({ "name": name }))
    }

    pub(crate) async fn force_unlock(&self, name: &str) -> bool {
        self.call("forceUnlock", json!({ "name": name }))
            .value()
            .await
    }

    pub(crate) async fn is_locked(&self, name: &str) -> bool {
        self.call("isLocked", json!({ "name": name })).value().await
    }

    /// `isHeldByCurrentThread()`.
    pub(crate) async fn is_held(&self, name: &str) -> bool {
        self.call("isHeldByCurrentThread", json!({ "name": name }))
            .value()
            .await
    }

    pub(crate) async fn hold_count(&self, name: &str) -> u64 {
        self.call("holdCount", json!({ "name": name }))
            .value()
            .await
    }

    /// `remainTimeToLive()`: -2 = no such key, -1 = a key without TTL.
    pub(crate) async fn remaining_ttl_ms(&self, name: &str) -> i64 {
        self.call("remainTimeToLive", json!({ "name": name }))
            .value()
            .await
    }

    /// Counts the string `key` up by one in each of `rounds` rounds, under the lock `name`, with
    /// `pause` between reading and writing.
    pub(crate) async fn cell(&self, name: &str, key: &str, rounds: u32, pause: Duration) {
        self.start_cell(name, key, rounds, pause).value().await;
    }

    pub(crate) fn start_cell(
        &self,
        name: &str,
        key: &str,
        rounds: u32,
        pause: Duration,
    ) -> PendingCall<()> {
        self.call(
            "cell",
            json!({ "name": name, "key": key, "rounds": rounds, "pauseMs": millis(pause) }),
        )
    }

    /// Interrupts the call that runs; false if none does, and then the next one is not hit either.
    ///
    /// It ends the wait of a `tryLock` and the pause of a cell; a waiting `lock()` waits on. Where it
    /// hits a command under way, any call ends with an error although the server still performs it.
    pub(crate) async fn interrupt(&self) -> bool {
        self.call("interrupt", json!({})).value().await
    }

    fn call<T: FromAnswer>(&self, call: &str, mut arguments: Value) -> PendingCall<T> {
        arguments["call"] = call.into();
        arguments["thread"] = self.name.as_str().into();
        PendingCall::start(&self.driver, arguments)
    }
}

/// A call that Java makes whether or not anybody waits for it.
#[must_use = "the call runs all the same, but its error would go unseen"]
pub(crate) struct PendingCall<T> {
    driver: Arc<Driver>,
    answer: oneshot::Receiver<Value>,
    result: PhantomData<T>,
}

impl<T: FromAnswer> PendingCall<T> {
    /// True once the answer is there, so false means that Java still waits.
    pub(crate) fn is_finished(&self) -> bool {
        !self.answer.is_empty()
    }

    /// What the call returned.
    ///
    /// # Panics
    /// With Java's error, if it threw.
    pub(crate) async fn value(self) -> T {
        self.answer()
            .await
            .result
            .unwrap_or_else(|error| panic!("{}: {}", error.class, error.message))
    }

    /// What the call returned or threw, and when.
    pub(crate) async fn answer(self) -> Answer<T> {
        let Ok(answer) = self.answer.await else {
            panic!("{}", self.driver.epitaph());
        };
        let micros = |field: &str| Duration::from_micros(answer[field].as_u64().expect("a time"));
        Answer {
            result: match answer["ok"].as_bool() {
                Some(true) => Ok(T::from_answer(&answer["result"])),
                _ => Err(JavaError {
                    class: text(&answer["error"]["class"]),
                    message: text(&answer["error"]["message"]),
                    cause: answer["error"]["cause"].as_str().map(str::to_owned),
                }),
            },
            at: SystemTime::UNIX_EPOCH + micros("at_us"),
            took: micros("took_us"),
        }
    }

    fn start(driver: &Arc<Driver>, call: Value) -> Self {
        Self {
            answer: driver.send(call),
            driver: Arc::clone(driver),
            result: PhantomData,
        }
    }
}

/// The end of a call, as the JVM saw it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) result: Result<T, JavaError>,
    /// The wall clock when the call returned or threw.
    pub(crate) at: SystemTime,
    pub(crate) took: Duration,
}

/// A Java exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JavaError {
    /// The full name, `java.lang.IllegalMonitorStateException`.
    pub(crate) class: String,
    /// Empty if there is none.
    pub(crate) message: String,
    /// The full name of the exception behind this one.
    pub(crate) cause: Option<String>,
}

impl JavaError {
    /// The answer to an unlock by somebody who does not hold the lock.
    pub(crate) fn is_not_owner(&self) -> bool {
        self.class == "java.lang.IllegalMonitorStateException"
    }

    /// Interrupted while it waited, or (Redisson wraps that one) while a command was under way.
    pub(crate) fn is_interrupted(&self) -> bool {
        let interrupted = "java.lang.InterruptedException";
        self.class == interrupted || self.cause.as_deref() == Some(interrupted)
    }
}

/// What a call may return.
pub(crate) trait FromAnswer {
    fn from_answer(result: &Value) -> Self;
}

impl FromAnswer for () {
    fn from_answer(_result: &Value) {}
}

impl FromAnswer for bool {
    fn from_answer(result: &Value) -> Self {
        result.as_bool().expect("a boolean")
    }
}

impl FromAnswer for u64 {
    fn from_answer(result: &Value) -> Self {
        result.as_u64().expect("a number from 0 on")
    }
}

impl FromAnswer for i64 {
    fn from_answer(result: &Value) -> Self {
        result.as_i64().expect("a number")
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a duration that Java can count")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
