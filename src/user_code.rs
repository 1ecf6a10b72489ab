//! User code for unit tests: wakers and log subscribers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tracing::{Event, Metadata, Subscriber, span};

use crate::support::logs::subscribe_thread;

/// A waker or a log subscriber that checks at each call whether mutexes are free.
pub(crate) struct FreeAtEachCall {
    seen: Arc<Seen>,
}

struct Seen {
    is_free: Box<dyn Fn() -> bool + Send + Sync>,
    calls: Mutex<Vec<bool>>,
}

impl FreeAtEachCall {
    pub(crate) fn new(is_free: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let is_free = Box::new(is_free);
        let calls = Mutex::default();
        Self {
            seen: Arc::new(Seen { is_free, calls }),
        }
    }

    /// Polls with a waker that checks.
    pub(crate) fn poll<T>(&self, future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        let waker = Waker::from(self.seen.clone());
        future.poll(&mut Context::from_waker(&waker))
    }

    /// A function that checks at each call.
    pub(crate) fn check(&self) -> impl Fn() + Send + Sync + use<> {
        let seen = self.seen.clone();
        move || seen.call()
    }

    /// The results of the calls since this was last called.
    pub(crate) fn calls(&self) -> Vec<bool> {
        std::mem::take(&mut *self.seen.calls.lock())
    }
}

impl Seen {
    fn call(&self) {
        let is_free = (self.is_free)();
        self.calls.lock().push(is_free);
    }
}

impl Wake for Seen {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

/// A log subscriber that calls a function of the test at each event.
pub(crate) struct OnEvent<F>(pub(crate) F);

impl<F: Fn() + Send + Sync + 'static> OnEvent<F> {
    /// Does the work, whose events on this thread call the function.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let _subscribed = subscribe_thread(self);
        work()
    }
}

/// What a broken log subscriber of the user does at an event.
pub(crate) fn break_subscriber() {
    panic!("the subscriber is broken");
}

impl<F: Fn() + Send + Sync + 'static> Subscriber for OnEvent<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        (self.0)();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
