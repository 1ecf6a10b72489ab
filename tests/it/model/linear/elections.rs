//! Leader election: a leader is a holder, and its term is a token.

use lockdog::Owner;

use super::locks::{forge, phantom};
use super::objects::{LockCall, OneHolder};
use super::{CALLS, Part, are_legal};
use crate::support::prelude::ms;

/// LE1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_answers_like_a_lock_of_one_holder_whose_terms_rise() {
    are_legal(OneHolder::default(), calls, forge).await;
}

async fn calls(mut part: Part<OneHolder>) {
    let election = part.client.election(&part.name);
    let record = part.record.clone();
    let mut made = 0;
    while made < CALLS {
        part.rest().await;
        made += 1;
        if part.dice.roll(4) == 0 {
            let began = record.now();
            if let Ok(leader) = election.leader().await {
                record.answered(began, LockCall::IsLocked(leader.is_some()));
            }
            continue;
        }
        // Each campaign has an owner of its own, so that none meets the remains of an earlier one.
        let (owner, hold) = (Owner::new(), part.hold());
        let wait = part.wait().unwrap_or(ms(400));
        let campaign = election.campaign(hold.to_string()).owner(&owner).wait(wait);
        let began = record.now();
        match part.made(campaign.into_future()).await {
            Some(Ok(Some(leadership))) => {
                let token = leadership.term();
                let call = LockCall::Acquire { hold, token };
                record.acquired(began, call, || phantom(&mut part));
                part.rest().await;
                made += 1;
                let released = LockCall::Release { hold, left: 0 };
                let began = record.now();
                match part.made(leadership.resign()).await {
                    Some(Ok(())) => record.answered(began, released),
                    Some(Err(_)) | None => record.unanswered(began, released),
                }
            }
            Some(Ok(None)) => {
                let call = LockCall::Busy { others: true };
                record.refused(began, call, true, || phantom(&mut part));
            }
            // It may have been elected, and resigns then.
            Some(Err(_)) | None => {
                record.unanswered(began, LockCall::Acquire { hold, token: 0 });
                record.unanswered(began, LockCall::Release { hold, left: 0 });
            }
        }
    }
}
