//! The replicas of a server, as counted in its answers.

use std::time::Duration;

use super::followers::Followers;
use crate::clock::Moment;

/// The replicas of a master at the last count.
#[derive(Default)]
pub(super) struct ReplicaCount {
    pub(super) following: u32,
    /// The largest number at one time.
    most: u32,
    /// Since when there have been fewer than that.
    lost: Option<Moment>,
    /// When they were last counted.
    at: Option<Moment>,
    /// No replica follows, and the previous count is too old to exclude one in between.
    unsure: bool,
}

impl ReplicaCount {
    pub(super) fn count(&mut self, followers: Followers, now: Moment) {
        let following = followers.following;
        if following >= self.most {
            self.most = following;
            self.lost = None;
        } else if following < self.following {
            self.lost = Some(now);
        }
        self.following = following;
        let is_recent = self.at.is_some_and(|at| now.since(at) <= RECENT);
        self.unsure = following == 0 && !is_recent;
        self.at = Some(now);
    }

    /// Whether there were more replicas recently, or may have been. One of them may be the master now.
    pub(super) fn lost(&self, now: Moment) -> bool {
        let since = |at: Option<Moment>| at.map(|at| now.since(at));
        self.unsure
            || since(self.lost).is_some_and(|since| since < A_MINUTE)
            || since(self.at).is_some_and(|since| since > RECENT)
    }
}

/// Counts that are further apart say nothing about the time between them.
const RECENT: Duration = Duration::from_secs(3);
/// Usually longer than it takes to replace a master that was cut off.
const A_MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn following(following: u32) -> Followers {
        Followers {
            connected: following,
            following,
        }
    }

    #[test]
    fn a_loss_of_replicas_lasts_until_as_many_follow_again() {
        let mut counted = ReplicaCount::default();
        let at = |second| Moment(0) + Duration::from_secs(second);
        for (second, following, lost) in [
            (0, 0, None),
            (1, 2, None),
            (2, 1, Some(at(2))),
            (3, 1, Some(at(2))),
            (4, 0, Some(at(4))),
            (5, 1, Some(at(4))),
            (6, 2, None),
            (7, 3, None),
            (8, 2, Some(at(8))),
        ] {
            counted.count(self::following(following), at(second));
            assert_eq!((counted.following, counted.lost), (following, lost));
        }
        assert!(counted.lost(at(9)) && counted.lost(at(60)));
        counted.count(following(2), at(69));
        assert!(!counted.lost(at(70)) && counted.lost(at(80)));
    }

    #[test]
    fn zero_replicas_are_believed_after_two_observations() {
        let mut counted = ReplicaCount::default();
        let at = |second| Moment(0) + Duration::from_secs(second);
        assert!(!counted.lost(at(0)));
        for (second, lost) in [(1, true), (2, false), (3, false), (60, true), (61, false)] {
            counted.count(following(0), at(second));
            assert_eq!(counted.lost(at(second)), lost, "{second}");
        }
    }
}
