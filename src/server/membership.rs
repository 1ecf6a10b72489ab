//! Decides which nodes belong to the cluster, or which sentinels to the master, by the ids that
//! they know of each other.
//!
//! An address may meanwhile belong to a node of another cluster, or to a sentinel of another master
//! with the same name. Such a node's epochs mean nothing here, however large they are.

use std::collections::HashSet;
use std::time::Duration;

use super::failure::Failure;
use crate::clock::Moment;

/// One node's or sentinel's answer about its group.
#[derive(Clone)]
pub(super) struct Witness {
    /// Its own id and all other ids that it knows.
    pub(super) ids: Vec<String>,
    /// A name that all members of a group share, although they may not know each other's ids yet.
    pub(super) also: Option<String>,
    /// It is at an address that the user configured.
    pub(super) is_seed: bool,
    /// Its answer contains a claim that could count: a master with slots, or a named master.
    pub(super) claims: bool,
}

/// The known members of the group.
#[derive(Default)]
pub(super) struct Membership {
    known: HashSet<String>,
    /// Since when only nodes that are not known members have answered.
    strange: Option<Moment>,
    /// Whether the log already says that some answers are of other groups.
    has_reported: bool,
}

/// Which of the answers count.
pub(super) struct Consistent {
    /// One flag for each answer: it belongs to the group.
    pub(super) belongs: Vec<bool>,
    /// Some do not belong to it, and the answers before all did.
    pub(super) is_first_report: bool,
}

impl Membership {
    /// Chooses which answers count.
    ///
    /// - At the first query, the answers of the largest group.
    /// - Later, each witness that knows more than half of the known members.
    /// - If there is no such witness, the remaining known members: see [`Membership::remaining`].
    /// - If no known member has answered for long, and most seeds answer as members of another group, the
    ///   deployment was set up again, and that group counts. `seeds` is the number of queried nodes that the
    ///   user configured.
    pub(super) fn choose(
        &mut self,
        witnesses: &[Witness],
        seeds: usize,
        asked: Moment,
    ) -> Result<Consistent, Failure> {
        let belongs: Vec<bool> = if self.known.is_empty() {
            largest(witnesses)?
        } else {
            let belongs: Vec<bool> = witnesses.iter().map(|it| self.knows(it)).collect();
            let since = self.strange.unwrap_or(asked);
            let is_long = asked.since(since) > DOUBT;
            if belongs.contains(&true) {
                belongs
            } else if let Some(belongs) = self.remaining(witnesses, is_long) {
                belongs
            } else {
                self.strange = Some(since);
                set_up_again(witnesses, seeds, is_long)?
            }
        };
        self.strange = None;
        let membership = || {
            witnesses
                .iter()
                .zip(&belongs)
                .filter(|(_, belongs)| **belongs)
        };
        self.known = membership()
            .flat_map(|(it, _)| it.ids.iter().cloned())
            .collect();
        let has_others = belongs.contains(&false);
        let is_first_report = has_others && !self.has_reported;
        self.has_reported = has_others;
        Ok(Consistent {
            belongs,
            is_first_report,
        })
    }

    fn knows(&self, witness: &Witness) -> bool {
        let ids: HashSet<&String> = witness.ids.iter().collect();
        let shared = ids.iter().filter(|id| self.known.contains(**id)).count();
        shared * 2 > self.known.len()
    }

    /// The members that remain after half or more of the known members were removed between two
    /// queries. Most of the ids that they know must be known members, and together they must know at
    /// least half of the known members. If they know fewer, `is_long` must be true: the majority
    /// has not answered for long. If a cluster was divided into two and both parts answer, neither
    /// part counts.
    fn remaining(&self, witnesses: &[Witness], is_long: bool) -> Option<Vec<bool>> {
        let shared =
            |ids: &HashSet<&String>| ids.iter().filter(|id| self.known.contains(**id)).count();
        let remains = |witness: &Witness| {
            let ids: HashSet<&String> = witness.ids.iter().collect();
            witness.claims && shared(&ids) * 2 > ids.len()
        };
        let groups = groups(witnesses, remains);
        let [(_, members)] = &groups[..] else {
            return None;
        };
        let ids = members.iter().flat_map(|member| &witnesses[*member].ids);
        let is_half = shared(&ids.collect()) * 2 >= self.known.len();
        let is_in = (0..witnesses.len()).map(|number| members.contains(&number));
        (is_half || is_long).then(|| is_in.collect())
    }
}

