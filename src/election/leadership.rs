//! The leadership of a candidate that was elected.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Election, check_value};
use crate::clock::Moment;
use crate::error::{Error, Lost, LostReason, Result};
use crate::guard::{Guard, Held, Verdict};
use crate::hold::Hold;
use crate::owner::Owner;
use crate::script::election::{self, Proclamation};
use crate::server::TimeBox;

/// A leadership, from [`Election::campaign`]. It is a [`Leading`] that can be ended.
///
/// [`resign`](Self::resign) ends it and waits until Redis has confirmed that. Dropping it resigns without waiting:
/// the client's own thread sends the release to Redis. A leadership can be lost, and reports that as a [`Guard`]
/// does.
#[must_use = "`let _ = ..` drops the leadership immediately, and that resigns"]
pub struct Leadership {
    guard: Guard,
    leading: Leading,
}

/// A view of a leadership, for the work of the leader: see [`Election::run`]. It cannot end the leadership.
#[derive(Clone)]
pub struct Leading {
    held: Held,
    shared: Arc<Shared>,
}

/// The state that the views of one leadership share.
struct Shared {
    election: Election,
    hold: Arc<Hold>,
    term: u64,
    /// How many proclamations have begun.
    proclaimed: AtomicU64,
}

impl Leadership {
    /// Publishes the value of the leader with this guard, by `until` at the latest.
    ///
    /// # Cancel safety
    ///
    /// The leadership ends in the background.
    pub(super) async fn begin(
        election: Election,
        guard: Guard,
        value: String,
        until: Moment,
    ) -> Result<Self> {
        // A grant without a token does not count, and one lock has one claim.
        let (Some(claim), Some(term)) = (guard.claim(), guard.token()) else {
            return Err(Error::Closed);
        };
        let shared = Shared {
            election,
            hold: claim.hold().clone(),
            term,
            proclaimed: AtomicU64::new(0),
        };
        let leading = Leading {
            held: guard.held(),
            shared: Arc::new(shared),
        };
        leading.publish(value, until).await?;
        Ok(Self { guard, leading })
    }

    /// Ends the leadership, and notifies the first waiter in the queue.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`]: [`Error::Lost`] if the leadership was lost before, [`Error::UnlockUnconfirmed`] if Redis
    /// did not confirm its end.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::unlock`].
    pub async fn resign(self) -> Result<()> {
        self.guard.unlock().await.map(drop)
    }

    /// A view for the work, which cannot end the leadership.
    pub fn leading(&self) -> Leading {
        self.leading.clone()
    }
}

impl Leading {
    /// The number of this leadership, larger than those of all before it: a fencing token. It is the server's clock
    /// in microseconds, or the next number if that is larger: see [`Client::fenced_lock`](crate::Client::fenced_lock).
    pub fn term(&self) -> u64 {
        self.shared.term
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.shared.election.name()
    }

    /// Publishes another value: [`Election::leader`] and [`Election::observe`] then return it. The value has at
    /// most 65,536 bytes.
    ///
    /// If several `proclaim` calls overlap, the value of the call that began last stays, in any order of arrival.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the leadership has ended, [`Error::Invalid`] for a value that is too long; the client sends
    /// nothing then. Otherwise as [`Election::leader`]; the server also refuses the value if another program raised
    /// the counter of the terms. After an [`Error::Timeout`] or [`Error::Unavailable`] the value may be published, now
    /// or later. The leadership continues.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the value may or may not be published.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<()> {
        let value = value.into();
        check_value(&value)?;
        self.publish(value, Moment::NEVER).await
    }

    async fn publish(&self, value: String, until: Moment) -> Result<()> {
        let Shared {
            election,
            hold,
            term,
            proclaimed,
        } = &*self.shared;
        let object = &election.inner.object;
        let core = object.core();
        if let Some(lost) = hold.loss(core.clock.now()) {
            return Err(lost.into());
        }
        let what = Proclamation {
            field: &core.field(hold),
            term: *term,
            number: proclaimed.fetch_add(1, Ordering::Relaxed) + 1,
            value: &value,
        };
        let published = object.call(async |core, key, time, sent| {
            let until = time.until.min(until);
            let time = TimeBox { until, ..time };
            election::proclaim(&core.server, key, &what, time, sent).await
        });
        if published.await?.0 {
            return Ok(());
        }
        // The server no longer has this leadership. A renewal would find that later.
        core.lose(hold, LostReason::NotOurs);
        let lost = hold.loss(core.clock.now());
        Err(lost.map_or(Error::Closed, Error::Lost))
    }

    /// Waits until the leadership is lost and returns how: see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lost(&self) -> Lost {
        self.held.lost().await
    }

    /// See [`Guard::lost_token`].
    pub fn lost_token(&self) -> CancellationToken {
        self.held.lost_token()
    }

    /// Whether it leads: see [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// How long the leadership is valid without a further renewal: see [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// See [`Guard::verdict`].
    pub fn verdict(&self) -> Verdict {
        self.held.verdict()
    }

    /// The owner that leads: see [`Guard::owner`].
    pub fn owner(&self) -> Owner {
        self.held.owner()
    }
}

impl Deref for Leadership {
    type Target = Leading;

    fn deref(&self) -> &Leading {
        &self.leading
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leading.show("Leadership", f)
    }
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("Leading", f)
    }
}

impl Leading {
    fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("election", &self.name())
            .field("term", &self.term())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
