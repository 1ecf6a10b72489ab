//! The read/write lock.

use lockdog::Owner;

use super::objects::{Register, RegisterCall};
use super::search::Timed;
use super::{CALLS, Part, are_legal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_write_lock_answers_like_a_register_of_readers_and_a_writer() {
    are_legal(Register::default(), calls, forge).await;
}

async fn calls(mut part: Part<Register>) {
    let lock = part.client.read_write_lock(&part.name);
    let record = part.record.clone();
    let mut made = 0;
    while made < CALLS {
        part.rest().await;
        made += 1;
        let (owner, hold, wait) = (Owner::new(), part.hold(), part.wait());
        let began = record.now();
        match part.dice.roll(10) {
            0..2 => {
                if let Ok(is_written) = lock.write().is_locked().await {
                    record.answered(began, RegisterCall::IsWritten(is_written));
                }
            }
            2..7 => {
                let request = lock.read().try_lock().owner(&owner);
                let request = match wait {
                    Some(wait) => request.wait(wait),
                    None => request,
                };
                match part.made(request.into_future()).await {
                    Some(Ok(Some(guard))) => {
                        record.acquired(began, RegisterCall::Read(hold), || {
                            phantom(&mut part, RegisterCall::Read)
                        });
                        part.rest().await;
                        match part.dice.roll(4) {
                            0 => upgrade(&mut part, guard, hold).await,
                            _ => unlock(&mut part, guard.unlock(), hold).await,
                        }
                        made += 1;
                    }
                    // An announced writer kept the reader out and may not wait any more.
                    Some(Ok(None)) => record.refused(
                        began,
                        RegisterCall::Busy {
                            writes: false,
                            others: true,
                        },
                        wait.is_some(),
                        || phantom(&mut part, RegisterCall::Read),
                    ),
                    Some(Err(_)) | None => {
                        record.unanswered(began, RegisterCall::Read(hold));
                        record.unanswered(began, RegisterCall::Release(hold));
                    }
                }
            }
            _ => {
                let request = lock.write().try_lock().owner(&owner);
                let request = match wait {
                    Some(wait) => request.wait(wait),
                    None => request,
                };
                match part.made(request.into_future()).await {
                    Some(Ok(Some(guard))) => {
                        record.acquired(began, RegisterCall::Write(hold), || {
                            phantom(&mut part, RegisterCall::Write)
                        });
                        part.rest().await;
                        match part.dice.roll(3) {
                            0 => downgrade(&mut part, guard, hold).await,
                            _ => unlock(&mut part, guard.unlock(), hold).await,
                        }
                        made += 1;
                    }
                    Some(Ok(None)) => record.refused(
                        began,
                        RegisterCall::Busy {
                            writes: true,
                            others: wait.is_some(),
                        },
                        wait.is_some(),
                        || phantom(&mut part, RegisterCall::Write),
                    ),
                    Some(Err(_)) | None => {
                        record.unanswered(began, RegisterCall::Write(hold));
                        record.unanswered(began, RegisterCall::Release(hold));
                    }
                }
            }
        }
    }
}

fn phantom(part: &mut Part<Register>, mode: fn(u32) -> RegisterCall) -> [RegisterCall; 2] {
    let hold = part.hold();
    [mode(hold), RegisterCall::Release(hold)]
}

async fn unlock<T>(
    part: &mut Part<Register>,
    call: impl Future<Output = lockdog::error::Result<T>>,
    hold: u32,
) {
    let record = part.record.clone();
    let began = record.now();
    match part.made(call).await {
        Some(Ok(_)) => record.answered(began, RegisterCall::Release(hold)),
        Some(Err(_)) | None => record.unanswered(began, RegisterCall::Release(hold)),
    }
}

async fn upgrade(part: &mut Part<Register>, guard: lockdog::ReadGuard, hold: u32) {
    let record = part.record.clone();
    let began = record.now();
    let wait = std::time::Duration::from_millis(part.dice.roll(40));
    match part.made(guard.upgrade().wait(wait).into_future()).await {
        Some(Ok(guard)) => {
            record.answered(began, RegisterCall::Upgrade(hold));
            part.rest().await;
            unlock(part, guard.unlock(), hold).await;
        }
        Some(Err(error)) => {
            // It may have been the writer for a moment.
            record.unanswered(began, RegisterCall::Upgrade(hold));
            record.unanswered(began, RegisterCall::Downgrade(hold));
            // As a hold of its own, which may end after the read hold.
            for call in phantom(part, RegisterCall::Write) {
                record.unanswered(began, call);
            }
            match error.into_guard() {
                Some(guard) => unlock(part, guard.unlock(), hold).await,
                None => record.unanswered(began, RegisterCall::Release(hold)),
            }
        }
        None => {
            record.unanswered(began, RegisterCall::Upgrade(hold));
            record.unanswered(began, RegisterCall::Release(hold));
        }
    }
}

async fn downgrade(part: &mut Part<Register>, guard: lockdog::WriteGuard, hold: u32) {
    let record = part.record.clone();
    let began = record.now();
    match part.made(guard.downgrade()).await {
        Some(Ok(guard)) => {
            record.answered(began, RegisterCall::Downgrade(hold));
            part.rest().await;
            unlock(part, guard.unlock(), hold).await;
        }
        Some(Err(_)) | None => {
            record.unanswered(began, RegisterCall::Downgrade(hold));
            record.unanswered(began, RegisterCall::Release(hold));
        }
    }
}

/// A wrong answer: the lock has no writer while a hold writes.
fn forge(calls: &[Timed<RegisterCall>]) -> Option<Timed<RegisterCall>> {
    let is_ended = |hold: u32| {
        let mut ends = calls.iter().filter(|it| {
            matches!(it.call, RegisterCall::Release(one) | RegisterCall::Downgrade(one) if one == hold)
        });
        ends.all(|it| it.ended.is_some())
    };
    let held = calls.iter().find_map(|it| match it.call {
        RegisterCall::Write(hold) if is_ended(hold) => it.ended,
        _ => None,
    });
    Some(Timed {
        call: RegisterCall::IsWritten(false),
        began: 1 + held?,
        ended: held.map(|at| at + 1),
    })
}