/// The answers that count after a deployment was set up again: unknown nodes must answer at most of the seeds'
/// addresses, and no known member must have answered for long enough.
fn set_up_again(witnesses: &[Witness], seeds: usize, is_long: bool) -> Result<Vec<bool>, Failure> {
    if is_long {
        let belongs = largest(witnesses)?;
        let at_seeds = witnesses.iter().zip(&belongs);
        let at_seeds = at_seeds.filter(|(it, belongs)| it.is_seed && **belongs);
        if at_seeds.count() * 2 > seeds {
            return Ok(belongs);
        }
    }
    let cause = "the servers that answer do not know enough of the earlier ones";
    Err(Failure::Unsent(cause.into()))
}

/// Groups of witnesses that know each other, as sets of ids and indexes, of those that `counts`
/// accepts.
fn groups(
    witnesses: &[Witness],
    counts: impl Fn(&Witness) -> bool,
) -> Vec<(HashSet<&str>, Vec<usize>)> {
    let mut groups: Vec<(HashSet<&str>, Vec<usize>)> = Vec::new();
    for (number, witness) in witnesses.iter().enumerate() {
        if !counts(witness) {
            continue;
        }
        let ids = witness.ids.iter().chain(&witness.also);
        let mut group: (HashSet<&str>, Vec<usize>) =
            (ids.map(String::as_str).collect(), vec![number]);
        // Witnesses that name no ids cannot be distinguished.
        let is_one = |other: &(HashSet<&str>, Vec<usize>)| {
            !other.0.is_disjoint(&group.0) || (other.0.is_empty() && group.0.is_empty())
        };
        let (same, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_one);
        for (ids, members) in same {
            group.0.extend(ids);
            group.1.extend(members);
        }
        groups = others;
        groups.push(group);
    }
    groups
}

/// The largest group among the witnesses that claim anything.
fn largest(witnesses: &[Witness]) -> Result<Vec<bool>, Failure> {
    let has_claims = witnesses.iter().any(|it| it.claims);
    let groups = groups(witnesses, |it| it.claims || !has_claims);
    let most = groups.iter().map(|(_, members)| members.len()).max();
    let mut largest = groups.iter().filter(|(_, it)| Some(it.len()) == most);
    match (largest.next(), largest.next()) {
        (Some((_, members)), None) => {
            let is_in = (0..witnesses.len()).map(|number| members.contains(&number));
            Ok(is_in.collect())
        }
        (None, _) => Ok(vec![true; witnesses.len()]),
        (Some(_), Some(_)) => {
            let cause = "the addresses lead to servers of different deployments";
            Err(Failure::Unsent(cause.into()))
        }
    }
}

/// Unknown nodes count after no known member has answered for this long.
const DOUBT: Duration = Duration::from_secs(10);

