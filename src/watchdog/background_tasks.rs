//! Runs the timers of composite locks, extends the leases of their parts on request, and runs the tasks
//! that callers gave to the background thread.

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
            for part in together(core, extensions, |it| &it.hold) {
                tasks.spawn(extend_parts(core.clone(), part));
            }
            extensions = rest;
        }
        let now = core.clock.now();
        let mut is_waiting = false;
        for timed in core.timers.due(now) {
            is_waiting |= !timed.on_due();
        }
        for task in core.mailbox.tasks() {
            tasks.spawn(run_isolated(task));
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

async fn extend_parts(core: Arc<Core>, mut extensions: Vec<ExtendRequest>) {
    // A request that no call awaits any more must not lengthen a lock that its guard has left.
    extensions.retain(|request| !request.answer.is_closed() && request.hold.state().is_living());
    if extensions.is_empty() {
        return;
    }
    let longest = extensions.iter().map(|extension| extension.timeout).max();
    let longest = longest.unwrap_or_default();
    let until = core.clock.now() + longest / 3;
    let leases: Vec<(Arc<Hold>, Duration)> = extensions
        .iter()
        .map(|ExtendRequest { hold, lease, .. }| {
            hold.state().sending(until, *lease);
            (hold.clone(), *lease)
        })
        .collect();
    let asks = |at: usize, route: &Route| extensions[at].addressee.set(route);
    let ExtendOutcome { sent, answers } = extend(&core, &leases, longest, asks).await;
    for (extension, answer) in extensions.into_iter().zip(answers) {
        let ExtendRequest { hold, lease, .. } = &extension;
        match answer {
            Ok(RenewReply::Extended) => core.note_renewed(hold, sent, *lease),
            // The hold may have other claims, and they are notified too.
            Ok(RenewReply::Missing) => core.lose(hold, LostReason::NotOurs),
            Ok(RenewReply::Unknown) | Err(_) => {}
        }
        // The receiver may be gone.
        let _ = extension.answer.send(answer);
    }
}

/// Locks per script call.
const BATCH: usize = 100;

const SHORTEST: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(100);
