//! The effects of single answers. The simulator and the model checker test the rest.

mod deadline;
mod lengthened;

use super::*;

const LEASE: Duration = Duration::from_secs(10);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rules(members: usize, reads: usize) -> Rules {
    Rules {
        members,
        need: Rules::need(members, 0),
        reads,
        lease: LEASE,
        renewed: true,
        min_validity: Duration::ZERO,
        max_until: Moment::NEVER,
    }
}

fn answer(quorum: &mut Quorum, member: usize, answer: Answer, now: Moment) -> Actions {
    let round = quorum.round.number;
    let event = Event::Answered {
        member,
        round,
        answer,
    };
    quorum.step(event, now)
}

fn held(members: usize, now: Moment) -> Quorum {
    let (mut quorum, actions) = Quorum::begin(rules(members, 0), now);
    assert_eq!(actions.len(), members);
    for member in 0..members {
        answer(&mut quorum, member, Answer::Taken(None), now);
    }
    assert_eq!(quorum.phase(), Phase::Held);
    quorum
}

const START: Moment = Moment(1_000_000_000_000);

#[test]
fn the_quorum_answer_wins_the_round_and_the_deadline_counts_from_its_start() {
    let (mut quorum, _) = Quorum::begin(rules(5, 0), START);
    for member in 0..3 {
        assert_eq!(quorum.phase(), Phase::Acquiring);
        answer(&mut quorum, member, Answer::Taken(None), START + ms(7));
    }
    assert_eq!(quorum.phase(), Phase::Held);
    assert_eq!(quorum.deadline(), lease::deadline(START, LEASE));
    assert_eq!(quorum.margin(START), 0);
    answer(&mut quorum, 4, Answer::Taken(None), START + ms(9));
    assert_eq!(quorum.margin(START), 1);
}

#[test]
fn a_failed_round_releases_its_grants_and_later_grants() {
    let (mut quorum, _) = Quorum::begin(rules(3, 0), START);
    answer(&mut quorum, 0, Answer::Taken(None), START);
    answer(&mut quorum, 1, Answer::Busy(Some(LEASE), None), START);
    assert_eq!(quorum.phase(), Phase::Acquiring);
    let actions = quorum.step(Event::Tick, quorum.wake_at());
    assert_eq!(quorum.phase(), Phase::Failed);
    let released: Vec<_> = actions.iter().collect();
    assert_eq!(released.len(), 2, "{released:?}");
    assert_eq!(quorum.outcome(2), MemberOutcome::Late);
    let late = Event::Answered {
        member: 2,
        round: 1,
        answer: Answer::Taken(None),
    };
    let actions = quorum.step(late, START + ms(600));
    assert_eq!(actions[..], [Action::Release { member: 2 }]);
}

#[test]
fn an_extension_round_counts_only_its_own_answers_and_reacquires_free_instances() {
    let mut quorum = held(3, START);
    let first = quorum.deadline();
    let due = quorum.wake_at();
    assert_eq!(due, START + LEASE / 3);
    let actions = quorum.step(Event::Tick, due);
    assert!(
        actions
            .iter()
            .all(|action| matches!(action, Action::Extend { .. }))
    );
    answer(&mut quorum, 0, Answer::Extended, due);
    assert_eq!(quorum.deadline(), first);
    // No more answers: jeopardy, and a retry.
    let over = quorum.wake_at();
    quorum.step(Event::Tick, over);
    assert_eq!(quorum.phase(), Phase::Jeopardy);
    let again = quorum.wake_at();
    assert_eq!(again, over + LEASE / 10);
    let actions = quorum.step(Event::Tick, again);
    assert_eq!(actions.len(), 3);
    // An answer of the previous round is no vote in this one.
    let old = Event::Answered {
        member: 1,
        round: 2,
        answer: Answer::Extended,
    };
    quorum.step(old, again);
    answer(&mut quorum, 0, Answer::Extended, again);
    assert_eq!(quorum.deadline(), first);
    answer(&mut quorum, 2, Answer::NotOurs, again);
    answer(&mut quorum, 1, Answer::Extended, again);
    assert_eq!(quorum.phase(), Phase::Held);
    assert_eq!(quorum.deadline(), lease::deadline(again, LEASE));
    assert_eq!(quorum.margin(again), 0);
    let heal = quorum.wake_at();
    let actions = quorum.step(Event::Tick, heal);
    assert!(actions.contains(&Action::Take {
        member: 2,
        round: 4
    }));
    answer(&mut quorum, 2, Answer::Taken(None), heal);
    assert_eq!(quorum.margin(heal), 1);
}

