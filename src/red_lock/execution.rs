//! An order under way, and who polls it.
//!
//! Its caller does, as long as that goes on. What a caller has stopped polling, the client's background
//! ends, and asks again where the answer is still wanted (design: invariant 14). The background never
//! polls the caller's future: its timers belong to the caller's runtime, and one that has ended panics.

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

/// One order under way, which its caller polls.
pub(super) struct Execution {
    /// Code of the user may run while the caller has this locked: its wakers, and the subscriber of
    /// its log. So the background never waits for it.
    inner: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    /// None once it has ended, or the background has taken it over.
    under_way: Option<UnderWay>,
    /// Of the caller.
    waker: Option<Waker>,
}

struct UnderWay {
    // Dropped in this order: what it did is settled before the quorum is told that no answer comes.
    doing: Doing,
    /// None if it asks for nothing.
    asking: Option<PendingQuery>,
}

/// An execution as its caller polls it. Dropped, it ends; none as its output says that the background
/// has taken it over.
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
        // What follows from its end looks at nothing of this.
        drop(left);
    }
}

impl QuorumHold {
    /// Has the background look at these, in case their caller stops; and forgets those that have ended.
    pub(super) fn watch_over(self: &Arc<Self>, executions: Vec<Weak<dyn LeftBehind>>) {
        let mut state = self.state();
        let now = self.clock.now();
        let at = now + 2 * Rules::answer_limit(state.quorum.lease());
        let under_way = executions.into_iter().map(|execution| (at, execution));
        state.under_way.extend(under_way);
        self.follow(&mut state);
    }

    /// Ends what its caller has left, and asks again where the quorum still wants the answer.
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
        // What it did is settled in the background. A panic in there concerns this order alone.
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
            // A caller that is there after all goes on without it.
            panics::catch(|| waker.wake());
        }
    }
}

impl LeftBehind for Execution {
    fn take_over(self: Arc<Self>, hold: &Arc<QuorumHold>) -> TakenOver {
        // Not waited for: code of the user may keep the caller there.
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
    /// When the background has to look at what callers have under way.
    pub(super) fn overdue_at(&mut self) -> Moment {
        let is_under_way = |(_, it): &(Moment, Weak<dyn LeftBehind>)| it.strong_count() > 0;
        self.under_way.retain(is_under_way);
        let times = self.under_way.iter().map(|(at, _)| *at);
        times.min().unwrap_or(Moment::NEVER)
    }

    /// What its callers should have ended by now.
    fn overdue(&mut self, now: Moment) -> Vec<Weak<dyn LeftBehind>> {
        let overdue = self.under_way.extract_if(.., |(at, _)| *at <= now);
        overdue.map(|(_, execution)| execution).collect()
    }
}

/// When the background looks again at an order that its caller polls right now.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
