//! The right to send a command for a hold, and how a holder that is not polled loses it.
//!
//! A caller's future may be polled once and abandoned. A party that needs the turn then asks for a poll:
//! it wakes the future, and a future that is not polled within a short time loses its turn
//! (design: invariant 14).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::MutexGuard;

use super::Hold;
use super::turn::{Turn, TurnHolder, TurnSnapshot, TurnWaiters};
use crate::error::Error;
use crate::server::{Connection, Permits, SendingPermit};

/// The right to send a command for one hold; returned on drop.
pub(crate) struct TurnGuard {
    hold: Arc<Hold>,
    number: u64,
}

impl Hold {
    /// Takes the right to send a command, if it is free.
    pub(crate) fn try_command(self: &Arc<Self>) -> Option<TurnGuard> {
        let mut turn = self.turn.lock();
        if !matches!(turn.holder, TurnHolder::Free) {
            return None;
        }
        Some(self.give(&mut turn))
    }

    /// As [`Hold::try_command`], unless another party waits for the turn. A caller that acquires and unlocks the
    /// hold in a loop would otherwise take each turn again before the others are polled.
    pub(crate) fn try_fair_command(self: &Arc<Self>) -> Option<TurnGuard> {
        let mut turn = self.turn.lock();
        let is_awaited = |it: &Arc<TurnWaiters>| it.is_awaited.load(Ordering::Relaxed);
        let is_free = matches!(turn.holder, TurnHolder::Free);
        if !is_free || turn.waiters.as_ref().is_some_and(is_awaited) {
            return None;
        }
        Some(self.give(&mut turn))
    }

    /// As [`Hold::try_command`], for a party that waits for the turn.
    fn try_awaited_command(self: &Arc<Self>, waiters: &TurnWaiters) -> Option<TurnGuard> {
        let mut turn = self.turn.lock();
        let is_free = matches!(turn.holder, TurnHolder::Free);
        waiters.is_awaited.store(!is_free, Ordering::Relaxed);
        is_free.then(|| self.give(&mut turn))
    }

    /// Waits for the right to send a command for this hold. A caller's frozen future loses its turn to
    /// this call. If that future's command has no answer yet, its connection is returned too, and the
    /// command has to be settled.
    ///
    /// May take as long as a lease if the command in flight is settled during an outage.
    pub(crate) async fn command(self: &Arc<Self>) -> (TurnGuard, Option<Connection>) {
        if let Some(command) = self.try_fair_command() {
            return (command, None);
        }
        let (waiters, is_free) = {
            let mut turn = self.turn.lock();
            let is_free = matches!(turn.holder, TurnHolder::Free);
            (turn.waiters.get_or_insert_default().clone(), is_free)
        };
        if is_free {
            // The parties that wait were woken at the end of the last turn, and run first. One that is not polled any
            // more delays this one by no more than that.
            tokio::task::yield_now().await;
        }
        loop {
            let mut ended = pin!(waiters.ended.notified());
            // Registered before the check, so that no end of a turn is missed.
            ended.as_mut().enable();
            if let Some(command) = self.try_awaited_command(&waiters) {
                return (command, None);
            }
            let Some(seen) = self.request_poll() else {
                ended.await;
                continue;
            };
            let is_over = tokio::time::timeout(POLL_TIMEOUT, ended).await.is_ok();
            if !is_over && let Some(taken) = self.take_over(seen) {
                return taken;
            }
        }
    }

    /// Notes that the client's background thread sends a command on this connection.
    pub(crate) fn asks_on(&self, connection: &Connection) {
        self.turn.lock().server = connection.server().cloned();
    }

    /// The server of the deployment that got the last command for this hold. If that command has no
    /// answer, the client waits for this server.
    fn asked_server(&self) -> Option<Arc<str>> {
        self.turn.lock().server.clone()
    }

    /// The error for a caller that waited this long for an answer for this hold.
    pub(crate) fn unanswered(&self, waited: Duration) -> Error {
        Error::timeout(waited).at(self.asked_server().as_deref())
    }

    /// A caller's future has the turn, and may be frozen.
    pub(crate) fn is_with_caller(&self) -> bool {
        matches!(self.turn.lock().holder, TurnHolder::Caller(_))
    }

    fn give(self: &Arc<Self>, turn: &mut Turn) -> TurnGuard {
        turn.number += 1;
        turn.holder = TurnHolder::Caller(Box::default());
        TurnGuard {
            hold: self.clone(),
            number: turn.number,
        }
    }

