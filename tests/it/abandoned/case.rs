//! One future that is left after some polls, and the calls that have to continue beside it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockdog::{Error, Guard, Unlocked};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::fixture::{Checked, Fixture, Shape};
use super::public::{End, Made, Public, Situation};
use super::site::Site;
use super::steps::Steps;
use super::{LEASE, LONG, TIMEOUT};

/// The future, and where it is left.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) site: Arc<Site>,
    pub(super) public: &'static Public,
    pub(super) shape: Shape,
    pub(super) network: Network,
    pub(super) mode: Mode,
    /// The number of polls after which it is left.
    pub(super) polls: usize,
}

/// What happens to the future afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is polled to its end after the shutdown.
    Left,
    /// It is polled to its end before the shutdown.
    Resumed,
    Dropped,
    /// It is polled to its end after the shutdown. Until then nothing runs on its runtime, on which its
    /// client was built.
    Idle,
}

/// The state of the client at the first poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Well,
    /// All connections of the client were closed just before.
    Cut,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, shape, .. } = self;
        write!(f, "{} ({shape:?}, {network:?})", self.public.name)
    }
}

/// A future that was polled some times, and the guards and tasks beside it.
struct Begun {
    test: Arc<Fixture>,
    watched: Guard,
    /// `None` after it has ended or was dropped.
    left: Option<Steps<End>>,
    polled: usize,
    end: Option<End>,
    guards: Vec<Guard>,
    waiters: Vec<tokio::task::JoinHandle<Checked<()>>>,
    situation: Situation,
}

/// The other holder of the lock.
enum Beside {
    Free,
    Holder,
    Unknown,
}

impl Begun {
    fn what_is_there(&self) -> Beside {
        match self.situation {
            Situation::Freeing | Situation::Closing => Beside::Unknown,
            Situation::Busy | Situation::BusyByGuards => Beside::Holder,
            _ if !self.guards.is_empty() => Beside::Holder,
            // The lock was acquired for it.
            _ if self.end.is_some() || !self.waiters.is_empty() => Beside::Unknown,
            Situation::Nothing | Situation::UntilClosed => Beside::Free,
        }
    }
}

impl Case {
    /// The number of pending polls until the future ends, or until it is polled no further.
    pub(super) async fn polls_to_the_end(&self) -> Checked<usize> {
        let begun = self.begin(&mut Home::Here).await?;
        let polled = begun.polled;
        let test = begun.test.clone();
        test.release_by_another().await;
        // A waiter gets the lock when all of this has ended.
        let waiters = begun.waiters;
        drop((begun.left, begun.end, begun.guards, begun.watched));
        if begun.situation != Situation::Closing {
            for waiter in waiters {
                waited(waiter).await?;
            }
        }
        shut_down(&test).await?;
        Ok(polled)
    }

    pub(super) async fn run(&self) -> Checked<()> {
        let mut home = Home::of(self.mode);
        let mut begun = self.begin(&mut home).await?;
        let since = Instant::now();
        let test = begun.test.clone();
        if self.mode == Mode::Dropped {
            begun.left = None;
        }
        if begun.situation == Situation::Closing {
            return self.close_again(home, begun, since).await;
        }
        let (here, there, same) = tokio::join!(
            test.clone().take_other("here"),
            test.site.other.run(test.clone().take_other("there")),
            others_beside(&test, begun.what_is_there())
        );
        here?;
        there.map_err(|why| format!("on another runtime: {why}"))?;
        same?;
        test.release_by_another().await;
        if begun.situation == Situation::BusyByGuards {
            unlock_all(&mut begun.guards).await?;
        }
        if self.mode == Mode::Resumed
            && begun.situation != Situation::UntilClosed
            && let Some(left) = begun.left.take()
        {
            let end = timeout(LONG, left.finish()).await;
            begun.end = Some(end.map_err(|_| "polled on, it does not end".to_owned())?);
        }
        if let Some(end) = begun.end.take() {
            take_in(&test, end).await?;
        }
        for waiter in std::mem::take(&mut begun.waiters) {
            waited(waiter).await?;
        }
        if self.mode != Mode::Idle {
            unlock_all(&mut begun.guards).await?;
        }
        if begun.guards.is_empty() && !test.is_inside() {
            acquire_here_and_there(&test).await?;
        }
        // Long enough for a missed renewal.
        sleep((LEASE + LEASE / 8).saturating_sub(since.elapsed())).await;
        if !begun.watched.is_valid() {
            let lost = begun.watched.lost().await;
            return Err(format!("a watched lock was lost: {lost}"));
        }
        shut_down(&test).await?;
        self.end_after_shutdown(home, begun).await
    }

