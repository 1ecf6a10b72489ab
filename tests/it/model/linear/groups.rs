//! Locks of values of a group.

use lockdog::{Owner, Value};

use super::objects::{Values, ValuesCall};
use super::search::Timed;
use super::{CALLS, Part, are_legal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_group_answer_like_values_that_are_taken_together() {
    are_legal(Values::default(), calls, forge).await;
}

async fn calls(mut part: Part<Values>) {
    let record = part.record.clone();
    let mut made = 0;
    while made < CALLS {
        part.rest().await;
        made += 1;
        let values = 1 + part.dice.roll(15) as u8;
        let some = NAMES
            .iter()
            .enumerate()
            .filter(|(i, _)| values >> i & 1 == 1);
        let lock = part
            .client
            .group_lock(&part.name, some.map(|(_, name)| Value::utf8(name)));
        let began = record.now();
        if part.dice.roll(4) == 0 {
            if let Ok(answer) = lock.is_locked().await {
                record.answered(began, ValuesCall::AreTaken { values, answer });
            }
            continue;
        }
        let (owner, hold, wait) = (Owner::new(), part.hold(), part.wait());
        let request = lock.try_lock().owner(&owner);
        let request = match wait {
            Some(wait) => request.wait(wait),
            None => request,
        };
        match part.made(request.into_future()).await {
            Some(Ok(Some(guard))) => {
                record.acquired(began, ValuesCall::Acquire { hold, values }, || {
                    phantom(&mut part, values)
                });
                part.rest().await;
                let began = record.now();
                match part.made(guard.unlock()).await {
                    Some(Ok(_)) => record.answered(began, ValuesCall::Release { hold }),
                    Some(Err(_)) | None => record.unanswered(began, ValuesCall::Release { hold }),
                }
                made += 1;
            }
            Some(Ok(None)) => {
                let others = wait.is_some();
                record.refused(began, ValuesCall::Busy { values, others }, others, || {
                    phantom(&mut part, values)
                });
            }
            Some(Err(_)) | None => {
                record.unanswered(began, ValuesCall::Acquire { hold, values });
                record.unanswered(began, ValuesCall::Release { hold });
            }
        }
    }
}

fn phantom(part: &mut Part<Values>, values: u8) -> [ValuesCall; 2] {
    let hold = part.hold();
    let acquired = ValuesCall::Acquire { hold, values };
    [acquired, ValuesCall::Release { hold }]
}

/// A wrong answer: values are free while a hold has them.
fn forge(calls: &[Timed<ValuesCall>]) -> Option<Timed<ValuesCall>> {
    let is_released = |hold: u32| {
        let is_its = |it: &&Timed<ValuesCall>| matches!(it.call, ValuesCall::Release { hold: one } if one == hold);
        calls.iter().filter(is_its).all(|it| it.ended.is_some())
    };
    let held = calls.iter().find_map(|it| match it.call {
        ValuesCall::Acquire { hold, values } if is_released(hold) => Some((values, it.ended?)),
        _ => None,
    });
    let (values, at) = held?;
    Some(Timed {
        call: ValuesCall::AreTaken {
            values,
            answer: false,
        },
        began: at + 1,
        ended: Some(at + 1),
    })
}

const NAMES: [&str; 4] = ["Jack", "Mary", "Tom", "Ann"];
