//! Extends the leases of holds, wherever their keys are.

use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::clock::Moment;
use crate::hold::Hold;
use crate::key::{Kind, LockKey};
use crate::script::{self, RenewReply};
use crate::server::{Failure, Route};
use crate::session::Core;

/// Holds, with the new lease for each.
pub(super) type Leases = [(Arc<Hold>, Duration)];

/// The result of a command that renewed all the holds, or one of them.
pub(super) struct ExtendOutcome {
    /// The place of its first hold.
    pub(super) at: usize,
    /// The moment before the first sending.
    pub(super) sent: Moment,
    /// One for each of its holds.
    pub(super) answers: Vec<Result<RenewReply, Failure>>,
}

/// Groups holds that one command can renew: their scripts are the same, their keys may be in one command, and
/// it does not keep the server for long.
pub(super) fn together<T>(core: &Core, crowd: Vec<T>, hold: impl Fn(&T) -> &Hold) -> Vec<Vec<T>> {
    let by_script = by_script(crowd, |one| hold(one).key().kind());
    let by_place = |part| core.server.split(part, |one| hold(one).key().key());
    let parts = by_script.into_iter().flat_map(by_place);
    let by_size = |part| by_size(part, |one| hold(one).key().values().len());
    parts.flat_map(by_size).collect()
}

/// Splits a crowd whose values of groups are too many for one command.
fn by_size<T>(crowd: Vec<T>, values: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for one in crowd {
        let size = values(&one);
        match parts.last_mut() {
            Some(part) if size <= room => part.push(one),
            _ => {
                room = MOST_VALUES;
                parts.push(vec![one]);
            }
        }
        room = room.saturating_sub(size);
    }
    parts
}

fn by_script<T>(crowd: Vec<T>, kind: impl Fn(&T) -> &'static Kind) -> Vec<Vec<T>> {
    let script = |one: &T| ptr::from_ref(kind(one).scripts.renew);
    let mut parts: Vec<Vec<T>> = Vec::new();
    for one in crowd {
        match parts
            .iter_mut()
            .find(|part| script(&part[0]) == script(&one))
        {
            Some(part) => part.push(one),
            None => parts.push(vec![one]),
        }
    }
    parts
}

/// Renews all of these holds, whose keys may be in one command, by one command. If one of the keys is on
/// another server, or may not be in one command with others, each hold is renewed by a command of its own.
/// Each command may take a third of `lease`. `asks` is called for each hold with the server that is about
/// to get its command. `ended` is called for each command, so that no hold waits for the server of another one.
pub(super) async fn extend(
    core: &Core,
    holds: &Leases,
    lease: Duration,
    asks: impl Fn(usize, &Route) + Sync,
    mut ended: impl FnMut(ExtendOutcome),
) {
    let asks_for_all = |route: &Route| (0..holds.len()).for_each(|at| asks(at, route));
    let (sent, answer) = ask(core, None, holds, lease, &asks_for_all).await;
    let answers = match answer {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        // The keys are not in one place any more, for example while a slot moves.
        Err((failure, _)) if holds.len() > 1 && failure.is_of_place() => {
            core.server.note_slots(&failure);
            tracing::debug!(
                target: "lockdog::renewal",
                holds = holds.len(), %failure, "renewing one by one"
            );
            let mut asking: FuturesUnordered<_> = holds
                .chunks(1)
                .enumerate()
                .map(async |(at, one)| {
                    let asks = |route: &Route| asks(at, route);
                    (at, follow(core, one, lease, &asks).await)
                })
                .collect();
            while let Some((at, answer)) = asking.next().await {
                let answers = vec![answer];
                ended(ExtendOutcome { at, sent, answers });
            }
            return;
        }
        Err((_, Some(route))) => vec![follow_to(core, route, holds, lease, &asks_for_all).await],
        Err((failure, None)) => vec![Err(failure); holds.len()],
    };
    let at = 0;
    ended(ExtendOutcome { at, sent, answers });
}

/// Renews one hold on the server with its key.
async fn follow(
    core: &Core,
    one: &Leases,
    lease: Duration,
    asks: &Asks<'_>,
) -> Result<RenewReply, Failure> {
    match ask(core, None, one, lease, asks).await.1 {
        Ok(answers) => Ok(first(&answers)),
        Err((_, Some(route))) => follow_to(core, route, one, lease, asks).await,
        Err((failure, None)) => Err(failure),
    }
}

/// Renews one hold on the server that another server named.
async fn follow_to(
    core: &Core,
    route: Route,
    one: &Leases,
    lease: Duration,
    asks: &Asks<'_>,
) -> Result<RenewReply, Failure> {
    let answers = ask(core, Some(route), one, lease, asks).await.1;
    answers
        .map(|answers| first(&answers))
        .map_err(|(failure, _)| failure)
}