#[test]
fn an_instance_that_grants_late_is_asked_for_the_current_extension() {
    let (mut quorum, _) = Quorum::begin(rules(3, 0), START);
    for member in 0..2 {
        answer(&mut quorum, member, Answer::Taken(None), START);
    }
    let lengthen = Event::Lengthen {
        lease: 2 * LEASE,
        renewed: false,
    };
    let actions = quorum.step(lengthen, START);
    assert_eq!(actions.len(), 2, "{actions:?}");
    let behind = Event::Answered {
        member: 2,
        round: 1,
        answer: Answer::Taken(None),
    };
    let actions = quorum.step(behind, START);
    let asked = Action::Extend {
        member: 2,
        round: 2,
    };
    assert_eq!(actions[..], [asked]);
    // Its grant was for the previous round; its answer to the extension is for this one.
    answer(&mut quorum, 0, Answer::Extended, START);
    assert_eq!(quorum.deadline(), lease::deadline(START, LEASE));
    answer(&mut quorum, 2, Answer::Extended, START);
    assert_eq!(quorum.deadline(), lease::deadline(START, 2 * LEASE));
    // As long as the other instances keep it.
    let later = START + LEASE;
    answer(&mut quorum, 1, Answer::Extended, later);
    assert_eq!(quorum.margin(later), 1);
}

#[test]
fn a_take_executed_twice_stays_granted_or_is_released() {
    let (mut quorum, _) = Quorum::begin(rules(3, 0), START);
    answer(&mut quorum, 0, Answer::Taken(None), START);
    for earlier in [
        Answer::Busy(None, None),
        Answer::Quarantined(LEASE),
        Answer::Taken(None),
    ] {
        assert_eq!(answer(&mut quorum, 0, earlier, START).len(), 0);
        assert!(quorum.has(0), "{earlier:?}");
    }
    answer(&mut quorum, 1, Answer::Taken(None), START);
    answer(&mut quorum, 2, Answer::Busy(None, None), START);
    let actions = answer(&mut quorum, 2, Answer::Taken(None), START);
    assert_eq!(actions[..], [Action::Release { member: 2 }]);
    assert!(!quorum.has(2));
}

#[test]
fn enough_definite_refusals_lose_the_quorum_at_once() {
    let mut quorum = held(5, START);
    let due = quorum.wake_at();
    quorum.step(Event::Tick, due);
    for member in 0..2 {
        answer(&mut quorum, member, Answer::NotOurs, due);
    }
    assert!(quorum.is_valid(due));
    let actions = answer(&mut quorum, 2, Answer::NotOurs, due);
    assert_eq!(quorum.phase(), Phase::Lost(LossCause::NotOurs));
    assert!(!quorum.is_valid(due));
    for member in 2..5 {
        assert!(actions.contains(&Action::Release { member }));
    }
}

fn register(value: Option<u64>, time: u64, reborn: bool) -> Option<Register> {
    Some(Register {
        value,
        time,
        reborn,
    })
}

#[test]
fn a_token_exceeds_every_register_and_is_visible_once_a_quorum_stored_it() {
    let (mut quorum, _) = Quorum::begin(rules(3, 2), START);
    answer(
        &mut quorum,
        0,
        Answer::Taken(register(Some(50), 20, false)),
        START,
    );
    let actions = answer(
        &mut quorum,
        1,
        Answer::Taken(register(None, 30, false)),
        START,
    );
    assert_eq!(quorum.phase(), Phase::Marking);
    assert_eq!(quorum.token(), None);
    assert!(actions.contains(&Action::Mark {
        member: 0,
        round: 2,
        token: 51
    }));
    answer(&mut quorum, 0, Answer::Marked, START);
    assert_eq!(quorum.token(), None);
    answer(&mut quorum, 1, Answer::Marked, START);
    assert_eq!((quorum.phase(), quorum.token()), (Phase::Held, Some(51)));
}

