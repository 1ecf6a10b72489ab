//! A lease that one call wants longer than the rest.

use super::*;

#[test]
fn a_lease_that_is_wanted_once_is_not_that_of_the_rounds_after_it() {
    let mut quorum = held(3, START);
    let lengthen = |leases| Event::Lengthen {
        lease: leases * LEASE,
        renewed: false,
    };
    // Nobody answers it in time: it came to nothing.
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
    // It is lengthened. The rounds come as often as before, and ask for what is held already.
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
        // Whoever takes it again now keeps it for as long as the others.
        assert!(quorum.round.deadline >= deadline);
        // Each is for whole milliseconds.
        assert!(now + quorum.lease() <= (long + 10 * LEASE + ms(40)).max(now + LEASE));
        for member in 0..2 {
            answer(&mut quorum, member, Answer::Extended, now);
        }
        assert!(quorum.is_valid(now) && quorum.renewed() == now);
    }
    // By now it is as it was.
    assert_eq!(quorum.lease(), LEASE);
    assert_eq!(quorum.deadline(), lease::deadline(now, LEASE));
    // The other one's lease holds for a round that is begun over it.
    quorum.step(lengthen(10), now);
    quorum.step(lengthen(2), now);
    assert_eq!(quorum.lease(), 10 * LEASE);
}

#[test]
fn what_is_renewed_is_never_extended_by_less_than_its_lease() {
    let mut quorum = held(3, START);
    // Nothing was heard for a while, and little is left.
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
