//! The client's own thread: it renews leases, tells of lost holds, hears the locks' messages, and
//! does what dropped guards and cancelled calls left to do.
//!
//! A thread and connections of its own, so that nothing that user code does to its runtimes delays
//! a renewal (design: invariant 11).

mod listen;
mod renew;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, LostReason};
use crate::hold::State;
use crate::server::Private;
use crate::session::{Core, Job, settle};

/// Starts the thread. It ends after `core.ending` is cancelled; the token tells when it has.
pub(crate) fn start(
    core: Arc<Core>,
    mut jobs: UnboundedReceiver<Job>,
) -> Result<CancellationToken, Error> {
    let refused = |cause: std::io::Error| Error::Unavailable {
        cause: format!("no thread for the watchdog: {cause}").into(),
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    let ended = CancellationToken::new();
    let guard = ended.clone().drop_guard();
    thread::Builder::new()
        .name("lockdog".to_owned())
        .spawn(move || {
            let _tells_that_it_ended = guard;
            supervise(&core, &runtime, &mut jobs);
            // A blocking DNS look-up must not keep the thread.
            runtime.shutdown_background();
        })
        .map_err(refused)?;
    Ok(ended)
}

/// Runs the loop again after a panic, but no guard may believe in a lease that nobody watched.
fn supervise(core: &Arc<Core>, runtime: &Runtime, jobs: &mut UnboundedReceiver<Job>) {
    loop {
        let watch = AssertUnwindSafe(|| runtime.block_on(watch(core, jobs)));
        if std::panic::catch_unwind(watch).is_ok() {
            return;
        }
        tracing::error!("the watchdog panicked: every lock of this client is lost");
        for hold in core.holds.all() {
            core.lose(&hold, LostReason::Watchdog);
        }
        thread::sleep(AFTER_A_PANIC);
    }
}

pub(crate) async fn watch(core: &Arc<Core>, jobs: &mut UnboundedReceiver<Job>) {
    let own = Arc::new(Private::default());
    let mut settling = JoinSet::new();
    {
        let mut renewing = std::pin::pin!(renew::keep_renewing(core, &own));
        let mut listening = std::pin::pin!(listen::keep_listening(core));
        loop {
            tokio::select! {
                biased;
                () = core.ending.cancelled() => break,
                () = &mut renewing => {}
                () = &mut listening => {}
                Some(job) = jobs.recv(), if settling.len() < AT_ONCE => {
                    settling.spawn(do_job(core.clone(), own.clone(), job));
                }
                Some(done) = settling.join_next() => pass_on_panic(done),
            }
        }
    }
    let finish = finish(core, &own, jobs, settling);
    if tokio::time::timeout(core.server.command_timeout() * 2, finish)
        .await
        .is_err()
    {
        tracing::warn!("the client ended before every lock was released; leases will end the rest");
    }
}

/// Releases what is still held, and waits for all that is owed.
async fn finish(
    core: &Arc<Core>,
    own: &Arc<Private>,
    jobs: &mut UnboundedReceiver<Job>,
    mut settling: JoinSet<()>,
) {
    let left: Vec<Job> = core
        .holds
        .all()
        .into_iter()
        .filter(|hold| {
            let living = hold.state().is_living();
            if living {
                core.holds.change(hold, State::end);
            }
            living
        })
        .map(Job::new)
        .collect();
    for job in left {
        while settling.len() >= AT_ONCE {
            if let Some(done) = settling.join_next().await {
                pass_on_panic(done);
            }
        }
        settling.spawn(do_job(core.clone(), own.clone(), job));
    }
    jobs.close();
    loop {
        tokio::select! {
            biased;
            Some(job) = jobs.recv(), if settling.len() < AT_ONCE => {
                settling.spawn(do_job(core.clone(), own.clone(), job));
            }
            Some(done) = settling.join_next() => pass_on_panic(done),
            else => return,
        }
    }
}

async fn do_job(core: Arc<Core>, own: Arc<Private>, job: Job) {
    settle(&core, &own, job).await;
}

fn pass_on_panic(done: Result<(), JoinError>) {
    if let Err(error) = done
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// So many settlements are under way at once: enough to fill the connection.
const AT_ONCE: usize = 256;

const AFTER_A_PANIC: Duration = Duration::from_millis(100);
