//! The events of a client, which the user's own code receives as they happen: for metrics and alerts.
//!
//! Pass an [`Observer`] to [`ClientBuilder::observer`](crate::ClientBuilder::observer). It gets each
//! [`ClientEvent`]. The crate `lockdog-metrics` is such an observer; `docs/observability.md` in the repository
//! has its metrics, and what to do about each alert. [`Client::stats`](crate::Client::stats) has the numbers
//! of this moment, also without an observer.
//!
//! # Examples
//!
//! ```no_run
//! use lockdog::observe::{ClientEvent, Observer};
//!
//! struct Page;
//!
//! impl Observer for Page {
//!     fn event(&self, event: &ClientEvent<'_>) {
//!         if let ClientEvent::Lost { lock, reason, .. } = event {
//!             eprintln!("{} was lost: {reason:?}", lock.name());
//!         }
//!     }
//! }
//!
//! # async fn example() -> lockdog::Result<()> {
//! let client = lockdog::Client::builder()
//!     .url("redis://127.0.0.1:6379")
//!     .observer(Page)
//!     .build()
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod event;
mod lock_ref;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::panics;

pub use event::{ClientEvent, CommandKind, ConnectionChange, End, How, Role, WokenBy};
pub use lock_ref::LockRef;

/// Receives the events of a client.
///
/// Events come from several threads at the same time. The events of one hold come in their order, with one exception:
/// if the task of a call is not polled for a while, [`ClientEvent::Lost`] may come before its
/// [`ClientEvent::Acquired`].
pub trait Observer: Send + Sync + 'static {
    /// Called where the event happens: in the caller's task, or on the client's thread, which renews leases. It
    /// must not block, and should take microseconds. It may call the client.
    ///
    /// If it panics, the client catches the panic, logs it once as an error, and does not call this observer again.
    /// No lock is lost by that.
    fn event(&self, event: &ClientEvent<'_>);
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn event(&self, event: &ClientEvent<'_>) {
        (**self).event(event);
    }
}

/// The observers of one client.
#[derive(Clone, Default)]
pub(crate) struct Observers {
    /// Usually empty. Then no event is made.
    list: Arc<[Observed]>,
}

struct Observed {
    observer: Arc<dyn Observer>,
    /// It panicked.
    is_off: AtomicBool,
}

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        let observed = |observer| Observed {
            observer,
            is_off: AtomicBool::new(false),
        };
        Self {
            list: observers.into_iter().map(observed).collect(),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.list.is_empty()
    }

    /// Notifies each observer. An observer is user code that may call this client: no mutex may be held here.
    pub(crate) fn notify<'a>(&self, event: impl FnOnce() -> ClientEvent<'a>) {
        if !self.is_none() {
            self.notify_all(&event());
        }
    }

    #[cold]
    fn notify_all(&self, event: &ClientEvent<'_>) {
        for observed in &*self.list {
            if observed.is_off.load(Ordering::Relaxed) {
                continue;
            }
            let notified = panics::catch(|| observed.observer.event(event));
            if notified.is_none() && !observed.is_off.swap(true, Ordering::Relaxed) {
                // The user's log subscriber may panic, too.
                panics::catch(|| {
                    tracing::error!(
                        target: "lockdog::lock",
                        "an observer panicked: the client does not call it again"
                    );
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Observer for Panics {
        fn event(&self, _: &ClientEvent<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("on purpose");
        }
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Observer for Counts {
        fn event(&self, _: &ClientEvent<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_observer_that_panicked_is_not_notified_again_and_others_are() {
        let (panics, counts) = (Arc::new(Panics::default()), Arc::new(Counts::default()));
        let observers = Observers::new(vec![panics.clone(), counts.clone()]);
        for _ in 0..3 {
            observers.notify(|| ClientEvent::Late { by: Duration::ZERO });
        }
        assert_eq!(panics.0.load(Ordering::Relaxed), 1);
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn without_an_observer_no_event_is_made() {
        let observers = Observers::default();
        observers.notify(|| panic!("it is made"));
    }
}
