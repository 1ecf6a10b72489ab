//! The client's background thread. It renews leases, reports lost holds, receives the locks' messages,
//! probes silent servers, follows failovers, and completes what dropped guards and cancelled calls left
//! to do.
//!
//! It has its own thread and connections, so that nothing that user code does to its runtimes delays a
//! renewal (design: invariant 11).

mod background_tasks;
mod check;
mod extend;
mod listen;
mod probe;
mod renew;
mod settling;
mod switch;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::background::Thread;
use crate::error::LostReason;
use crate::hold::{Hold, HoldPhase};
use crate::panics;
use crate::session::{Core, Job};
use settling::Settlements;

/// Starts the loop on the client's thread, which ends after `core.ending` is cancelled. The returned
/// token is cancelled when it has ended.
pub(crate) fn start(
    core: Arc<Core>,
    mut jobs: UnboundedReceiver<Job>,
    thread: Option<Thread>,
) -> CancellationToken {
    if let Some(thread) = thread {
        return thread.run(move |runtime| supervise(&core, runtime, &mut jobs));
    }
    let ended = CancellationToken::new();
    let guard = ended.clone().drop_guard();
    let background = core.server.background().clone();
    background.spawn(async move {
        let _cancels_when_it_ends = guard;
        supervise_here(&core, &mut jobs).await;
    });
    ended
}

/// As [`supervise`], but the loop is a task on the callers' runtime.
async fn supervise_here(core: &Arc<Core>, jobs: &mut UnboundedReceiver<Job>) {
    while panics::catch_in(watch(core, jobs)).await.is_none() {
        recover(core);
        tokio::time::sleep(AFTER_A_PANIC).await;
    }
}

/// Restarts the loop after a panic. The leases were not watched meanwhile, so no hold may count as held.
fn supervise(core: &Arc<Core>, runtime: &Runtime, jobs: &mut UnboundedReceiver<Job>) {
    loop {
        if panics::catch(|| runtime.block_on(watch(core, jobs))).is_some() {
            return;
        }
        recover(core);
        // The other tasks of the runtime continue meanwhile.
        runtime.block_on(async { tokio::time::sleep(AFTER_A_PANIC).await });
    }
}

/// Recovers after a panic of the loop: all holds are lost, and pending releases are queued again.
fn recover(core: &Arc<Core>) {
    let holds = core.holds.all();
    let lose = |hold: &&Arc<Hold>| {
        if core.lose_without_log(hold, LostReason::Watchdog) {
            return true;
        }
        // The loop may have lost it, and panicked before it notified the holder.
        let is_unreported = hold.state().unreported.is_some();
        if is_unreported {
            hold.announce_lost();
        }
        is_unreported
    };
    let lost: Vec<&Arc<Hold>> = holds.iter().filter(lose).collect();
    // Notify the holders before logging: the user's log subscriber may be what panics.
    panics::catch(|| {
        tracing::error!(
            target: "lockdog::renewal",
            "the watchdog panicked: every lock of this client is lost"
        );
        for hold in lost {
            core.report_lost(hold);
        }
    });
    for hold in holds {
        if hold.state().phase == HoldPhase::Ended {
            // Its pending job was dropped with the loop.
            core.settle_in_background(Job::new(hold));
        }
    }
}

pub(crate) async fn watch(core: &Arc<Core>, jobs: &mut UnboundedReceiver<Job>) {
    let mut settling = Settlements::new(core);
    {
        let mut renewing = pin!(renew::keep_renewing(core));
        let mut listening = pin!(listen::keep_listening(core));
        let mut running_tasks = pin!(background_tasks::run(core));
        let mut probing = pin!(probe::keep_probing(core));
        let mut following = pin!(switch::keep_following(core));
        let mut checking = pin!(check::keep_checking(core));
        let mut forgetting = pin!(core.waiters.end_idle());
        let mut ending = pin!(ended(core));
        loop {
            tokio::select! {
                biased;
                () = &mut ending => break,
                () = &mut renewing => {}
                () = &mut listening => {}
                () = &mut running_tasks => {}
                () = &mut probing => {}
                () = &mut following => {}
                () = &mut checking => {}
                () = &mut forgetting => {}
                Some(job) = jobs.recv() => settling.begin(job),
                () = settling.process_next() => {}
            }
        }
    }
    core.timers.close();
    core.mailbox.close();
    let timeout = core.server.command_timeout() * 2;
    let finish = settling.finish(jobs);
    if tokio::time::timeout(timeout, finish).await.is_err() {
        tracing::warn!(
            target: "lockdog::lock",
            "the client ended before all locks were released; the rest expire with their leases"
        );
        let holds = core.holds.all();
        let stays = |hold: &&Arc<Hold>| !hold.key().kind().has_lease();
        let acquires = holds.iter().filter(stays).count();
        if acquires > 0 {
            tracing::warn!(
                target: "lockdog::lock",
                { acquires },
                "permits without a lease stay in use until they are reclaimed"
            );
        }
    }
    // Locks and guards that outlive the client must keep no connection open.
    core.server.end();
}

/// Completes when the client has ended and its unanswered calls are answered, or after two command timeouts.
/// A shutdown has waited for these calls before.
async fn ended(core: &Core) {
    core.ending.cancelled().await;
    let deadline = core.clock.now() + core.server.command_timeout() * 2;
    core.finish_calls(deadline).await;
}

const AFTER_A_PANIC: Duration = Duration::from_millis(100);
