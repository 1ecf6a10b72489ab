//! The count-down latch.

use super::objects::{Count, CountCall};
use super::search::Timed;
use super::{CALLS, Part, are_legal};
use crate::support::prelude::ms;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_answers_like_a_count_that_each_call_lowers_once() {
    are_legal(Count::default(), calls, forge).await;
}

async fn calls(mut part: Part<Count>) {
    let latch = part.client.count_down_latch(&part.name);
    let record = part.record.clone();
    for _ in 0..CALLS {
        part.rest().await;
        let began = record.now();
        match part.dice.roll(10) {
            0..3 => {
                let count = 1 + part.dice.roll(4);
                let call = part.made(latch.try_set_count(count as i64)).await;
                match call {
                    Some(Ok(is_set)) => record.answered(began, CountCall::TrySet { count, is_set }),
                    Some(Err(_)) | None => {
                        let is_set = true;
                        record.unanswered(began, CountCall::TrySet { count, is_set });
                    }
                }
            }
            3..6 => match part.made(latch.count_down()).await {
                Some(Ok(())) => record.answered(began, CountCall::CountDown),
                Some(Err(_)) | None => record.unanswered(began, CountCall::CountDown),
            },
            6..8 => {
                let wait = ms(part.dice.roll(100));
                if let Some(Ok(true)) = part.made(latch.wait_zero_within(wait)).await {
                    record.answered(began, CountCall::Opened);
                }
            }
            _ => {
                if let Ok(count) = latch.count().await {
                    let count = u64::try_from(count).expect("no count is below zero");
                    record.answered(began, CountCall::Count(count));
                }
            }
        }
    }
}

/// A wrong answer: a count that no call set.
fn forge(calls: &[Timed<CountCall>]) -> Option<Timed<CountCall>> {
    let ended = calls.iter().find_map(|it| it.ended);
    Some(Timed {
        call: CountCall::Count(100),
        began: 0,
        ended,
    })
}
