//! A test's own Redisson clients. Each call is one command to them.
//!
//! They run in the driver of `tests/redisson`. One JVM serves all tests of this process, because the
//! start of a JVM costs more than most tests do; a test that kills its JVM gets one of its own. Calls go
//! down the standard input of the JVM in the order in which they were started; answers come back in any
//! order.

mod driver;
mod java_lock;
mod jvm;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::eventually;
use driver::Driver;
pub(crate) use java_lock::JavaLock;
use jvm::Jvm;

/// A running client, or one for each of several servers. No other test uses them.
///
/// Dropping it shuts the clients down in the background, which releases no lock. With a JVM of its own
/// ([`Builder::own_jvm`]) a drop is a crash (SIGKILL), as is [`Redisson::kill`].
pub(crate) struct Redisson {
    jvm: Arc<Jvm>,
    owns_jvm: bool,
    session: u64,
    uuids: Vec<String>,
}

impl Redisson {
    /// Starts a client with Redisson's defaults.
    pub(crate) async fn start(url: &str) -> Self {
        Self::builder(url).start().await
    }

    pub(crate) fn builder(url: &str) -> Builder {
        Builder {
            settings: json!({ "urls": [url] }),
            own_jvm: false,
            clock: 0,
        }
    }

    /// A client with the settings of this configuration file, and no others.
    pub(crate) fn of_file(yaml: &str) -> Builder {
        Builder {
            settings: json!({ "yaml": yaml }),
            own_jvm: false,
            clock: 0,
        }
    }

    /// The logical thread of this name: one Java thread, created by its first call.
    pub(crate) fn thread(&self, name: &str) -> JavaThread {
        JavaThread {
            driver: Arc::clone(&self.jvm.driver),
            session: self.session,
            uuids: self.uuids.clone(),
            name: name.to_owned(),
        }
    }

    /// Any call, also one that the driver cannot perform.
    pub(crate) fn start_call(&self, call: Value) -> PendingCall<()> {
        PendingCall::start(&self.jvm.driver, self.session, call)
    }

    /// The first client's id, the first half of every [`JavaThread::field`].
    pub(crate) fn uuid(&self) -> &str {
        &self.uuids[0]
    }

    /// The process of its JVM, which other tests may use as well.
    pub(crate) fn pid(&self) -> u32 {
        self.jvm.pid()
    }

    /// SIGKILL: nothing is released. Calls in flight are never answered.
    ///
    /// # Panics
    /// Without a JVM of its own.
    pub(crate) fn kill(self) {
        assert!(
            self.owns_jvm,
            "other tests use this JVM: only one of `own_jvm` can be killed"
        );
        self.jvm.kill();
    }

    /// Redisson's own `shutdown()`, which releases no lock either; with a JVM of its own, returns when
    /// that is gone.
    pub(crate) async fn shutdown(self) {
        self.jvm.driver.forget(self.session);
        self.start_call(json!({ "call": "close" })).value().await;
        if self.owns_jvm {
            let jvm = Arc::clone(&self.jvm);
            let status = tokio::task::spawn_blocking(move || jvm.end())
                .await
                .expect("waiting for the JVM does not panic");
            assert!(status.success(), "the driver ended with {status}");
        }
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        if self.owns_jvm {
            self.jvm.kill();
        } else {
            self.jvm.driver.forget(self.session);
            // No caller waits for the answer, which is an error if the session is closed already.
            let call = json!({ "call": "close" });
            drop(self.jvm.driver.send(self.session, call));
        }
    }
}

/// Changes to Redisson's defaults.
#[must_use = "a builder does nothing itself, use `.start()`"]
pub(crate) struct Builder {
    settings: Value,
    own_jvm: bool,
    /// By how many seconds the JVM's clock is ahead.
    clock: i64,
}

impl Builder {
    /// One more server, and a client of its own for it: for locks of several.
    pub(crate) fn server(mut self, url: &str) -> Self {
        let urls = self.settings["urls"].as_array_mut().expect("a list");
        urls.push(url.into());
        self
    }

    /// `lockWatchdogTimeout`: the lease of a lock without one. Defaults to 30 s.
    pub(crate) fn watchdog_timeout(self, timeout: Duration) -> Self {
        self.set("watchdogTimeoutMs", millis(timeout))
    }

    /// A name mapper that puts this before every name, the cell's key included. Defaults to none.
    pub(crate) fn name_prefix(self, prefix: &str) -> Self {
        self.set("namePrefix", prefix)
    }