    /// Polls the future as often as the case demands.
    async fn begin(&self, home: &mut Home) -> Checked<Begun> {
        let name = self.name();
        let (site, shape, make) = (self.site.clone(), self.shape, self.public.make);
        let made = home.run({
            let name = name.clone();
            async move {
                let test = Fixture::new(site, shape, name).await?;
                let watched = test.acquire("watched").await?;
                let made = make(test.clone()).await;
                Checked::Ok((test, watched, made))
            }
        });
        let (test, watched, made) = {
            let _room = self.site.setting_up.acquire().await;
            made.await?
        };
        if self.network == Network::Cut {
            if self.site.cut(&name).await == 0 {
                return Err("there was no connection to cut".to_owned());
            }
            // The client's part of each ends, too.
            home.run(sleep(Duration::from_millis(20))).await;
        }
        let Made {
            future,
            guards,
            waiters,
            situation,
        } = made;
        let polls = self.polls;
        let (left, polled, end) = home
            .run(async move {
                let mut left = Steps::new(future);
                let (polled, end) = left.poll(polls).await;
                (left, polled, end)
            })
            .await;
        Ok(Begun {
            test,
            watched,
            left: end.is_none().then_some(left),
            polled,
            end,
            guards,
            waiters,
            situation,
        })
    }

    /// A shutdown that was left can be repeated.
    async fn close_again(&self, home: Home, mut begun: Begun, since: Instant) -> Checked<()> {
        let test = begun.test.clone();
        if self.mode == Mode::Resumed
            && let Some(left) = begun.left.take()
        {
            let end = timeout(LONG, left.finish()).await;
            begun.end = Some(end.map_err(|_| "polled on, it does not end".to_owned())?);
        }
        shut_down(&test).await?;
        if since.elapsed() > TIMEOUT * 2 {
            return Err(format!("both took {:?}", since.elapsed()));
        }
        self.end_after_shutdown(home, begun).await
    }

    /// Polls the future to its end. Afterwards it must hold nothing.
    async fn end_after_shutdown(&self, mut home: Home, mut begun: Begun) -> Checked<()> {
        if let Some(left) = begun.left.take() {
            let end = home.run(async move { timeout(LONG, left.finish()).await });
            match end.await {
                Err(_) => return Err("polled after the shutdown, it does not end".to_owned()),
                Ok(End::Acquired(guard)) if guard.is_valid() => {
                    return Err("a valid guard after the shutdown".to_owned());
                }
                Ok(End::Client(client)) => drop(client.shutdown().await),
                Ok(End::Report(report)) if report.unconfirmed > 0 => {
                    return Err(format!("{report:?}"));
                }
                Ok(_) => {}
            }
        }
        let test = begun.test.clone();
        home.run(async move { drop(begun) }).await;
        let left_behind = test.left_behind().await;
        if !left_behind.is_empty() {
            return Err(format!("after the end there is {left_behind:?}"));
        }
        test.check_exclusion()
    }