fn first(answers: &[RenewReply]) -> RenewReply {
    answers.first().copied().unwrap_or(RenewReply::Unknown)
}

/// Called with the server that is about to be asked.
type Asks<'a> = dyn Fn(&Route) + Sync + 'a;

/// The moment before the sending, and the answers; or the failure, and where to ask instead.
type ExtendAnswers = (Moment, Result<Vec<RenewReply>, (Failure, Option<Route>)>);

async fn ask(
    core: &Core,
    route: Option<Route>,
    holds: &Leases,
    lease: Duration,
    asks: &Asks<'_>,
) -> ExtendAnswers {
    let key = holds.first().map_or("", |(hold, _)| hold.key().key());
    let connected = async {
        let route = match route {
            Some(route) => route,
            None => Route::plain(core.server.node(key)?),
        };
        asks(&route);
        let connection = route.own_connection(lease / 3).await?;
        let shortest = holds.iter().map(|(_, lease)| *lease).min();
        core.server
            .verify(key, core.clock.now(), shortest.unwrap_or_default())?;
        Ok(connection)
    };
    let connection = match connected.await {
        Ok(connection) => connection,
        Err(failure) => {
            let route = core.server.redirected(&failure, None);
            return (core.clock.now(), Err((failure, route)));
        }
    };
    let sent = core.clock.now();
    let fields: Vec<(&LockKey, String, Duration)> = holds
        .iter()
        .map(|(hold, lease)| (&**hold.key(), core.field(hold), *lease))
        .collect();
    let mut answer = pin!(script::renew(&core.server, &connection, &fields, lease / 3));
    let mut answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The next renewal of the holds comes a sixth of a lease after this one, and must use another
        // connection. So a silent connection is abandoned before that.
        () = tokio::time::sleep(lease / 8) => {
            // No other command may wait on a silent connection. The answer to this one may still come.
            core.server.abandon(&connection);
            answer.await
        }
    };
    let is_over = match &mut answer {
        Ok(answers) if answers.iter().any(|it| !matches!(it, RenewReply::Extended)) => {
            // The server may be a replica now, behind an address that leads to the new master. The script answers for
            // each hold, and so does not say why it extended none.
            let is_master = connection.leads_to_master(lease / 8).await;
            if may_be_replica(&is_master) {
                disbelieve(answers);
            }
            let is_unknown = answers.iter().any(|it| matches!(it, RenewReply::Unknown));
            is_unknown && !matches!(is_master, Ok(Some(true)))
        }
        Ok(_) => false,
        // A replica may load for longer than the lease, while the address leads to the new master.
        Err(failure) if failure.is_of_loading() => {
            may_be_replica(&connection.leads_to_master(lease / 8).await)
        }
        Err(failure) => failure.ends_connection(),
    };
    if is_over {
        // The next renewal opens another connection.
        core.server.abandon(&connection);
    }
    // The master may have been switched during that question. An answer of the old one must not end the doubts about
    // the holds that the switch began.
    let is_current = connection.is_current();
    let switched = || Failure::Broken("the master was switched".into());
    let answer = answer.and_then(|answers| is_current.then_some(answers).ok_or_else(switched));
    let answer = answer.map_err(|failure| {
        let route = core.server.redirected(&failure, Some(&connection));
        (failure, route)
    });
    (sent, answer)
}

/// A connection that ended before the server said its role may have led to a replica.
fn may_be_replica(is_master: &Result<Option<bool>, Failure>) -> bool {
    matches!(is_master, Ok(Some(false)) | Err(_))
}

/// A replica that is behind does not have the holds that the new master granted. So they may not be lost.
fn disbelieve(answers: &mut [RenewReply]) {
    for answer in answers {
        if matches!(answer, RenewReply::Missing) {
            *answer = RenewReply::Unknown;
        }
    }
}

/// How many values of groups one command renews. Measured: 25,600 values keep the server for 320 ms.
const MOST_VALUES: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::kind;

    #[test]
    fn a_command_renews_a_bounded_number_of_values() {
        let parts = by_size(vec![256; 100], |values| *values);
        assert!(parts.iter().flatten().count() == 100 && parts.len() == 100);
        let parts = by_size(vec![200, 200, 100, 1, 499, 0, 1], |values| *values);
        assert_eq!(parts, [vec![200, 200, 100], vec![1, 499, 0], vec![1]]);
        assert_eq!(by_size(vec![0; 100], |values| *values).len(), 1);
        assert!(by_size(Vec::<usize>::new(), |values| *values).is_empty());
    }

    #[test]
    fn holds_are_batched_by_the_script_of_their_kind() {
        let crowd = vec![&kind::PLAIN, &kind::OTHER, &kind::PLAIN, &kind::OTHER];
        let parts = by_script(crowd, |kind| kind);
        let both = |kind| vec![kind, kind];
        assert_eq!(parts, [both(&kind::PLAIN), both(&kind::OTHER)]);
    }
}
