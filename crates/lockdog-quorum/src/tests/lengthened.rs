//! A lease that one call wants longer than the other calls.

use super::*;

#[test]
fn a_lease_requested_once_does_not_apply_to_later_rounds() {
    let mut quorum = held(3, START);
    let lengthen = |leases| Event::Lengthen {
        lease: leases * LEASE,
        renewed: false,
    };
    // No answer comes in time, so it has no effect.
    quorum.step(lengthen(10), START);
    assert_eq!(quorum.lease(), 10 * LEASE);
    let over = quorum.wake_at();
    quorum.step(Event::Tick, over);
    let again = quorum.wake_at();
    assert_eq!(again, over + LEASE / 10);
    quorum.step(Event::Tick, again);
    assert_eq!(quorum.lease(), LEASE);
    for member in 0..3 {
        answer(&mut quorum, member, Answer::Extended, again);
    }
    assert_eq!(quorum.deadline(), lease::deadline(again, LEASE));
    // It is lengthened. Rounds come as often as before, and ask for the lease that is already held.
    let long = again + ms(100);
    quorum.step(lengthen(10), long);
    for member in 0..2 {
        answer(&mut quorum, member, Answer::Extended, long);
    }
    let deadline = lease::deadline(long, 10 * LEASE);
    let mut now = long;
    for _ in 0..40 {
        assert_eq!(quorum.wake_at(), now + LEASE / 3);
        now = quorum.wake_at();
        quorum.step(Event::Tick, now);
        // An instance that is re-acquired now keeps it as long as the others.
        assert!(quorum.round.deadline >= deadline);
        // Each lease is in whole milliseconds.
        assert!(now + quorum.lease() <= (long + 10 * LEASE + ms(40)).max(now + LEASE));
        for member in 0..2 {
            answer(&mut quorum, member, Answer::Extended, now);
        }
        assert!(quorum.is_valid(now) && quorum.renewed() == now);
    }
    // By now the lease is back to normal.
    assert_eq!(quorum.lease(), LEASE);
    assert_eq!(quorum.deadline(), lease::deadline(now, LEASE));
    // A round that replaces an open one keeps that one's lease.
    quorum.step(lengthen(10), now);
    quorum.step(lengthen(2), now);
    assert_eq!(quorum.lease(), 10 * LEASE);
}

#[test]
fn a_renewed_quorum_is_never_extended_by_less_than_its_lease() {
    let mut quorum = held(3, START);
    // No answer came for a while, and little of the lease is left.
    let now = START + (LEASE - ms(500));
    let shorter = Event::Lengthen {
        lease: ms(1_000),
        renewed: false,
    };
    quorum.step(shorter, now);
    for member in 0..2 {
        answer(&mut quorum, member, Answer::Extended, now);
    }
    assert_eq!(quorum.deadline(), lease::deadline(now, LEASE));
    assert_eq!(quorum.wake_at(), now + LEASE / 3);
}