    /// For this case alone.
    fn name(&self) -> String {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        format!("case{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The other owners of the client use the lock itself while the future is left.
async fn others_beside(test: &Arc<Fixture>, there: Beside) -> Checked<()> {
    match there {
        Beside::Unknown => Ok(()),
        Beside::Holder => test.is_kept(|| true).await,
        Beside::Free if test.is_inside() => test.is_kept(|| test.is_inside()).await,
        Beside::Free => acquire_here_and_there(test).await,
    }
}

/// Uses the result of a future that was polled to its end.
async fn take_in(test: &Arc<Fixture>, end: End) -> Checked<()> {
    match end {
        End::Acquired(guard) => {
            let used = test.use_once(guard).await;
            used.map_err(|why| format!("what the future gave: {why}"))
        }
        End::Client(client) => {
            let report = client.shutdown().await;
            if report.unconfirmed > 0 {
                return Err(format!("the client that was built: {report:?}"));
            }
            Ok(())
        }
        End::Report(_) | End::Done => Ok(()),
        // Its runtime was frozen for longer than the time limit of an answer.
        End::Failed(error) if error.is_retriable() => Ok(()),
        End::Failed(Error::UnlockUnconfirmed(_) | Error::Lost(_)) => Ok(()),
        End::Failed(error) => Err(format!("polled on: {error}")),
    }
}

/// Acquires the lock on two runtimes at the same time.
async fn acquire_here_and_there(test: &Arc<Fixture>) -> Checked<()> {
    let there = test.site.other.run(test.clone().take());
    let (here, there) = tokio::join!(test.clone().take(), there);
    here?;
    there.map_err(|why| format!("on another runtime: {why}"))
}

async fn unlock_all(guards: &mut Vec<Guard>) -> Checked<()> {
    while let Some(guard) = guards.pop() {
        let is_last = guards.is_empty();
        let unlocked = timeout(LONG, guard.unlock()).await;
        match unlocked.map_err(|_| "an unlock does not end".to_owned())? {
            Ok(Unlocked::Released) => {}
            Ok(Unlocked::StillHeld { .. }) if !is_last => {}
            Ok(other) => return Err(format!("the last unlock: {other:?}")),
            Err(error) => return Err(format!("unlock: {error}")),
        }
    }
    Ok(())
}

async fn waited(waiter: tokio::task::JoinHandle<Checked<()>>) -> Checked<()> {
    let outcome = waiter.await.map_err(|panic| panic.to_string())?;
    outcome.map_err(|why| format!("a waiter: {why}"))
}

/// Shuts down all clients at the same time. They must end soon, and hold nothing.
async fn shut_down(test: &Arc<Fixture>) -> Checked<()> {
    let began = Instant::now();
    let all = join_all(test.clients.iter().map(|client| client.shutdown()));
    let reports = timeout(LONG, all).await;
    let reports = reports.map_err(|_| "the shutdown does not end".to_owned())?;
    let took = began.elapsed();
    let left_behind = test.left_behind().await;
    if reports.iter().any(|report| report.unconfirmed > 0) {
        return Err(format!("shutdown: {reports:?} after {took:?}"));
    }
    if !left_behind.is_empty() {
        return Err(format!("after {reports:?} there is {left_behind:?}"));
    }
    if took > TIMEOUT {
        return Err(format!("the shutdown took {took:?}"));
    }
    Ok(())
}

/// The runtime on which a client is built and its future is polled.
enum Home {
    Here,
    /// A runtime that runs only during a call to it.
    Idle(Option<Runtime>),
}

impl Home {
    fn of(mode: Mode) -> Self {
        if mode != Mode::Idle {
            return Self::Here;
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        Self::Idle(Some(runtime.expect("a runtime can be built")))
    }

    async fn run<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let Self::Idle(runtime) = self else {
            return work.await;
        };
        let idle = runtime.take().expect("it is not in use");
        let (idle, output) = tokio::task::spawn_blocking(move || {
            let output = idle.block_on(work);
            (idle, output)
        })
        .await
        .expect("a case does not panic");
        *runtime = Some(idle);
        output
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Self::Idle(runtime) = self
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}
