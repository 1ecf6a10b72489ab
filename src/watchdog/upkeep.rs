//! Looking after locks of many instances, and extending the leases of their parts.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::pass_on_panic;
use crate::clock::Moment;
use crate::error::LostReason;
use crate::key::LockKey;
use crate::script::{self, Renewed};
use crate::server::Failure;
use crate::session::{Core, Extension};

/// Looks after them for ever.
pub(super) async fn keep_up(core: &Arc<Core>) {
    let mut tasks = JoinSet::new();
    loop {
        while let Some(done) = tasks.try_join_next() {
            pass_on_panic(done);
        }
        let mut extensions = core.upkeep.extensions();
        while !extensions.is_empty() {
            let rest = extensions.split_off(extensions.len().min(BATCH));
            for part in core.server.split(extensions, |it| it.hold.key().key()) {
                tasks.spawn(extend(core.clone(), part));
            }
            extensions = rest;
        }
        let now = core.clock.now();
        let mut is_waiting = false;
        for kept in core.upkeep.due(now) {
            is_waiting |= !kept.look();
        }
        for work in core.upkeep.work() {
            tasks.spawn(work);
        }
        // A sleeping machine stops the runtime's timers, and what is due but has nothing to do yet
        // must not make this busy.
        let soon = if is_waiting { SHORTEST } else { Duration::ZERO };
        let next = match core.upkeep.next() {
            Moment::NEVER => Moment::NEVER,
            next => next.min(now + TICK).max(now + soon),
        };
        tokio::select! {
            biased;
            () = core.clock.sleep_until(next) => {}
            () = core.upkeep.changed() => {}
            Some(done) = tasks.join_next() => pass_on_panic(done),
        }
    }
}

async fn extend(core: Arc<Core>, extensions: Vec<Extension>) {
    let longest = extensions.iter().map(|extension| extension.lease).max();
    let limit = longest.unwrap_or_default() / 3;
    let sent = core.clock.now();
    let answers = send(&core, &extensions, limit).await;
    let now = core.clock.now();
    for (index, extension) in extensions.into_iter().enumerate() {
        let Extension { hold, lease, .. } = &extension;
        let answer = match &answers {
            Ok(answers) => Ok(answers.get(index).copied().unwrap_or(Renewed::Unknown)),
            Err(failure) => Err(failure.clone()),
        };
        match answer {
            Ok(Renewed::Extended) => core
                .holds
                .change(hold, |state| state.renew(sent, *lease, now)),
            // Whoever holds it beside the whole is told, too.
            Ok(Renewed::Missing) => core.lose(hold, LostReason::NotOurs),
            Ok(Renewed::Unknown) | Err(_) => {}
        }
        // Whoever asked may have lost patience.
        let _ = extension.answer.send(answer);
    }
}

async fn send(
    core: &Core,
    extensions: &[Extension],
    limit: Duration,
) -> Result<Vec<Renewed>, Failure> {
    let key = extensions.first().map_or("", |it| it.hold.key().key());
    let node = core.server.node(key)?;
    let connection = node.own_connection(limit).await?;
    let now = core.clock.now();
    let leases = extensions.iter().map(|extension| extension.lease);
    node.vouch(now, leases.min().unwrap_or_default())?;
    let names: Vec<(&LockKey, String, Duration)> = extensions
        .iter()
        .map(|extension| {
            let Extension { hold, lease, .. } = extension;
            hold.state().sending(now, *lease);
            (&**hold.key(), core.field(hold), *lease)
        })
        .collect();
    let mut answers = pin!(script::renew(&connection, &names, limit));
    let answers = tokio::select! {
        biased;
        answers = &mut answers => answers,
        () = tokio::time::sleep(limit * 3 / 8) => {
            // Others shall not wait on a connection that is silent; this answer may still come.
            node.abandon(&connection);
            answers.await
        }
    };
    if answers.as_ref().is_err_and(Failure::is_ambiguous) {
        node.abandon(&connection);
    }
    answers
}

/// Names in one script.
const BATCH: usize = 100;

const SHORTEST: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(100);
