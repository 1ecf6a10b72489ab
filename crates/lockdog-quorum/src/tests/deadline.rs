//! Answers that come near the deadline or after it.

use super::*;

#[test]
fn a_quorum_reached_just_before_its_deadline_is_no_grant() {
    let short = Rules {
        lease: ms(100),
        ..rules(1, 0)
    };
    let deadline = lease::deadline(START, ms(100));
    let at = |before: Duration| {
        let (mut quorum, _) = Quorum::begin(short.clone(), START);
        answer(&mut quorum, 0, Answer::Taken(None), deadline.minus(before));
        quorum.phase()
    };
    assert_eq!(at(ms(3)), Phase::Held);
    // From here on its owner would learn of the loss together with the grant.
    assert_eq!(at(LEAD_TIME), Phase::Failed);
}

#[test]
fn a_quorum_completed_after_its_deadline_fails() {
    let (mut quorum, _) = Quorum::begin(rules(1, 0), START);
    let late = lease::deadline(START, LEASE);
    answer(&mut quorum, 0, Answer::Taken(None), late);
    assert_eq!(quorum.phase(), Phase::Failed);
}

#[test]
fn a_late_round_does_not_revive_a_quorum_after_its_deadline() {
    let mut quorum = held(3, START);
    let due = quorum.wake_at();
    quorum.step(Event::Tick, due);
    let deadline = quorum.deadline();
    answer(&mut quorum, 0, Answer::Extended, deadline);
    answer(&mut quorum, 1, Answer::Extended, deadline);
    assert_eq!(quorum.phase(), Phase::Lost(LossCause::Deadline));
}
