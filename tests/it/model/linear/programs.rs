//! Random histories of correct and incorrect objects, and the verdict of the search.

use super::objects::{
    Count, CountCall, LockCall, OneHolder, Permits, PermitsCall, Register, RegisterCall, Values,
    ValuesCall,
};
use super::search::{PATIENCE, Patience, Sequential, Timed, Verdict, judge};
use crate::support::Dice;

/// Threads that use one object.
trait Program {
    type Object: Sequential;

    /// The next call of a thread after this answer, with each answer that the object may give. The
    /// object gives the first one that fits.
    fn call(told: Option<&CallOf<Self>>, number: u32, dice: &mut Dice) -> Vec<CallOf<Self>>;

    /// What undoes a call whose outcome is unknown, if anything.
    fn undo(call: &CallOf<Self>) -> Option<CallOf<Self>>;
}

type CallOf<P> = <<P as Program>::Object as Sequential>::Call;

enum Thread<C> {
    Idle,
    Asked { began: u64, answers: Vec<C> },
    Answered { began: u64, call: C },
}

/// Each call takes effect at one moment. Of a hundred calls, `unknown` have an unknown outcome: they take effect at
/// any later time, or never.
fn history<P: Program>(start: &P::Object, unknown: u64, dice: &mut Dice) -> Vec<Timed<CallOf<P>>> {
    let mut object = start.clone();
    let mut history = Vec::new();
    let mut threads: Vec<Thread<CallOf<P>>> = (0..THREADS).map(|_| Thread::Idle).collect();
    let mut told: Vec<Option<CallOf<P>>> = vec![None; THREADS];
    let mut pending: Vec<CallOf<P>> = Vec::new();
    let mut begun = 0;
    let mut now = 0;
    while begun < CALLS || threads.iter().any(|it| !matches!(it, Thread::Idle)) {
        now += 1;
        let any = dice.roll((THREADS + pending.len()) as u64) as usize;
        if any >= THREADS {
            let call = pending.remove(any - THREADS);
            if dice.roll(10) > 0 {
                object = object.after(&call).unwrap_or(object);
            }
            continue;
        }
        threads[any] = match std::mem::replace(&mut threads[any], Thread::Idle) {
            Thread::Idle if begun == CALLS => Thread::Idle,
            Thread::Idle => {
                begun += 1;
                let answers = P::call(told[any].as_ref(), begun as u32, dice);
                if dice.roll(100) < unknown {
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
                    told[any] = None;
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
                told[any] = Some(call.clone());
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

struct Locking;

impl Program for Locking {
    type Object = OneHolder;

    fn call(told: Option<&LockCall>, number: u32, dice: &mut Dice) -> Vec<LockCall> {
        let has = match told {
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

struct Reading;

impl Program for Reading {
    type Object = Register;

    fn call(told: Option<&RegisterCall>, number: u32, dice: &mut Dice) -> Vec<RegisterCall> {
        match (told, dice.roll(10)) {
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

struct Taking;

impl Program for Taking {
    type Object = Permits;

    fn call(told: Option<&PermitsCall>, number: u32, dice: &mut Dice) -> Vec<PermitsCall> {
        match (told, dice.roll(10)) {
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

struct Counting;

impl Program for Counting {
    type Object = Count;

    fn call(_told: Option<&CountCall>, _number: u32, dice: &mut Dice) -> Vec<CountCall> {
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

struct Grouping;

impl Program for Grouping {
    type Object = Values;

    fn call(told: Option<&ValuesCall>, number: u32, dice: &mut Dice) -> Vec<ValuesCall> {
        let values = 1 + dice.roll(15) as u8;
        match (told, dice.roll(10)) {
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

/// All histories are legal, and the search says so, of all but a few.
fn judged<P: Program>(start: &P::Object, what: &str) {
    let mut undecided = 0;
    for number in 0..histories() {
        let mut dice = Dice::of(number * 2 + 1);
        let unknown = dice.roll(30);
        let history = history::<P>(start, unknown, &mut dice);
        match judge(start, &history, PATIENCE) {
            Verdict::Legal => {}
            Verdict::Illegal => panic!("{what} {number} is said to be illegal: {history:#?}"),
            Verdict::Undecided => undecided += 1,
        }
    }
    println!(
        "{what}: {undecided} of {} histories are undecided",
        histories()
    );
    assert!(
        undecided * 1_000 <= histories(),
        "{undecided} histories of {what} are undecided"
    );
}

#[test]
fn histories_of_right_programs_are_legal() {
    judged::<Locking>(&OneHolder::default(), "locking");
    judged::<Reading>(&Register::default(), "reading");
    judged::<Taking>(&Permits::new(SEATS), "taking");
    judged::<Counting>(&Count::default(), "counting");
    judged::<Grouping>(&Values::default(), "grouping");
}

/// Another hold has the lock while a hold has it: from the answer of an acquire up to its release.
#[test]
fn a_second_holder_is_refused_among_calls_without_answers() {
    for number in 0..20 {
        let mut dice = Dice::of(number * 2 + 1);
        let mut history = history::<Locking>(&OneHolder::default(), dice.roll(6), &mut dice);
        let (hold, ended) = first_hold(&history);
        let call = LockCall::Acquire {
            hold: 1_000_000,
            token: 0,
        };
        history.push(Timed {
            call,
            began: ended + 1,
            ended: Some(ended + 1),
        });
        let patience = Patience {
            attempts: 2,
            steps: 200_000,
        };
        let verdict = judge(&OneHolder::default(), &history, patience);
        assert_eq!(verdict, Verdict::Illegal, "history {number}, hold {hold}");
    }
}

/// A hold that is released later, by a known outcome.
fn first_hold(history: &[Timed<LockCall>]) -> (u32, u64) {
    let is_released = |hold: u32| {
        let of_hold = |it: &&Timed<LockCall>| matches!(it.call, LockCall::Release { hold: released, .. } if released == hold);
        history.iter().filter(of_hold).any(|it| it.ended.is_some())
    };
    let found = history.iter().find_map(|it| match (it.call, it.ended) {
        (LockCall::Acquire { hold, .. }, Some(ended)) if is_released(hold) => Some((hold, ended)),
        _ => None,
    });
    found.expect("some hold is released")
}

/// `LOCKDOG_CASES`, or as many as run in a second.
fn histories() -> u64 {
    let cases = std::env::var("LOCKDOG_CASES").ok();
    cases.map_or(10, |cases| cases.parse().expect("it is a number"))
}

const THREADS: usize = 8;
const CALLS: usize = 200;
const SEATS: u32 = 3;