#[test]
fn a_conflicting_register_raises_the_token() {
    let (mut quorum, _) = Quorum::begin(rules(3, 2), START);
    answer(
        &mut quorum,
        0,
        Answer::Busy(None, register(Some(1), 900, false)),
        START,
    );
    answer(
        &mut quorum,
        1,
        Answer::Taken(register(Some(1), 900, false)),
        START,
    );
    answer(
        &mut quorum,
        2,
        Answer::Taken(register(Some(1), 900, false)),
        START,
    );
    answer(&mut quorum, 1, Answer::Marked, START);
    let actions = answer(&mut quorum, 2, Answer::Conflict(1000), START);
    assert!(actions.contains(&Action::Mark {
        member: 1,
        round: 3,
        token: 1001
    }));
    answer(&mut quorum, 1, Answer::Marked, START);
    answer(&mut quorum, 2, Answer::Marked, START);
    assert_eq!(quorum.token(), Some(1001));
}

#[test]
fn a_lost_register_does_not_count_as_a_read() {
    let (mut quorum, _) = Quorum::begin(rules(3, 2), START);
    answer(
        &mut quorum,
        0,
        Answer::Taken(register(None, 1, true)),
        START,
    );
    answer(
        &mut quorum,
        1,
        Answer::Taken(register(Some(7), 1, false)),
        START,
    );
    assert_eq!(quorum.phase(), Phase::Acquiring);
    answer(
        &mut quorum,
        2,
        Answer::Busy(None, register(Some(9), 1, false)),
        START,
    );
    assert_eq!((quorum.phase(), quorum.token), (Phase::Marking, 10));
}

#[test]
fn a_quorum_without_enough_registers_reports_which_instance_lost_its_register() {
    let (mut quorum, _) = Quorum::begin(rules(3, 2), START);
    for (member, reborn) in [(0, true), (1, false)] {
        let taken = Answer::Taken(register(Some(7), 1, reborn));
        answer(&mut quorum, member, taken, START);
    }
    answer(&mut quorum, 2, Answer::Failed, START);
    assert_eq!(quorum.phase(), Phase::Failed);
    let outcomes = [0, 1, 2].map(|member| quorum.outcome(member));
    use MemberOutcome::{Forgetful, Held, Unreachable};
    let expected = [Forgetful, Held, Unreachable];
    assert_eq!(outcomes, expected);
}

#[test]
fn the_clocks_set_the_token_when_most_registers_may_be_lost() {
    let (mut quorum, _) = Quorum::begin(rules(3, 2), START);
    answer(
        &mut quorum,
        0,
        Answer::Taken(register(None, 800, true)),
        START,
    );
    answer(
        &mut quorum,
        1,
        Answer::Taken(register(None, 900, true)),
        START,
    );
    // The third instance may know the latest token.
    assert_eq!(quorum.phase(), Phase::Acquiring);
    let mut known = quorum.clone();
    let latest = Answer::Busy(None, register(Some(5000), 700, false));
    answer(&mut known, 2, latest, START);
    assert_eq!((known.phase(), known.token), (Phase::Marking, 5001));
    quorum.step(Event::Tick, quorum.wake_at());
    assert_eq!((quorum.phase(), quorum.token), (Phase::Marking, 900));
}

#[test]
fn masking_raises_the_quorum_and_reads_enough_registers() {
    let both = |members, masked| (Rules::need(members, masked), Rules::reads(members, masked));
    assert_eq!(both(1, 0), (1, 1));
    assert_eq!(both(3, 0), (2, 2));
    assert_eq!(both(5, 0), (3, 3));
    assert_eq!(both(5, 1), (4, 3));
    assert_eq!(both(3, 1), (3, 2));
    assert_eq!(both(7, 2), (5, 5));
}
