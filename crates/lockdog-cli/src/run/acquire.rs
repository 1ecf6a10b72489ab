//! Gets the lock for a command, and ends it.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::{Duration, Instant};

use lockdog::error::LostReason;
use lockdog::report::{HoldInfo, HolderInfo, Ttl};
use lockdog::{AnyLock, Client, Error, Guard, MultiLock, RedLock};
use rustix::process::Signal;

use super::ancestors::Ancestors;
use super::arguments::{Args, Wait};
use super::report::Report;
use super::signals::Signals;
use crate::connect::Settings;
use crate::duration;
use crate::failed::Failed;
use crate::output::{Output, clean};

/// The held lock of a command.
pub(super) struct HeldLock {
    clients: Vec<Client>,
    guard: Guard,
    /// Its holds in Redis: one for each name, or one for each server of a RedLock.
    pub(super) holds: Vec<HoldInfo>,
}

/// What became of the acquire.
pub(super) enum Outcome {
    Acquired(HeldLock),
    /// Another owner has the lock.
    Busy,
    /// A `lockdog run` above this one holds it, and the user wants the command to run under that hold.
    Nested,
    /// This signal ended the wait.
    Signalled(Signal),
}

/// Acquires the lock within the user's wait. Leaves nothing behind if it fails.
pub(super) async fn acquire(
    args: &Args,
    settings: &Settings,
    ancestors: &Ancestors,
    signals: &mut Signals,
    output: Output,
    report: &mut Report,
) -> Result<Outcome, Failed> {
    let began = Instant::now();
    let mut clients = Vec::new();
    for builder in settings.builders() {
        let building = builder.watchdog_lease(args.lease).build();
        tokio::select! {
            client = building => clients.push(client?),
            signal = signals.ending() => return Ok(Outcome::Signalled(signal)),
        }
    }
    let outcome = tokio::select! {
        outcome = wait(args, &clients, ancestors, output) => outcome,
        signal = signals.ending() => Ok(Waited::Signalled(signal)),
    };
    report.waited(began.elapsed());
    let waited = match outcome {
        Ok(Waited::Acquired(guard)) => {
            report.token(guard.token());
            let of_lock = |hold: &HoldInfo| args.names().any(|name| name == hold.lock);
            let holds = clients.iter().flat_map(Client::holds).filter(of_lock);
            return Ok(Outcome::Acquired(HeldLock {
                holds: holds.collect(),
                guard,
                clients,
            }));
        }
        Ok(Waited::Busy) => Ok(Outcome::Busy),
        Ok(Waited::Nested) => Ok(Outcome::Nested),
        Ok(Waited::Signalled(signal)) => Ok(Outcome::Signalled(signal)),
        Err(failed) => Err(failed),
    };
    shut_down(&clients).await;
    waited
}

enum Waited {
    Acquired(Guard),
    Busy,
    Nested,
    Signalled(Signal),
}

async fn wait(
    args: &Args,
    clients: &[Client],
    ancestors: &Ancestors,
    output: Output,
) -> Result<Waited, Failed> {
    let held = ancestors.holding(args, clients).await?;
    if let Some(name) = held.first() {
        let left = args.names().find(|name| !held.iter().any(|it| it == name));
        return match (args.reenter, left) {
            (true, None) => Ok(Waited::Nested),
            (true, Some(left)) => Err(Failed::new(format_args!(
                "{} is held by a lockdog run above this one, and {} is not; name both in that run, and --reenter here",
                clean(name),
                clean(left)
            ))),
            (false, _) => Err(Failed::new(format_args!(
                "{} is held by a lockdog run above this one, which waits for it; --reenter runs the command under that hold",
                clean(name)
            ))),
        };
    }
    let lock = lock(args, clients);
    let acquiring = async {
        match args.wait() {
            Wait::Forever => lock.lock().await.map(Some),
            Wait::For(Duration::ZERO) => lock.try_lock().await,
            Wait::For(time) => lock.try_lock().wait(time).await,
        }
    };
    let mut acquiring = pin!(acquiring);
    let notes_wait = output.verbose > 0 || io::stderr().is_terminal();
    let guard = tokio::select! {
        guard = &mut acquiring => guard,
        () = note_wait(args, clients, output), if notes_wait => acquiring.await,
    };
    match guard {
        Ok(Some(guard)) => Ok(Waited::Acquired(guard)),
        Ok(None) => Ok(Waited::Busy),
        // The wait is over, and it is unknown whether another owner has the lock.
        Err(error) => Err(error.into()),
    }
}

fn lock(args: &Args, clients: &[Client]) -> Box<dyn AnyLock> {
    match clients {
        [client] if !args.also.is_empty() => {
            Box::new(MultiLock::new(args.names().map(|name| client.lock(name))))
        }
        [client] if args.fenced => Box::new(client.fenced_lock(&args.name)),
        [client] => Box::new(client.lock(&args.name)),
        _ => {
            let locks = clients.iter().map(|client| client.lock(&args.name));
            let lock = RedLock::new(locks);
            Box::new(if args.fenced { lock.fenced() } else { lock })
        }
    }
}

/// Says for whom the user waits, once the wait is long enough to wonder.
async fn note_wait(args: &Args, clients: &[Client], output: Output) {
    tokio::time::sleep(SILENT).await;
    for name in args.names() {
        for client in clients {
            // The wait itself reports what goes wrong.
            if let Ok(Some(holder)) = client.lock(name).holder().await {
                let name = clean(name);
                output.note(format_args!(
                    "waiting for {name}, held by {}",
                    described(&holder)
                ));
                return;
            }
        }
    }
    output.note(format_args!("waiting for {}", clean(&args.name)));
}

fn described(holder: &HolderInfo) -> String {
    let program = match (holder.client_id(), holder.is_lockdog()) {
        (Some(_), true) => "lockdog",
        (Some(_), false) => "Redisson",
        (None, _) => "an unknown program",
    };
    let ttl = match holder.ttl {
        Ttl::Expires(ttl) => format!("ttl {}", duration::shown(ttl)),
        Ttl::Persistent => "no ttl".to_owned(),
    };
    format!("{program} {} ({ttl})", clean(holder.field()))
}

impl HeldLock {
    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Releases the lock, and says so if that is not certain. The exit code stays the command's. `known` is a loss
    /// that the command reported to the user. Returns why the lock was lost, if it was.
    pub(super) async fn release(
        self,
        known: Option<LostReason>,
        output: Output,
    ) -> Option<LostReason> {
        let lost = match self.guard.unlock().await {
            Ok(_) => known,
            Err(Error::Lost(lost)) => known.or_else(|| {
                let reason = lost.reason();
                output.note(format_args!(
                    "the lock was lost, perhaps while the command ran: {reason}"
                ));
                Some(reason)
            }),
            Err(error) => {
                output.note(format_args!(
                    "the release is not confirmed; the lock ends with its lease: {error}"
                ));
                known
            }
        };
        shut_down(&self.clients).await;
        lost
    }

    /// Ends a lock that is lost, or about to be.
    pub(super) async fn abandon(self) {
        drop(self.guard);
        shut_down(&self.clients).await;
    }
}

/// Releases what is held. A server that does not answer must not delay the exit for long: what it still has
/// ends with its lease.
async fn shut_down(clients: &[Client]) {
    let all = async {
        for client in clients {
            client.shutdown().await;
        }
    };
    // It may have taken its time before.
    let _ = tokio::time::timeout(SHUTDOWN, all).await;
}

/// Nothing is said before.
const SILENT: Duration = Duration::from_secs(1);
const SHUTDOWN: Duration = Duration::from_secs(2);
