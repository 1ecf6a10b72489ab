//! What an exploration has met.

use std::sync::atomic::{AtomicU64, Ordering};

use super::client::is_over;
use super::setting::Setting;
use super::world::World;
use crate::LossCause;
use crate::member::MemberState;
use crate::{Answer, Event, Phase, Quorum};

/// An event worth meeting: one that never happened was not explored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sight {
    /// A client held the lock.
    Won,
    /// A client held the lock after the other client.
    SecondHolder,
    /// A deadline was moved.
    Extended,
    /// An instance that did not grant at first was acquired by a round of extension.
    Healed,
    Jeopardy,
    LostByDeadline,
    LostByAnswers,
    /// A request or an answer arrived later, or in another round.
    LateRequest,
    LateAnswer,
    DoubledRequest,
    DoubledAnswer,
    /// A client was notified that no answer comes.
    Failure,
    /// A grant for an acquisition that was over.
    LateGrant,
    Restart,
    Quarantined,
    /// A grant of an instance that had lost its data and had been in quarantine.
    Rejoined,
    EarlyLoss,
    /// A token was shown to its holder.
    Token,
    /// A register had a larger token than the one to write.
    Conflict,
    /// A register that had lost its token was read.
    UntrustedLook,
}

/// In how many transitions each was seen.
#[derive(Debug, Default)]
pub(super) struct Reached {
    sights: [AtomicU64; ALL.len()],
    /// The number of expanded states.
    expanded: AtomicU64,
}

impl Reached {
    pub(super) fn note(&self, sight: Sight) {
        self.sights[sight as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, sight: Sight) -> u64 {
        self.sights[sight as usize].load(Ordering::Relaxed)
    }

    pub(super) fn note_expanded(&self) {
        self.expanded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn expanded(&self) -> u64 {
        self.expanded.load(Ordering::Relaxed)
    }

    /// A table of everything that was seen.
    pub(super) fn table(&self) -> String {
        let seen = ALL.iter().filter(|sight| self.count(**sight) > 0);
        let seen = seen.map(|&sight| format!("{sight:?}={}", self.count(sight)));
        seen.collect::<Vec<_>>().join(" ")
    }
}

impl World {
    /// Records the result of a step of a client's core.
    pub(super) fn note(&mut self, setting: &Setting, index: usize, before: &Quorum, event: &Event) {
        let reached = &setting.reached;
        let other = self.clients[1 - index].won;
        let client = &mut self.clients[index];
        let Some(core) = &client.core else { return };
        let quorum = &core.quorum;
        let begun = matches!(before.phase(), Phase::Acquiring | Phase::Marking);
        if begun && quorum.is_living() {
            client.won = true;
            reached.note(Sight::Won);
            if other {
                reached.note(Sight::SecondHolder);
            }
        }
        if !begun && quorum.is_living() && quorum.deadline() > before.deadline() {
            reached.note(Sight::Extended);
        }
        if before.phase() != quorum.phase() {
            match quorum.phase() {
                Phase::Jeopardy => reached.note(Sight::Jeopardy),
                Phase::Lost(LossCause::Deadline) => reached.note(Sight::LostByDeadline),
                Phase::Lost(LossCause::NotOurs) => reached.note(Sight::LostByAnswers),
                _ => {}
            }
        }
        let Event::Answered { member, answer, .. } = *event else {
            return;
        };
        let Answer::Taken(register) = answer else {
            return;
        };
        let member = &quorum.members[member];
        if quorum.is_living() && member.taken_in > 1 && member.state == MemberState::Held {
            reached.note(Sight::Healed);
        }
        if register.is_some_and(|it| it.reborn) {
            reached.note(Sight::UntrustedLook);
        }
        if is_over(quorum) {
            reached.note(Sight::LateGrant);
        }
    }
}

/// In the order of their declaration.
pub(super) const ALL: [Sight; 20] = [
    Sight::Won,
    Sight::SecondHolder,
    Sight::Extended,
    Sight::Healed,
    Sight::Jeopardy,
    Sight::LostByDeadline,
    Sight::LostByAnswers,
    Sight::LateRequest,
    Sight::LateAnswer,
    Sight::DoubledRequest,
    Sight::DoubledAnswer,
    Sight::Failure,
    Sight::LateGrant,
    Sight::Restart,
    Sight::Quarantined,
    Sight::Rejoined,
    Sight::EarlyLoss,
    Sight::Token,
    Sight::Conflict,
    Sight::UntrustedLook,
];