    /// Wakes the future that has the turn, to see whether it is polled. Returns `None` if no caller's
    /// future has it.
    pub(crate) fn request_poll(&self) -> Option<TurnSnapshot> {
        let (seen, waker) = {
            let mut turn = self.turn.lock();
            // Taken and not cloned, because a clone runs the caller's code. The future leaves a new
            // waker at its next poll, and needs no second wake-up before that.
            (turn.seen()?, turn.caller_mut()?.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(seen)
    }

    /// The turn of the caller that has it, to see later whether the future was polled.
    pub(crate) fn turn_of_caller(&self) -> Option<TurnSnapshot> {
        self.turn.lock().seen()
    }

    /// The future was polled since then, or its turn is over.
    pub(crate) fn was_polled_since(&self, since: TurnSnapshot) -> bool {
        self.turn.lock().seen() != Some(since)
    }

    /// Whether the future that has the turn was not polled since the last call of this function; `None` if no
    /// caller's future has it. Called repeatedly by the watchdog for a slow release.
    pub(crate) fn was_not_polled(&self) -> Option<bool> {
        let asked = self.turn.lock().caller_mut()?.asked.take();
        if asked.is_some_and(|seen| !self.was_polled_since(seen)) {
            return Some(true);
        }
        let seen = self.request_poll()?;
        self.turn.lock().caller_mut()?.asked = Some(seen);
        Some(false)
    }

    /// Takes the turn from a future that has not been polled since then.
    fn take_over(self: &Arc<Self>, since: TurnSnapshot) -> Option<(TurnGuard, Option<Connection>)> {
        let mut turn = self.turn.lock();
        if turn.seen() != Some(since) {
            return None;
        }
        let holder = std::mem::take(&mut turn.holder);
        let command = self.give(&mut turn);
        if let Some(waiters) = &turn.waiters {
            // The caller waited for it. Other parties that wait find it taken when they look again.
            waiters.is_awaited.store(false, Ordering::Relaxed);
        }
        // The old holder contains a waker, and dropping a waker runs the caller's code.
        drop(turn);
        match holder {
            TurnHolder::Caller(caller) => Some((command, caller.on)),
            TurnHolder::Free | TurnHolder::Background => Some((command, None)),
        }
    }
}

impl TurnGuard {
    /// The turn was not taken over.
    pub(crate) fn is_valid(&self) -> bool {
        self.hold.turn.lock().number == self.number
    }

    /// Allows a command to be sent only while this turn is valid. Starts a new attempt, which has asked
    /// no server yet.
    pub(crate) fn permit(&self) -> SendingPermit {
        let mut turn = self.hold.turn.lock();
        if turn.number == self.number {
            turn.server = None;
        }
        drop(turn);
        SendingPermit::new(self.hold.clone(), self.number)
    }

    /// The client's background thread drives the command from now on.
    pub(crate) fn into_background(self) -> Self {
        let mut turn = self.hold.turn.lock();
        let is_valid = turn.number == self.number;
        let old = is_valid.then(|| std::mem::replace(&mut turn.holder, TurnHolder::Background));
        drop(turn);
        // Not under the mutex: dropping the waker runs the caller's code.
        drop(old);
        self
    }

    /// Drives the sending of a command until its answer. Returns `None` if one of its turns was taken
    /// over.
    pub(crate) async fn drive<F: Future>(
        turns: &[&Self],
        mut sending: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut is_first = true;
        let answer = poll_fn(|context| {
            // A turn without a command in flight has no waker.
            let by = context.waker();
            let is_polled = match std::mem::replace(&mut is_first, false) {
                true => turns.iter().all(|turn| turn.is_polled_with(by.clone())),
                false => turns.iter().all(|turn| turn.is_polled(by)),
            };
            if !is_polled {
                return Poll::Ready(None);
            }
            let polled = sending.as_mut().poll(context);
            // The system may have suspended the thread in this poll before the command was sent. Then another
            // party may have settled it already. A command that is not written yet is never sent if its future
            // is dropped now.
            if polled.is_pending() && !turns.iter().all(|turn| turn.is_valid()) {
                return Poll::Ready(None);
            }
            polled.map(Some)
        })
        .await?;
        // Evaluated for every turn: no command is in flight any more.
        let taken_over = turns.iter().filter(|turn| !turn.is_answered()).count();
        (taken_over == 0).then_some(answer)
    }

    /// Records a poll. Returns false if the turn was taken over before.
    fn is_polled(&self, by: &Waker) -> bool {
        let turn = self.hold.turn.lock();
        let is_known = turn.caller().is_none_or(|caller| {
            let waker = caller.waker.as_ref();
            waker.is_some_and(|it| it.will_wake(by))
        });
        if is_known {
            return self.record_poll(turn, None);
        }
        // Cloning a waker runs the caller's code, so the mutex is not held.
        drop(turn);
        self.is_polled_with(by.clone())
    }

    /// As [`TurnGuard::is_polled`], with a waker that the turn does not have yet.
    fn is_polled_with(&self, new: Waker) -> bool {
        let turn = self.hold.turn.lock();
        self.record_poll(turn, Some(new))
    }

    fn record_poll(&self, mut turn: MutexGuard<'_, Turn>, mut new: Option<Waker>) -> bool {
        // Dropping a waker runs the caller's code, so each one is dropped after the mutex is released.
        if turn.number != self.number {
            drop(turn);
            return false;
        }
        let mut old = None;
        if let Some(caller) = turn.caller_mut() {
            caller.polls = caller.polls.wrapping_add(1);
            if new.is_some() {
                old = std::mem::replace(&mut caller.waker, new.take());
            }
        }
        drop(turn);
        drop(old);
        true
    }

    /// Notes that no command is in flight. Returns false if the turn was taken over.
    fn is_answered(&self) -> bool {
        let mut turn = self.hold.turn.lock();
        if turn.number != self.number {
            return false;
        }
        let caller = turn.caller_mut();
        let old = caller.map(|caller| (caller.on.take(), caller.waker.take()));
        drop(turn);
        drop(old);
        true
    }
}

impl Permits for Hold {
    fn leaves(&self, number: u64, connection: &Connection) -> bool {
        let mut turn = self.turn.lock();
        if turn.number != number {
            return false;
        }
        let caller = turn.caller_mut();
        let old = caller.and_then(|caller| caller.on.replace(connection.clone()));
        turn.server = connection.server().cloned();
        drop(turn);
        drop(old);
        true
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        let mut turn = self.hold.turn.lock();
        if turn.number != self.number {
            return;
        }
        let holder = std::mem::take(&mut turn.holder);
        let waiters = turn.waiters.clone();
        drop(turn);
        // Not under the mutex: this may drop the last handle of the connection.
        drop(holder);
        if let Some(waiters) = waiters {
            waiters.ended.notify_waiters();
        }
    }
}

/// A future that was woken is polled within this time, unless it is abandoned or its runtime is
/// blocked. A future that is taken over by mistake sends its command again: that costs one command.
pub(crate) const POLL_TIMEOUT: Duration = Duration::from_millis(50);

/// The background checks on an unlock that takes this long, and does it itself if its future is not
/// polled for the same time again. Another client may be waiting for the lock, which this client cannot
/// know.
pub(crate) const SLOW_UNLOCK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use parking_lot::Mutex;

    use super::*;
    use crate::clock::Clock;
    use crate::hold::Holds;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;

    #[test]
    fn a_poll_keeps_the_turn_from_earlier_takeover_requests() {
        let hold = hold();
        let turn = hold.try_command().expect("no other command has it");
        let first = hold.request_poll().expect("it is a caller's");
        assert!(turn.is_polled(Waker::noop()));
        // A second party asks, which has seen no sign yet.
        let second = hold.request_poll().expect("it is a caller's");
        assert!(hold.was_polled_since(first));
        assert!(hold.take_over(first).is_none());
        assert!(turn.is_valid());
        assert!(!hold.was_polled_since(second));
        assert!(hold.take_over(second).is_some());
        assert!(!turn.is_valid());
    }

    /// The party that had the last turn wants the next one before the one that waits is polled.
    #[tokio::test]
    async fn a_party_that_waits_for_the_turn_gets_it_before_the_last_one_again() {
        let hold = hold();
        let last = hold.try_command().expect("no other command has it");
        let mut waits = pin!(hold.command());
        assert!(waits.as_mut().now_or_never().is_none());
        drop(last);
        assert!(hold.try_fair_command().is_none());
        let mut again = pin!(hold.command());
        assert!(again.as_mut().now_or_never().is_none());
        let (turn, _) = waits.now_or_never().expect("the turn is free");
        drop(turn);
        let (turn, _) = again.now_or_never().expect("the turn is free");
        drop(turn);
        assert!(hold.try_fair_command().is_some());
    }

    #[tokio::test]
    async fn a_party_that_waits_and_is_not_polled_keeps_no_other_from_the_turn() {
        let hold = hold();
        let last = hold.try_command().expect("no other command has it");
        let mut left = pin!(hold.command());
        assert!(left.as_mut().now_or_never().is_none());
        drop(last);
        let (turn, _) = hold.command().await;
        drop(turn);
        assert!(hold.try_fair_command().is_some());
    }

    fn hold() -> Arc<Hold> {
        let holds = Holds::new(Clock::default(), false);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        holds.enter(&key, Owner::new())
    }

    #[test]
    fn a_future_is_reported_unpolled_after_two_checks_without_a_poll() {
        let hold = hold();
        assert_eq!(hold.was_not_polled(), None);
        let turn = hold.try_command().expect("no other command has it");
        assert_eq!(hold.was_not_polled(), Some(false));
        assert!(turn.is_polled(Waker::noop()));
        assert_eq!(hold.was_not_polled(), Some(false));
        assert_eq!(hold.was_not_polled(), Some(true));
        let turn = turn.into_background();
        assert_eq!(hold.was_not_polled(), None);
        drop(turn);
        // Another turn belongs to another future.
        let _turn = hold.try_command().expect("no other command has it");
        assert_eq!(hold.was_not_polled(), Some(false));
    }

    /// The caller's code, which runs when the last handle of its waker is dropped.
    struct OnLastDrop {
        hold: Arc<Hold>,
        seen: Arc<Mutex<Vec<bool>>>,
    }

    impl std::task::Wake for OnLastDrop {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for OnLastDrop {
        fn drop(&mut self) {
            let is_free = self.hold.turn.try_lock().is_some();
            self.seen.lock().push(is_free);
        }
    }

    #[test]
    fn a_new_attempt_does_not_name_the_server_of_the_previous_attempt() {
        let hold = hold();
        let turn = hold.try_command().expect("no other command has it");
        let asked = |server: &str| hold.turn.lock().server = Some(server.into());
        let server = || hold.asked_server();
        let _first = turn.permit();
        asked("old:6379");
        assert_eq!(server().as_deref(), Some("old:6379"));
        let _second = turn.permit();
        assert_eq!(server(), None);
        asked("new:6379");
        // A future whose turn is over does not change what later attempts asked.
        let sign = hold.request_poll().expect("it is a caller's");
        let _taken = hold.take_over(sign).expect("it gave no sign");
        let _late = turn.permit();
        assert_eq!(server().as_deref(), Some("new:6379"));
    }

    /// Counts the handles of a waker when it is woken.
    struct Handles(Mutex<Vec<usize>>);

    impl std::task::Wake for Handles {
        fn wake(self: Arc<Self>) {
            self.0.lock().push(Arc::strong_count(&self));
        }
    }

    #[test]
    fn no_waker_is_cloned_while_the_turn_is_locked() {
        let hold = hold();
        let turn = hold.try_command().expect("no other command has it");
        let handles = Arc::new(Handles(Mutex::default()));
        for _ in 0..2 {
            assert!(turn.is_polled(&Waker::from(handles.clone())));
            hold.request_poll().expect("it is a caller's");
            // It was woken, and not polled since.
            hold.request_poll().expect("it is a caller's");
        }
        // The poll's own handle and the woken one.
        assert_eq!(*handles.0.lock(), [2; 2]);
    }

    #[test]
    fn no_waker_is_dropped_while_the_turn_is_locked() {
        let hold = hold();
        let seen = Arc::default();
        let poll = |turn: &TurnGuard| {
            let (hold, seen) = (turn.hold.clone(), Arc::clone(&seen));
            assert!(turn.is_polled(&Waker::from(Arc::new(OnLastDrop { hold, seen }))));
        };
        let turn = hold.try_command().expect("no other command has it");
        poll(&turn);
        // The task has another waker.
        poll(&turn);
        assert_eq!(*seen.lock(), [true]);
        assert!(turn.is_answered());
        assert_eq!(*seen.lock(), [true; 2]);
        poll(&turn);
        let asked = hold.request_poll().expect("it is a caller's");
        let (turn, _) = hold.take_over(asked).expect("it gave no sign");
        assert_eq!(*seen.lock(), [true; 3]);
        poll(&turn);
        let turn = turn.into_background();
        assert_eq!(*seen.lock(), [true; 4]);
        drop(turn);
    }
}
