//! Runs the timers of composite locks, extends the leases of their parts on request, and runs the tasks
//! that callers gave to the background thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::extend::{ExtendOutcome, extend, together};

use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::Hold;
use crate::panics;
use crate::script::RenewReply;
use crate::server::Route;
use crate::session::{BackgroundTask, Core, ExtendRequest};

/// Runs forever.
pub(super) async fn run(core: &Arc<Core>) {
    let mut tasks = JoinSet::new();
    loop {
        while let Some(done) = tasks.try_join_next() {
            panics::pass_on(done);
        }
        let mut extensions = core.mailbox.extensions();
        while !extensions.is_empty() {
            let rest = extensions.split_off(extensions.len().min(BATCH));
            for (timeout, same) in by_timeout(extensions) {
                for part in together(core, same, |it| &it.hold) {
                    tasks.spawn(extend_parts(core.clone(), part, timeout));
                }
            }
            extensions = rest;
        }
        let now = core.clock.now();
        let mut is_waiting = false;
        for timed in core.timers.due(now) {
            is_waiting |= !timed.on_due();
        }
        for task in core.mailbox.tasks() {
            let closed = core.mailbox.closed();
            // Not in the set, which ends with this loop: after a panic of the watchdog, its tasks go on. One may have
            // promised its caller to repeat a command until it is answered.
            #[expect(
                clippy::disallowed_methods,
                reason = "the end of the client's thread stops it"
            )]
            tokio::spawn(async move { closed.run_until_cancelled(run_isolated(task)).await });
        }
        // The runtime's timers stop while the machine sleeps. And a timer that is due but has nothing
        // to do yet must not cause a busy loop.
        let soon = if is_waiting { SHORTEST } else { Duration::ZERO };
        let next = match core.timers.next() {
            Moment::NEVER => Moment::NEVER,
            next => core.clock.wake_up_at(next, now, TICK).max(now + soon),
        };
        tokio::select! {
            biased;
            () = core.clock.sleep_until(next) => {}
            () = core.timers.changed() => {}
            () = core.mailbox.changed() => {}
            Some(done) = tasks.join_next() => panics::pass_on(done),
        }
    }
}

/// Runs one task. A panic in it drops its request and affects no other task.
async fn run_isolated(task: BackgroundTask) {
    if panics::catch_in(task).await.is_none() {
        // The panic may come from the user's log subscriber.
        panics::catch(|| {
            tracing::error!(
                target: "lockdog::lock",
                "a panic ended a background task"
            )
        });
    }
}

/// Groups requests with the same timeout. In one command with a request that may take longer, a lock with a short lease
/// would wait for a silent connection until after the end of its lease.
fn by_timeout(extensions: Vec<ExtendRequest>) -> BTreeMap<Duration, Vec<ExtendRequest>> {
    let mut groups: BTreeMap<Duration, Vec<ExtendRequest>> = BTreeMap::new();
    for extension in extensions {
        groups.entry(extension.timeout).or_default().push(extension);
    }
    groups
}

/// Extends these leases, whose requests have the same timeout.
async fn extend_parts(core: Arc<Core>, mut extensions: Vec<ExtendRequest>, timeout: Duration) {
    // A request that no call awaits any more must not lengthen a lock that its guard has left.
    extensions.retain(|request| !request.answer.is_closed() && request.hold.state().is_living());
    if extensions.is_empty() {
        return;
    }
    let until = core.clock.now() + timeout / 3;
    let leases: Vec<(Arc<Hold>, Duration)> = extensions
        .iter()
        .map(|ExtendRequest { hold, lease, .. }| {
            hold.state().sending(until, *lease);
            (hold.clone(), *lease)
        })
        .collect();
    let (addressees, mut callers): (Vec<_>, Vec<_>) = extensions
        .into_iter()
        .map(|request| (request.addressee, Some(request.answer)))
        .unzip();
    let asks = |at: usize, route: &Route| addressees[at].set(route);
    let ended = |ExtendOutcome { at, sent, answers }| {
        let waiting = leases[at..].iter().zip(&mut callers[at..]);
        for (((hold, lease), caller), answer) in waiting.zip(answers) {
            match answer {
                Ok(RenewReply::Extended) => core.note_renewed(hold, sent, *lease),
                // The hold may have other claims, and they are notified too.
                Ok(RenewReply::Missing) => core.lose(hold, LostReason::NotOurs),
                Ok(RenewReply::Unknown) | Err(_) => {}
            }
            if let Some(caller) = caller.take() {
                // The receiver may be gone.
                let _ = caller.send(answer);
            }
        }
    };
    extend(&core, &leases, timeout, asks, ended).await;
}

/// Locks per script call.
const BATCH: usize = 100;

const SHORTEST: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::Clock;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::server::Addressee;
    use crate::session::disconnected;

    /// A panic of another part of the watchdog ends this loop.
    #[tokio::test]
    async fn a_task_ends_with_the_thread_and_not_with_the_loop() {
        let core = disconnected(&Clock::default());
        let (go_on, goes_on) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel::<()>();
        let task = async move {
            let _ = goes_on.await;
            let _ = done.send(());
        };
        assert!(core.mailbox.run(Box::pin(task)).is_ok());
        let (kept, is_kept) = oneshot::channel::<()>();
        let endless = async move {
            std::future::pending::<()>().await;
            drop(kept);
        };
        assert!(core.mailbox.run(Box::pin(endless)).is_ok());
        assert!(run(&core).now_or_never().is_none());
        go_on.send(()).expect("the task waits");
        is_done.await.expect("it goes on");
        core.mailbox.close();
        assert!(is_kept.await.is_err());
    }

    #[tokio::test]
    async fn requests_with_different_timeouts_are_in_different_commands() {
        let core = disconnected(&Clock::default());
        let request = |seconds| {
            let key = LockKey::new(&kind::PLAIN, "l", None).unwrap();
            let timeout = Duration::from_secs(seconds);
            ExtendRequest {
                hold: core.holds.enter(&Arc::new(key), Owner::new()),
                lease: timeout,
                timeout,
                addressee: Addressee::default(),
                answer: oneshot::channel().0,
            }
        };
        let groups = by_timeout([9, 1, 9].map(request).into());
        let size = |(timeout, same): (Duration, Vec<_>)| (timeout.as_secs(), same.len());
        let sizes: Vec<_> = groups.into_iter().map(size).collect();
        assert_eq!(sizes, [(1, 1), (9, 2)]);
    }
}