    /// Values are written by `StringCodec`. Defaults to `Kryo5Codec`.
    pub(crate) fn string_codec(self) -> Self {
        self.set("stringCodec", true)
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

    /// A JVM that no other test uses: for a test that kills it or needs it to end.
    pub(crate) fn own_jvm(mut self) -> Self {
        self.own_jvm = true;
        self
    }

    /// A JVM of its own with a wall clock this number of seconds ahead; behind if the number is negative.
    pub(crate) fn clock(mut self, seconds: i64) -> Self {
        self.clock = seconds;
        self.own_jvm()
    }

    /// Builds the driver if need be, starts a JVM if need be, and waits until the clients are connected.
    ///
    /// # Panics
    /// With Java's error, or with what the JVM wrote if the clients are not connected within 60 s.
    pub(crate) async fn start(self) -> Redisson {
        let start = move || match (self.own_jvm, self.clock) {
            (true, 0) => Arc::new(Jvm::start()),
            (true, seconds) => Arc::new(Jvm::start_with_clock(seconds)),
            (false, _) => Jvm::shared(),
        };
        let jvm = tokio::task::spawn_blocking(start).await;
        let jvm = jvm.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        // Closed by its drop from here on, if it does not open.
        let mut redisson = Redisson {
            session: jvm.driver.new_session(),
            jvm,
            owns_jvm: self.own_jvm,
            uuids: Vec::new(),
        };
        let call = json!({ "call": "open", "settings": self.settings });
        let driver = &redisson.jvm.driver;
        let opening = PendingCall::<Vec<String>>::start(driver, redisson.session, call);
        match tokio::time::timeout(READY_WITHIN, opening.value()).await {
            Ok(uuids) => redisson.uuids = uuids,
            Err(_) => panic!(
                "the clients do not connect; the JVM printed:\n{}",
                driver.output()
            ),
        }
        redisson
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
    session: u64,
    uuids: Vec<String>,
    name: String,
}

impl JavaThread {
    /// The hash field under which this thread holds a lock of the first server:
    /// `<uuid>:<thread id>`.
    pub(crate) async fn field(&self) -> String {
        self.field_on(0).await
    }

    /// As `field`, on the server with this number.
    pub(crate) async fn field_on(&self, server: usize) -> String {
        let id = self.call::<u64>("threadId", json!({})).value().await;
        format!("{}:{id}", self.uuids[server])
    }

    /// `lock()`: waits forever, kept alive by the watchdog.
    pub(crate) async fn lock(&self, lock: impl Into<JavaLock>) {
        self.start_lock(lock).value().await;
    }

    pub(crate) fn start_lock(&self, lock: impl Into<JavaLock>) -> PendingCall<()> {
        self.call("lock", lock.into().with(json!({})))
    }

    /// `lock(lease, unit)`: waits forever, ends with the lease.
    pub(crate) async fn lock_for(&self, lock: impl Into<JavaLock>, lease: Duration) {
        self.start_lock_for(lock, lease).value().await;
    }

    pub(crate) fn start_lock_for(
        &self,
        lock: impl Into<JavaLock>,
        lease: Duration,
    ) -> PendingCall<()> {
        self.call(
            "lock",
            lock.into().with(json!({ "leaseMs": millis(lease) })),
        )
    }

    /// `tryLock()`: one attempt, kept alive by the watchdog.
    pub(crate) async fn try_lock(&self, lock: impl Into<JavaLock>) -> bool {
        self.call("tryLock", lock.into().with(json!({})))
            .value()
            .await
    }

    /// `tryLock(wait, lease, unit)`, or `tryLock(wait, unit)` with the watchdog if there is no lease.
    pub(crate) async fn try_lock_for(
        &self,
        lock: impl Into<JavaLock>,
        wait: Duration,
        lease: Option<Duration>,
    ) -> bool {
        self.start_try_lock_for(lock, wait, lease).value().await
    }

    pub(crate) fn start_try_lock_for(
        &self,
        lock: impl Into<JavaLock>,
        wait: Duration,
        lease: Option<Duration>,
    ) -> PendingCall<bool> {
        let mut arguments = lock.into().with(json!({ "waitMs": millis(wait) }));
        if let Some(lease) = lease {
            arguments["leaseMs"] = millis(lease).into();
        }
        self.call("tryLock", arguments)
    }

    pub(crate) async fn unlock(&self, lock: impl Into<JavaLock>) -> Result<(), JavaError> {
        self.start_unlock(lock).answer().await.result
    }

    pub(crate) fn start_unlock(&self, lock: impl Into<JavaLock>) -> PendingCall<()> {
        self.call("unlock", lock.into().with(json!({})))
    }

    pub(crate) async fn force_unlock(&self, lock: impl Into<JavaLock>) -> bool {
        self.call("forceUnlock", lock.into().with(json!({})))
            .value()
            .await
    }

    pub(crate) async fn is_locked(&self, lock: impl Into<JavaLock>) -> bool {
        self.call("isLocked", lock.into().with(json!({})))
            .value()
            .await
    }

    /// `isHeldByCurrentThread()`.
    pub(crate) async fn is_held(&self, lock: impl Into<JavaLock>) -> bool {
        self.call("isHeldByCurrentThread", lock.into().with(json!({})))
            .value()
            .await
    }

    pub(crate) async fn hold_count(&self, lock: impl Into<JavaLock>) -> u64 {
        self.call("holdCount", lock.into().with(json!({})))
            .value()
            .await
    }

    /// `remainTimeToLive()`: -2 = no such key, -1 = a key without TTL.
    pub(crate) async fn remaining_ttl_ms(&self, lock: impl Into<JavaLock>) -> i64 {
        self.call("remainTimeToLive", lock.into().with(json!({})))
            .value()
            .await
    }

    /// `lockAndGetToken()` of a fenced lock.
    pub(crate) fn start_lock_and_get_token(&self, lock: impl Into<JavaLock>) -> PendingCall<u64> {
        self.call("lockAndGetToken", lock.into().with(json!({})))
    }

    /// `getToken()` of a fenced lock: the counter.
    pub(crate) async fn last_token(&self, lock: impl Into<JavaLock>) -> u64 {
        self.call("getToken", lock.into().with(json!({})))
            .value()
            .await
    }

    /// This method of an object that is no lock: of the one of this name that the client's method
    /// `getter` gives. Each argument is an object with one key: `int`, `long`, `ms`, `id` or `ids`.
    pub(crate) fn start_object<T: FromAnswer>(
        &self,
        (getter, name): (&str, &str),
        method: &str,
        args: Value,
    ) -> PendingCall<T> {
        let call = json!({ "getter": getter, "name": name, "method": method, "args": args });
        self.call("object", call)
    }

    /// This method of the permit-expirable semaphore.
    pub(crate) fn start_permits<T: FromAnswer>(
        &self,
        semaphore: &str,
        method: &str,
        args: Value,
    ) -> PendingCall<T> {
        self.start_object(("getPermitExpirableSemaphore", semaphore), method, args)
    }

    /// Counts the string `key` of the first server up by one in each of `rounds` rounds, under the
    /// lock, with `pause` between reading and writing.
    pub(crate) async fn cell(
        &self,
        lock: impl Into<JavaLock>,
        key: &str,
        rounds: u32,
        pause: Duration,
    ) {
        self.start_cell(lock, key, rounds, pause).value().await;
    }

    pub(crate) fn start_cell(
        &self,
        lock: impl Into<JavaLock>,
        key: &str,
        rounds: u32,
        pause: Duration,
    ) -> PendingCall<()> {
        self.call(
            "cell",
            lock.into()
                .with(json!({ "key": key, "rounds": rounds, "pauseMs": millis(pause) })),
        )
    }

    /// Waits until its call waits for a message. A message that ends the waits of all readers would be
    /// lost before.
    pub(crate) async fn waits_for_message(&self) {
        eventually(READY_WITHIN, "Java waits for a message", async || {
            self.is_waiting_for_a_message().await
        })
        .await;
    }

    pub(crate) async fn is_waiting_for_a_message(&self) -> bool {
        self.call("waitsForMessage", json!({})).value().await
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
        PendingCall::start(&self.driver, self.session, arguments)
    }
}

/// A call that Java makes whether or not a caller waits for it.
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
            panic!("{}", self.driver.why_unanswered());
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

    fn start(driver: &Arc<Driver>, session: u64, call: Value) -> Self {
        Self {
            answer: driver.send(session, call),
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
    /// The answer to an unlock by an owner that does not hold the lock.
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

impl FromAnswer for Vec<String> {
    fn from_answer(result: &Value) -> Self {
        let texts = result.as_array().expect("a list");
        texts.iter().map(text).collect()
    }
}

impl FromAnswer for Option<String> {
    fn from_answer(result: &Value) -> Self {
        result.as_str().map(str::to_owned)
    }
}

impl FromAnswer for String {
    fn from_answer(result: &Value) -> Self {
        text(result)
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

const READY_WITHIN: Duration = Duration::from_secs(60);
