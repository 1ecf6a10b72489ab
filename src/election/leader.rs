//! Who leads, as Redis shows it.

use crate::lock::{HolderInfo, Ttl};
use crate::script::election::LeaderReply;
use crate::session::Core;

/// Who leads an election, from [`Election::leader`](crate::Election::leader) and
/// [`Leaders::next`](crate::request::Leaders::next).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// Who holds the election's lock.
    pub holder: HolderInfo,
    /// The term of this leader. `None` if it has published nothing: it is a Redisson client with a fair lock of
    /// this name, or it was elected a moment ago.
    pub term: Option<u64>,
    /// The value that it published last. `None` in the same cases as the term.
    pub value: Option<String>,
}

impl Leader {
    pub(super) fn new(core: &Core, answer: LeaderReply) -> Self {
        let LeaderReply {
            field,
            ttl,
            proclaimed,
        } = answer;
        let ttl = ttl.map_or(Ttl::Persistent, Ttl::Expires);
        let is_ours = core.number_of(&field).is_some();
        let (term, value) = proclaimed.unzip();
        Self {
            holder: HolderInfo::new(field, 1, ttl, is_ours),
            term: term.map(std::num::NonZeroU64::get),
            value,
        }
    }

    /// Whether both are the same leadership with the same value. Their TTLs may differ.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.holder.field() == other.holder.field()
            && (self.term, &self.value) == (other.term, &other.value)
    }
}
