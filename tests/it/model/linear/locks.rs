//! Locks with one holder, of each kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockdog::{Client, Lock, Owner, Unlocked};

use super::objects::{LockCall, OneHolder};
use super::search::Timed;
use super::{CALLS, Part, are_legal};
use crate::support::prelude::ms;

/// The differences between the kinds.
#[derive(Clone, Copy)]
struct Kind {
    lock: fn(&Client, &str) -> Lock,
    reenters: bool,
    /// A waiter may stay in the queue for a while after its call, so a free lock may be refused.
    has_queue: bool,
}

async fn is_legal(kind: Kind) {
    let start = OneHolder::default();
    let expired = Arc::new(AtomicU32::new(0));
    let counted = expired.clone();
    are_legal(start, move |part| calls(part, kind, counted.clone()), forge).await;
    let expired = expired.load(Ordering::Relaxed);
    assert!(expired > 0, "no hold was left to its lease");
}

macro_rules! histories {
    ($($name:ident: $lock:ident, $reenters:literal, $has_queue:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                is_legal(Kind {
                    lock: |client, name| client.$lock(name),
                    reenters: $reenters,
                    has_queue: $has_queue,
                })
                .await;
            }
        )*
    };
}

histories! {
    a_lock_answers_like_one_of_one_holder: lock, true, false;
    a_spin_lock_answers_like_one_of_one_holder: spin_lock, true, false;
    a_non_reentrant_lock_answers_like_one_of_one_holder: non_reentrant_lock, false, false;
    a_fenced_lock_answers_like_one_of_one_holder_whose_tokens_rise: fenced_lock, true, false;
    a_fair_lock_answers_like_one_of_one_holder: fair_lock, true, true;
    a_non_reentrant_fair_lock_answers_like_one_of_one_holder: non_reentrant_fair_lock, false, true;
}

async fn calls(mut part: Part<OneHolder>, kind: Kind, expired: Arc<AtomicU32>) {
    let lock = (kind.lock)(&part.client, &part.name);
    let record = part.record.clone();
    let mut made = 0;
    // One hold of each history ends with its lease.
    let mut expires = part.number == 0;
    while made < CALLS {
        part.rest().await;
        made += 1;
        if part.dice.roll(4) == 0 {
            let began = record.now();
            if let Ok(is_locked) = lock.is_locked().await {
                record.answered(began, LockCall::IsLocked(is_locked));
            }
            continue;
        }
        // Each call is a new hold, so that no call meets the remains of an earlier one.
        let (owner, hold, wait) = (Owner::new(), part.hold(), part.wait());
        let mut guards = Vec::new();
        loop {
            let request = lock.try_lock().owner(&owner);
            let request = match expires {
                true => request.lease(LEASE),
                false => request,
            };
            let request = match wait {
                Some(wait) => request.wait(wait),
                None => request,
            };
            let count = guards.len() as u32 + 1;
            let began = record.now();
            match part.made(request.into_future()).await {
                Some(Ok(Some(guard))) => {
                    let call = match count {
                        1 => LockCall::Acquire {
                            hold,
                            token: guard.token().unwrap_or(0),
                        },
                        _ => LockCall::Again { hold, count },
                    };
                    record.acquired(began, call, || phantom(&mut part));
                    if expires {
                        expires = false;
                        expired.fetch_add(1, Ordering::Relaxed);
                        guard.leave_to_lease();
                        // The server counts in milliseconds from the beginning of its turn.
                        let ends = began + (LEASE - ms(5)).as_nanos() as u64;
                        record.unanswered(ends, LockCall::Release { hold, left: 0 });
                        break;
                    }
                    guards.push(guard);
                }
                Some(Ok(None)) => {
                    let others = wait.is_some() || kind.has_queue;
                    record.refused(began, LockCall::Busy { others }, wait.is_some(), || {
                        phantom(&mut part)
                    });
                    break;
                }
                // It may have been acquired, and is undone then.
                Some(Err(_)) | None => {
                    let call = match count {
                        1 => LockCall::Acquire { hold, token: 0 },
                        _ => LockCall::Again { hold, count },
                    };
                    record.unanswered(began, call);
                    record.unanswered(
                        began,
                        LockCall::Release {
                            hold,
                            left: count - 1,
                        },
                    );
                    break;
                }
            }
            made += 1;
            if !kind.reenters || part.dice.roll(3) > 0 {
                break;
            }
        }
        part.rest().await;
        while let Some(guard) = guards.pop() {
            let left = guards.len() as u32;
            let began = record.now();
            let released = LockCall::Release { hold, left };
            match part.made(guard.unlock()).await {
                Some(Ok(Unlocked::Released)) => {
                    record.answered(began, LockCall::Release { hold, left: 0 });
                }
                Some(Ok(Unlocked::StillHeld { count })) => {
                    record.answered(began, LockCall::Release { hold, left: count });
                }
                Some(_) | None => record.unanswered(began, released),
            }
            made += 1;
        }
    }
}

pub(super) fn phantom(part: &mut Part<OneHolder>) -> [LockCall; 2] {
    let hold = part.hold();
    let acquired = LockCall::Acquire { hold, token: 0 };
    [acquired, LockCall::Release { hold, left: 0 }]
}

/// A wrong answer: the lock is free while a hold has it.
pub(super) fn forge(calls: &[Timed<LockCall>]) -> Option<Timed<LockCall>> {
    let released = |hold: u32| {
        let mut ends = calls.iter().filter(
            |it| matches!(it.call, LockCall::Release { hold: one, left: 0 } if one == hold),
        );
        ends.next().and_then(|it| it.ended)
    };
    let held = calls.iter().find_map(|it| match it.call {
        LockCall::Acquire { hold, .. } if released(hold).is_some() => it.ended,
        _ => None,
    });
    Some(Timed {
        call: LockCall::IsLocked(false),
        began: 1 + held?,
        ended: held.map(|at| at + 1),
    })
}

/// Of the hold that ends with it.
const LEASE: Duration = Duration::from_secs(1);
