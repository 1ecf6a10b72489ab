//! Random histories of correct objects.

use super::fair_queue::{FairCall, FairQueue};
use super::objects::{
    Count, CountCall, LockCall, OneHolder, Permits, PermitsCall, Register, RegisterCall, Values,
    ValuesCall,
};
use super::search::{Sequential, Timed};
use crate::support::Dice;

/// Threads that use one object.
pub(super) trait Program {
    type Object: Sequential;

    /// The next call of a thread after this answer, with each answer that the object may give. The
    /// object gives the first one that fits.
    fn call(last: Option<&CallOf<Self>>, number: u32, dice: &mut Dice) -> Vec<CallOf<Self>>;

    /// What undoes a call whose outcome is unknown, if anything.
    fn undo(call: &CallOf<Self>) -> Option<CallOf<Self>>;

    /// Whether a recorded history may have this call without an answer.
    fn may_be_unknown(_call: &CallOf<Self>) -> bool {
        true
    }
}

pub(super) type CallOf<P> = <<P as Program>::Object as Sequential>::Call;

enum Thread<C> {
    Idle,
    Asked { began: u64, answers: Vec<C> },
    Answered { began: u64, call: C },
}

/// How many threads make how many calls. Of a hundred calls, `unknown` have an unknown outcome.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) threads: usize,
    pub(super) calls: usize,
    pub(super) unknown: u64,
}

/// Each call takes effect at one moment; one with an unknown outcome at any later time, or never.
pub(super) fn history<P: Program>(
    start: &P::Object,
    size: Size,
    dice: &mut Dice,
) -> Vec<Timed<CallOf<P>>> {
    let mut object = start.clone();
    let mut history = Vec::new();
    let mut threads: Vec<Thread<CallOf<P>>> = (0..size.threads).map(|_| Thread::Idle).collect();
    let mut last: Vec<Option<CallOf<P>>> = vec![None; size.threads];
    let mut pending: Vec<CallOf<P>> = Vec::new();
    let mut begun = 0;
    let mut now = 0;
    while begun < size.calls || threads.iter().any(|it| !matches!(it, Thread::Idle)) {
        now += 1;
        let any = dice.roll((size.threads + pending.len()) as u64) as usize;
        if any >= size.threads {
            let call = pending.remove(any - size.threads);
            if dice.roll(10) > 0 {
                object = object.after(&call).unwrap_or(object);
            }
            continue;
        }
        threads[any] = match std::mem::replace(&mut threads[any], Thread::Idle) {
            Thread::Idle if begun == size.calls => Thread::Idle,
            Thread::Idle => {
                begun += 1;
                let answers = P::call(last[any].as_ref(), begun as u32, dice);
                if dice.roll(100) < size.unknown && P::may_be_unknown(&answers[0]) {
                    let call = answers[0].clone();
                    let undo = P::undo(&call);
                    for call in [Some(call), undo].into_iter().flatten() {
                        history.push(Timed {
                            call: call.clone(),
                            began: now,
                            ended: None,
                        });
                        pending.push(call);
                    }
                    last[any] = None;
                    Thread::Idle
                } else {
                    Thread::Asked {
                        began: now,
                        answers,
                    }
                }
            }
            Thread::Asked { began, answers } => {
                let fitting = answers
                    .into_iter()
                    .find_map(|call| Some((object.after(&call)?, call)));
                let (after, call) = fitting.expect("one of the answers fits");
                object = after;
                Thread::Answered { began, call }
            }
            Thread::Answered { began, call } => {
                last[any] = Some(call.clone());
                history.push(Timed {
                    call,
                    began,
                    ended: Some(now),
                });
                Thread::Idle
            }
        };
    }
    history
}

pub(super) struct Locking;

impl Program for Locking {
    type Object = OneHolder;

    fn call(last: Option<&LockCall>, number: u32, dice: &mut Dice) -> Vec<LockCall> {
        let has = match last {
            Some(LockCall::Acquire { hold, .. }) => Some((*hold, 1)),
            Some(LockCall::Again { hold, count }) => Some((*hold, *count)),
            Some(LockCall::Release { hold, left }) if *left > 0 => Some((*hold, *left)),
            _ => None,
        };
        match (has, dice.roll(10)) {
            (Some((hold, count)), 0..3) => vec![LockCall::Again {
                hold,
                count: count + 1,
            }],
            (Some((hold, count)), _) => vec![LockCall::Release {
                hold,
                left: count - 1,
            }],
            (None, 0..3) => vec![LockCall::IsLocked(true), LockCall::IsLocked(false)],
            (None, _) => vec![
                LockCall::Acquire {
                    hold: number,
                    token: 0,
                },
                LockCall::Busy { others: false },
            ],
        }
    }

    fn undo(call: &LockCall) -> Option<LockCall> {
        match call {
            LockCall::Acquire { hold, .. } => Some(LockCall::Release {
                hold: *hold,
                left: 0,
            }),
            _ => None,
        }
    }
}

