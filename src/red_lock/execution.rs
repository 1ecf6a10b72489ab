//! An order under way, and who polls it.
//!
//! Its caller does, as long as that goes on. The client's background takes over what a caller has
//! stopped polling (design: invariant 14).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::order::{Done, Order, execute};
use super::whole::{State, Whole};
use crate::clock::Moment;
use crate::quorum::Rules;

pub(super) type Doing = Pin<Box<dyn Future<Output = Done> + Send>>;

/// One order under way, which either its caller or the background polls.
pub(super) struct Execution {
    member: usize,
    inner: Mutex<Shared>,
}

struct Shared {
    /// None once it has ended, or the background has taken it over.
    doing: Option<Doing>,
    /// Of the caller.
    waker: Option<Waker>,
}

/// An execution as its caller polls it. Dropped, it ends; none as its output says that the background
/// has taken it over.
pub(super) struct Polled(Arc<Execution>);

impl Polled {
    pub(super) fn new(whole: &Arc<Whole>, order: Order) -> Self {
        let (Order::Ask { member, .. } | Order::GiveBack(member, _)) = order;
        let doing = Some(execute(whole.clone(), order));
        let waker = None;
        Self(Arc::new(Execution {
            member,
            inner: Mutex::new(Shared { doing, waker }),
        }))
    }

    pub(super) fn execution(&self) -> Weak<Execution> {
        Arc::downgrade(&self.0)
    }
}

impl Future for Polled {
    type Output = Option<Done>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Done>> {
        let mut inner = self.0.inner.lock();
        let Some(doing) = &mut inner.doing else {
            return Poll::Ready(None);
        };
        let Poll::Ready(done) = doing.as_mut().poll(cx) else {
            let known = inner.waker.as_ref();
            if !known.is_some_and(|waker| waker.will_wake(cx.waker())) {
                inner.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        let ended = inner.doing.take();
        drop(inner);
        drop(ended);
        Poll::Ready(Some(done))
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        let left = self.0.inner.lock().doing.take();
        // What follows from its end looks at nothing of this.
        drop(left);
    }
}

impl Execution {
    /// Takes it from a caller that does not poll it now; none if it has ended.
    fn take_over(&self) -> Option<Doing> {
        let mut inner = self.inner.lock();
        let doing = inner.doing.take();
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            // A caller that is there after all goes on without it.
            waker.wake();
        }
        doing
    }
}

impl Whole {
    /// Has the background look at these, in case their caller stops; and forgets those that have ended.
    pub(super) fn watch_over(self: &Arc<Self>, executions: Vec<Weak<Execution>>) {
        let mut state = self.state();
        let now = self.clock.now();
        let at = now + 2 * Rules::patience(state.quorum.lease());
        let under_way = executions.into_iter().map(|execution| (at, execution));
        state.under_way.extend(under_way);
        self.follow(&mut state);
    }

    /// Goes on with what its caller has left, for as long as an answer may take.
    pub(super) fn take_over(self: &Arc<Self>) -> bool {
        if mutant!("red_lock_round_left_to_caller") {
            return false;
        }
        let (left, limit) = self.see(|state, now| {
            let lease = state.quorum.lease();
            // The core gives it up a little before.
            let limit = now + 3 * Rules::patience(lease) / 2;
            (state.overdue(now), limit)
        });
        let left = left.iter().filter_map(Weak::upgrade);
        let mut is_any = false;
        for execution in left {
            let Some(mut doing) = execution.take_over() else {
                continue;
            };
            is_any = true;
            let whole = self.clone();
            let work = async move {
                tokio::select! {
                    biased;
                    done = &mut doing => whole.follow_behind(done),
                    // Its connection may be driven by the runtime that stopped. Dropped here, what it
                    // did is undone.
                    () = whole.clock.sleep_until(limit) => {}
                }
            };
            self.run(execution.member, Box::pin(work));
        }
        is_any
    }
}

impl State {
    /// When the background has to look at what callers have under way.
    pub(super) fn overdue_at(&mut self) -> Moment {
        let is_under_way = |(_, it): &(Moment, Weak<Execution>)| it.strong_count() > 0;
        self.under_way.retain(is_under_way);
        let times = self.under_way.iter().map(|(at, _)| *at);
        times.min().unwrap_or(Moment::NEVER)
    }

    /// What its callers should have ended by now.
    fn overdue(&mut self, now: Moment) -> Vec<Weak<Execution>> {
        let overdue = self.under_way.extract_if(.., |(at, _)| *at <= now);
        overdue.map(|(_, execution)| execution).collect()
    }
}
