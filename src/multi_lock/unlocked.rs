//! The outcome of unlocking all members.

use crate::error::{Error, Result};
use crate::session::Unlocked;

/// The result of unlocking all members: the worst error, or else the smallest count that is left.
pub(super) fn whole(unlocked: Vec<Result<Unlocked>>) -> Result<Unlocked> {
    let mut counts = Vec::with_capacity(unlocked.len());
    let mut worst: Option<Error> = None;
    for outcome in unlocked {
        match outcome {
            // `Kept` comes from a claim on the single lock with `hold_at_least`. A multi lock has no such option.
            Ok(Unlocked::Released | Unlocked::Kept { .. }) => counts.push(0),
            Ok(Unlocked::StillHeld { count }) => counts.push(count),
            Err(error)
                if worst
                    .as_ref()
                    .is_none_or(|worst| rank(&error) > rank(worst)) =>
            {
                worst = Some(error);
            }
            Err(_) => {}
        }
    }
    if let Some(worst) = worst {
        return Err(worst);
    }
    Ok(match counts.into_iter().min() {
        None | Some(0) => Unlocked::Released,
        Some(count) => Unlocked::StillHeld { count },
    })
}

/// A loss is worse than an unlock without confirmation.
fn rank(error: &Error) -> u8 {
    match error {
        Error::Lost(_) => 3,
        Error::NotHeld(_) => 2,
        Error::UnlockUnconfirmed(_) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::{NotHeld, UnlockUnconfirmed};

    #[test]
    fn the_outcome_of_an_unlock_is_the_worst_outcome_and_the_smallest_count() {
        let kept = |count| Ok(Unlocked::StillHeld { count });
        let whole_of = |outcomes: Vec<Result<Unlocked>>| whole(outcomes);
        assert!(matches!(
            whole_of(vec![kept(3), kept(2)]),
            Ok(Unlocked::StillHeld { count: 2 })
        ));
        assert!(matches!(
            whole_of(vec![kept(3), Ok(Unlocked::Released)]),
            Ok(Unlocked::Released)
        ));
        let not_held = || Err(NotHeld::nothing("a", "1").into());
        let unconfirmed = || Err(UnlockUnconfirmed::new("a", Duration::ZERO, None).into());
        for outcomes in [
            vec![not_held(), unconfirmed(), kept(1)],
            vec![kept(1), unconfirmed(), not_held()],
        ] {
            assert!(matches!(whole_of(outcomes), Err(Error::NotHeld(_))));
        }
    }
}