/// How long the client waits for the other nodes or sentinels once enough have answered.
pub(super) const GRACE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(ids: &str) -> Witness {
        Witness {
            ids: ids.chars().map(String::from).collect(),
            also: None,
            is_seed: true,
            claims: true,
        }
    }

    fn choose(membership: &mut Membership, ids: &[&str], second: u64) -> Option<Vec<bool>> {
        let witnesses: Vec<_> = ids.iter().map(|ids| witness(ids)).collect();
        let asked = Moment(0) + Duration::from_secs(second);
        let chosen = membership.choose(&witnesses, 3, asked);
        chosen.ok().map(|chosen| chosen.belongs)
    }

    #[test]
    fn at_first_a_majority_of_the_seeds_is_believed_and_half_is_not() {
        let chosen = |ids: &[&str]| choose(&mut Membership::default(), ids, 0);
        assert_eq!(chosen(&["abc"]), Some(vec![true]));
        assert_eq!(chosen(&["abc", "xyz", "ab"]), Some(vec![true, false, true]));
        assert_eq!(chosen(&["abc", "xyz"]), None);
        // A witness without claims forms no group.
        let mut idle = witness("x");
        idle.claims = false;
        let both = [witness("abc"), idle];
        let chosen = Membership::default().choose(&both, 2, Moment(0));
        assert_eq!(chosen.unwrap().belongs, [true, false]);
        // They do not know each other yet, but name the same master.
        let named = |ids| Witness {
            also: Some("m".to_owned()),
            ..witness(ids)
        };
        let chosen = Membership::default().choose(&[named("a"), named("b")], 2, Moment(0));
        assert_eq!(chosen.unwrap().belongs, [true, true]);
    }

    #[test]
    fn a_node_that_lists_under_half_of_the_known_members_is_foreign() {
        let mut membership = Membership::default();
        assert_eq!(choose(&mut membership, &["abcd"], 0), Some(vec![true]));
        // One member joined the other group.
        assert_eq!(
            choose(&mut membership, &["axyz", "bcd", "abcde"], 1),
            Some(vec![false, true, true])
        );
        assert_eq!(choose(&mut membership, &["axyz"], 2), None);
        // The members are replaced one after the other.
        for (second, ids) in [(3, "bcde"), (4, "cdef"), (5, "defg"), (6, "efgh")] {
            assert_eq!(
                choose(&mut membership, &[ids], second),
                Some(vec![true]),
                "{ids}"
            );
        }
        assert_eq!(choose(&mut membership, &["abcd"], 7), None);
    }

    #[test]
    fn foreign_nodes_at_most_seeds_are_believed_after_a_long_silence_of_the_members() {
        let mut membership = Membership::default();
        choose(&mut membership, &["abc"], 0);
        for second in 1..=11 {
            assert_eq!(choose(&mut membership, &["xyz", "xy"], second), None);
        }
        // One seed is not a majority of the seeds.
        assert_eq!(choose(&mut membership, &["xyz"], 12), None);
        assert_eq!(
            choose(&mut membership, &["xyz", "xy"], 13),
            Some(vec![true; 2])
        );
        assert_eq!(choose(&mut membership, &["abc"], 14), None);
        // An answer of a known member resets the time.
        for second in 15..=24 {
            assert_eq!(choose(&mut membership, &["abc", "ab"], second), None);
        }
        assert!(choose(&mut membership, &["xyz", "abc"], 25).is_some());
        assert_eq!(choose(&mut membership, &["abc", "ab"], 26), None);
    }

    #[test]
    fn the_remaining_members_of_a_cluster_are_believed_after_any_removal() {
        let mut membership = Membership::default();
        choose(&mut membership, &["abc"], 0);
        choose(&mut membership, &["abcdef"], 1);
        // All configured seeds are gone.
        assert_eq!(
            choose(&mut membership, &["def", "def"], 2),
            Some(vec![true; 2])
        );
        assert_eq!(
            choose(&mut membership, &["def", "abc"], 3),
            Some(vec![true, false])
        );
        // Two of three are gone. The third one counts alone after neither of them has answered for long.
        for second in 4..=14 {
            assert_eq!(choose(&mut membership, &["d"], second), None, "{second}");
        }
        assert_eq!(
            choose(&mut membership, &["d", "xyz"], 15),
            Some(vec![true, false])
        );
    }

    #[test]
    fn members_that_joined_another_cluster_do_not_count_as_remaining() {
        let mut membership = Membership::default();
        choose(&mut membership, &["abcdef"], 0);
        // As many strangers as members.
        for second in 1..=20 {
            assert_eq!(choose(&mut membership, &["abcxyz"], second), None);
        }
        // The cluster was divided.
        for second in 21..=40 {
            assert_eq!(choose(&mut membership, &["abc", "def"], second), None);
        }
        assert_eq!(
            choose(&mut membership, &["a", "bcdef"], 41),
            Some(vec![false, true])
        );
        // A removed member claims nothing.
        let mut alone = witness("b");
        alone.claims = false;
        let later = Moment(0) + Duration::from_secs(100);
        for asked in [Moment(0), later] {
            assert!(membership.choose(&[alone.clone()], 9, asked).is_err());
        }
    }

    #[test]
    fn sentinels_without_peers_count_by_the_master_they_name() {
        let named = |ids, master: &str| Witness {
            also: Some(master.to_owned()),
            ..witness(ids)
        };
        let mut membership = Membership::default();
        choose(&mut membership, &["abc"], 0);
        let alone = membership.choose(&[named("a", "other")], 3, Moment(0));
        assert!(alone.is_err());
        let all = ["a", "b", "c"].map(|id| named(id, "m"));
        assert_eq!(
            membership.choose(&all, 3, Moment(0)).unwrap().belongs,
            [true; 3]
        );
    }

    #[test]
    fn answers_of_foreign_nodes_are_reported_once() {
        let mut membership = Membership::default();
        let mut reports = |ids: &[&str]| {
            let witnesses: Vec<_> = ids.iter().map(|ids| witness(ids)).collect();
            membership
                .choose(&witnesses, 3, Moment(0))
                .unwrap()
                .is_first_report
        };
        assert!(!reports(&["abc"]));
        assert!(reports(&["abc", "x"]) && !reports(&["abc", "x"]));
        assert!(!reports(&["abc"]) && reports(&["abc", "x"]));
    }
}
