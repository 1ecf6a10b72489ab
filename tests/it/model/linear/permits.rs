//! The semaphores of both kinds.

use lockdog::error::Result;

use super::objects::{Permits, PermitsCall};
use super::search::Timed;
use super::{CALLS, Part, are_legal};

/// What both kinds have.
macro_rules! history {
    ($calls:ident, $semaphore:ident) => {
        async fn $calls(mut part: Part<Permits>) {
            let seats = part.client.$semaphore(&part.name);
            let record = part.record.clone();
            let mut made = 0;
            while made < CALLS {
                part.rest().await;
                made += 1;
                let began = record.now();
                if part.dice.roll(4) == 0 {
                    if let Ok(free) = seats.available().await {
                        let free =
                            u32::try_from(free).expect("as many are free as there are, at most");
                        record.answered(began, PermitsCall::Free(free));
                    }
                    continue;
                }
                let (request, wait) = (part.hold(), part.wait());
                let permits = 1 + part.dice.roll(2) as u32;
                let call = seats.try_acquire_many(permits);
                let call = match wait {
                    Some(wait) => call.wait(wait),
                    None => call,
                };
                match part.made(call.into_future()).await {
                    Some(Ok(Some(mut permit))) => {
                        record.acquired(began, PermitsCall::Acquire { request, permits }, || {
                            phantom(&mut part, permits)
                        });
                        part.rest().await;
                        if let Some(half) = permit.split(1) {
                            released(&mut part, half.release(), request, 1).await;
                            made += 1;
                        }
                        let left = permit.count();
                        released(&mut part, permit.release(), request, left).await;
                        made += 1;
                    }
                    Some(Ok(None)) => {
                        let others = wait.is_some();
                        record.refused(
                            began,
                            PermitsCall::Busy { permits, others },
                            others,
                            || phantom(&mut part, permits),
                        );
                    }
                    Some(Err(_)) | None => {
                        record.unanswered(began, PermitsCall::Acquire { request, permits });
                        record.unanswered(began, PermitsCall::Release { request, permits });
                    }
                }
            }
        }
    };
}

history!(leased, permit_semaphore);
history!(counted, semaphore);

fn phantom(part: &mut Part<Permits>, permits: u32) -> [PermitsCall; 2] {
    let request = part.hold();
    let acquired = PermitsCall::Acquire { request, permits };
    [acquired, PermitsCall::Release { request, permits }]
}

async fn released(
    part: &mut Part<Permits>,
    call: impl Future<Output = Result<()>>,
    request: u32,
    permits: u32,
) {
    let record = part.record.clone();
    let began = record.now();
    let call = part.made(call).await;
    let released = PermitsCall::Release { request, permits };
    match call {
        Some(Ok(())) => record.answered(began, released),
        Some(Err(_)) | None => record.unanswered(began, released),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_semaphore_answers_like_a_number_and_those_who_have_permits() {
    are_legal(Permits::new(SEATS), leased, forge).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_answers_like_a_number_and_those_who_have_permits() {
    are_legal(Permits::new(SEATS), counted, forge).await;
}

/// A wrong answer: all permits are free while a request has some.
fn forge(calls: &[Timed<PermitsCall>]) -> Option<Timed<PermitsCall>> {
    let ends = |request: u32| {
        let is_its = move |it: &&Timed<PermitsCall>| matches!(it.call, PermitsCall::Release { request: one, .. } if one == request);
        calls.iter().filter(is_its).map(|it| it.ended)
    };
    let held = calls.iter().find_map(|it| match it.call {
        PermitsCall::Acquire { request, .. } if ends(request).all(|end| end.is_some()) => it.ended,
        _ => None,
    });
    Some(Timed {
        call: PermitsCall::Free(SEATS),
        began: 1 + held?,
        ended: held.map(|at| at + 1),
    })
}

const SEATS: u32 = 3;