pub(super) struct Reading;

impl Program for Reading {
    type Object = Register;

    fn call(last: Option<&RegisterCall>, number: u32, dice: &mut Dice) -> Vec<RegisterCall> {
        match (last, dice.roll(10)) {
            (Some(RegisterCall::Read(hold) | RegisterCall::Write(hold)), _) => {
                vec![RegisterCall::Release(*hold)]
            }
            (_, 0..2) => vec![
                RegisterCall::IsWritten(true),
                RegisterCall::IsWritten(false),
            ],
            (_, 2..7) => vec![
                RegisterCall::Read(number),
                RegisterCall::Busy {
                    writes: false,
                    others: false,
                },
            ],
            _ => vec![
                RegisterCall::Write(number),
                RegisterCall::Busy {
                    writes: true,
                    others: false,
                },
            ],
        }
    }

    fn undo(call: &RegisterCall) -> Option<RegisterCall> {
        match call {
            RegisterCall::Read(hold) | RegisterCall::Write(hold) => {
                Some(RegisterCall::Release(*hold))
            }
            _ => None,
        }
    }
}

pub(super) struct Taking;

impl Program for Taking {
    type Object = Permits;

    fn call(last: Option<&PermitsCall>, number: u32, dice: &mut Dice) -> Vec<PermitsCall> {
        match (last, dice.roll(10)) {
            (Some(PermitsCall::Acquire { request, permits }), _) => {
                vec![PermitsCall::Release {
                    request: *request,
                    permits: *permits,
                }]
            }
            (_, 0..3) => (0..=SEATS).map(PermitsCall::Free).collect(),
            _ => {
                let permits = 1 + dice.roll(2) as u32;
                vec![
                    PermitsCall::Acquire {
                        request: number,
                        permits,
                    },
                    PermitsCall::Busy {
                        permits,
                        others: false,
                    },
                ]
            }
        }
    }

    fn undo(call: &PermitsCall) -> Option<PermitsCall> {
        match *call {
            PermitsCall::Acquire { request, permits } => {
                Some(PermitsCall::Release { request, permits })
            }
            _ => None,
        }
    }
}

pub(super) struct Counting;

impl Program for Counting {
    type Object = Count;

    fn call(_last: Option<&CountCall>, _number: u32, dice: &mut Dice) -> Vec<CountCall> {
        match dice.roll(10) {
            0..3 => {
                let count = 1 + dice.roll(3);
                [true, false]
                    .map(|is_set| CountCall::TrySet { count, is_set })
                    .into()
            }
            3..7 => vec![CountCall::CountDown],
            _ => (0..=3).map(CountCall::Count).collect(),
        }
    }

    fn undo(_call: &CountCall) -> Option<CountCall> {
        None
    }
}

pub(super) struct Grouping;

impl Program for Grouping {
    type Object = Values;

    fn call(last: Option<&ValuesCall>, number: u32, dice: &mut Dice) -> Vec<ValuesCall> {
        let values = 1 + dice.roll(15) as u8;
        match (last, dice.roll(10)) {
            (Some(ValuesCall::Acquire { hold, .. }), _) => {
                vec![ValuesCall::Release { hold: *hold }]
            }
            (_, 0..3) => [true, false]
                .map(|answer| ValuesCall::AreTaken { values, answer })
                .into(),
            _ => vec![
                ValuesCall::Acquire {
                    hold: number,
                    values,
                },
                ValuesCall::Busy {
                    values,
                    others: false,
                },
            ],
        }
    }

    fn undo(call: &ValuesCall) -> Option<ValuesCall> {
        match *call {
            ValuesCall::Acquire { hold, .. } => Some(ValuesCall::Release { hold }),
            _ => None,
        }
    }
}

pub(super) struct Queueing;

impl Program for Queueing {
    type Object = FairQueue;

    fn call(last: Option<&FairCall>, number: u32, dice: &mut Dice) -> Vec<FairCall> {
        match (last, dice.roll(10)) {
            // A waiter that is not first, or finds the lock taken, gives up.
            (Some(FairCall::Enter(hold)), 0..7) => {
                vec![FairCall::Grant(*hold), FairCall::Leave(*hold)]
            }
            (Some(FairCall::Enter(hold)), 7) => {
                vec![FairCall::Expire(*hold), FairCall::Leave(*hold)]
            }
            (Some(FairCall::Enter(hold) | FairCall::Grant(hold)), _) => {
                vec![FairCall::Leave(*hold)]
            }
            _ => vec![FairCall::Enter(number)],
        }
    }

    fn undo(call: &FairCall) -> Option<FairCall> {
        match call {
            FairCall::Grant(hold) | FairCall::Expire(hold) => Some(FairCall::Leave(*hold)),
            _ => None,
        }
    }

    /// A recorded history leaves out a hold whose entry nobody saw.
    fn may_be_unknown(call: &FairCall) -> bool {
        !matches!(call, FairCall::Enter(_))
    }
}

pub(super) const SEATS: u32 = 3;
