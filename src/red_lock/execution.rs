//! A request under way, and the party that polls it.
//!
//! Normally its caller polls it. If the caller stops polling, the client's background ends the request,
//! and asks again if the answer is still needed (design: invariant 14). The background never polls the
//! caller's future: its timers belong to the caller's runtime and panic once that runtime has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockdog_quorum::Rules;
use parking_lot::Mutex;

use super::pending_query::{Doing, PendingQuery};
use super::query::{Completion, Request};
use super::quorum_hold::{LeftBehind, QuorumHold, QuorumHoldState, TakenOver};
use crate::clock::Moment;
use crate::panics;

/// A request under way, polled by its caller.
pub(super) struct Execution {
    /// While the caller has this locked, user code may run: its wakers, and the subscriber of its log.
    /// So the background never waits for this mutex.
    inner: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    /// `None` once it has ended, or the background has taken it over.
    under_way: Option<UnderWay>,
    /// The caller's waker.
    waker: Option<Waker>,
}

struct UnderWay {
    // Dropped in this order: effects are settled before the quorum's core is told that no answer comes.
    doing: Doing,
    /// `None` for a release, which needs no answer.
    asking: Option<PendingQuery>,
}

/// An execution, as its caller polls it. Dropping it ends the request. The output `None` means that the
/// background has taken it over.
pub(super) struct Polled(Arc<Execution>);

impl Polled {
    pub(super) fn new(hold: &Arc<QuorumHold>, request: Request) -> Self {
        let under_way = match request {
            Request::GiveBack(member, claim) => UnderWay {
                doing: Box::pin(async move { Completion::GivenBack(member, claim.unlock().await) }),
                asking: None,
            },
            Request::Ask { asked, until } => UnderWay {
                doing: asked.ask(hold, until),
                asking: Some(PendingQuery::new(hold, asked)),
            },
        };
        let inner = Shared {
            under_way: Some(under_way),
            waker: None,
        };
        Self(Arc::new(Execution {
            inner: Mutex::new(inner),
        }))
    }

    pub(super) fn execution(&self) -> Weak<dyn LeftBehind> {
        let execution: Arc<dyn LeftBehind> = self.0.clone();
        Arc::downgrade(&execution)
    }
}

impl Future for Polled {
    type Output = Option<Completion>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Completion>> {
        let mut inner = self.0.inner.lock();
        let Some(under_way) = &mut inner.under_way else {
            return Poll::Ready(None);
        };
        let Poll::Ready(done) = under_way.doing.as_mut().poll(cx) else {
            let known = inner.waker.as_ref();
            if !known.is_some_and(|waker| waker.will_wake(cx.waker())) {
                inner.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        if let Some(asking) = &mut under_way.asking {
            asking.is_answered();
        }
        let ended = inner.under_way.take();
        drop(inner);
        drop(ended);
        Poll::Ready(Some(done))
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        let left = self.0.inner.lock().under_way.take();
        // Not locked while it is dropped; the drop does not use this state.
        drop(left);
    }
}

impl QuorumHold {
    /// Lets the background check these, in case their caller stops polling. Removes those that have
    /// ended.
    pub(super) fn watch_over(self: &Arc<Self>, executions: Vec<Weak<dyn LeftBehind>>) {
        let mut state = self.state();
        let now = self.clock.now();
        let at = now + 2 * Rules::answer_limit(state.quorum.lease());
        let under_way = executions.into_iter().map(|execution| (at, execution));
        state.under_way.extend(under_way);
        self.follow(&mut state);
    }

    /// Ends what callers stopped polling, and asks again if the quorum's core still needs the answer.
    pub(super) fn take_over(self: &Arc<Self>) -> bool {
        if mutant!("red_lock_round_left_to_caller") {
            return false;
        }
        let overdue = self.see(QuorumHoldState::overdue);
        let mut is_any = false;
        for left in overdue {
            let Some(living) = left.upgrade() else {
                continue;
            };
            match living.take_over(self) {
                TakenOver::Yes => is_any = true,
                TakenOver::Ended => {}
                TakenOver::Polled => {
                    self.see(|state, now| state.under_way.push((now + LOOK_AGAIN, left)));
                    is_any = true;
                }
            }
        }
        is_any
    }

    fn end_left(self: &Arc<Self>, under_way: UnderWay, waker: Option<Waker>) {
        let UnderWay { doing, asking } = under_way;
        // Its effects are settled in the background. A panic in the drop affects only this request.
        panics::catch(|| drop(doing));
        if let Some(mut asking) = asking {
            let (is_awaited, until) = self.see(|state, now| {
                let until = now + Rules::answer_limit(state.quorum.lease());
                (asking.is_awaited(&state.quorum), until)
            });
            if is_awaited {
                self.run(asking.member(), Box::pin(asking.ask_behind(until)));
            } else {
                asking.is_answered();
            }
        }
        if let Some(waker) = waker {
            // A caller that still polls continues without it.
            panics::catch(|| waker.wake());
        }
    }
}

impl LeftBehind for Execution {
    fn take_over(self: Arc<Self>, hold: &Arc<QuorumHold>) -> TakenOver {
        // The background does not wait: user code may block the caller there.
        let Some(mut inner) = self.inner.try_lock() else {
            return TakenOver::Polled;
        };
        let Shared { under_way, waker } = std::mem::take(&mut *inner);
        drop(inner);
        let Some(under_way) = under_way else {
            return TakenOver::Ended;
        };
        hold.end_left(under_way, waker);
        TakenOver::Yes
    }
}

impl QuorumHoldState {
    /// When the background has to check what callers have under way.
    pub(super) fn overdue_at(&mut self) -> Moment {
        let is_under_way = |(_, it): &(Moment, Weak<dyn LeftBehind>)| it.strong_count() > 0;
        self.under_way.retain(is_under_way);
        let times = self.under_way.iter().map(|(at, _)| *at);
        times.min().unwrap_or(Moment::NEVER)
    }

    /// What callers should have finished by now.
    fn overdue(&mut self, now: Moment) -> Vec<Weak<dyn LeftBehind>> {
        let overdue = self.under_way.extract_if(.., |(at, _)| *at <= now);
        overdue.map(|(_, execution)| execution).collect()
    }
}

/// When to check again a request that its caller is polling right now.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
