//! Looking at a lock: what Redis says of it.

use std::time::Duration;

use redis::Value;

use super::Lock;
use super::holder::{self, HolderInfo, Ttl};
use crate::background::ensure_runtime;
use crate::error::Result;
use crate::hold::Hold;
use crate::key::LockKey;
use crate::owner::Owner;
use crate::server::{Failure, Sent};
use crate::session::Core;

impl Lock {
    /// Whether anybody holds the lock. Corresponds to Redisson's `isLocked()`.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`](crate::Error::Timeout), [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Refused`](crate::Error::Refused), [`Error::Closed`](crate::Error::Closed), and
    /// [`Error::Invalid`](crate::Error::Invalid) for a bad name.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_locked(&self) -> Result<bool> {
        let key = self.key()?;
        let answer = self.ask("EXISTS", key, &[]).await?;
        Ok(answer != Value::Int(0))
    }

    /// Whether the current owner holds the lock, as Redis says. Corresponds to Redisson's
    /// `isHeldByCurrentThread()`. To check a guard without asking Redis, use
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_held(&self) -> Result<bool> {
        self.is_held_by(&Owner::current()).await
    }

    /// Whether this owner of this client holds the lock. Corresponds to Redisson's
    /// `isHeldByThread(threadId)`.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool> {
        Ok(self.count_of(owner).await? > 0)
    }

    /// How many acquires of the current owner are not unlocked yet, as Redis counts them: without
    /// those of [`Reentry::Local`](crate::config::Reentry::Local). 0 if it does not hold the lock.
    /// Corresponds to Redisson's `getHoldCount()`.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn hold_count(&self) -> Result<u32> {
        self.count_of(&Owner::current()).await
    }

    /// How long the lock lives on in Redis unless it is renewed; `None` if nobody holds it.
    /// Corresponds to Redisson's `remainTimeToLive()`, with `None` for -2 and
    /// [`Ttl::Persistent`] for -1.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn remaining_ttl(&self) -> Result<Option<Ttl>> {
        let key = self.key()?;
        Ok(ttl(&self.ask("PTTL", key, &[]).await?))
    }

    /// Who holds the lock, as Redis says; `None` if nobody does. If several readers of Redisson's
    /// read/write lock hold it, this is one of them. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn holder(&self) -> Result<Option<HolderInfo>> {
        let key = self.key()?;
        let fields = self.ask("HGETALL", key, &[]).await?;
        let Some((field, count)) = holder::of_hash(fields) else {
            return Ok(None);
        };
        // Gone between the two questions is gone.
        let Some(ttl) = ttl(&self.ask("PTTL", key, &[]).await?) else {
            return Ok(None);
        };
        let is_ours = self.session().core().number_of(&field).is_some();
        Ok(Some(HolderInfo::new(field, count, ttl, is_ours)))
    }

    async fn count_of(&self, owner: &Owner) -> Result<u32> {
        let key = self.key()?;
        let core = self.session().core();
        ensure_runtime()?;
        core.ensure_open()?;
        // An owner of this client that has no hold here has none in Redis.
        let Some(hold) = core.holds.of_owner(key, *owner) else {
            return Ok(0);
        };
        let field = core.field(&hold);
        let count = self.ask("HGET", key, &[&field]).await?;
        Ok(holder::number(&count).unwrap_or(0))
    }

    /// Asks the server something about a key that changes nothing.
    async fn ask(&self, command: &str, key: &LockKey, more: &[&str]) -> Result<Value> {
        let core = self.session().core();
        ensure_runtime()?;
        core.ensure_open()?;
        let time = core.server.allot(core.clock.now());
        let mut question = redis::cmd(command);
        question.arg(key.key()).arg(more);
        let mut sent = Sent::default();
        let answer = core
            .server
            .call(key.key(), |_, _| question.clone(), time, &mut sent)
            .await;
        core.server.abandon_silent(&answer, &sent);
        answer.map_err(Failure::into)
    }
}

fn ttl(answer: &Value) -> Option<Ttl> {
    match answer {
        Value::Int(ttl @ 0..) => Some(Ttl::Expires(Duration::from_millis(*ttl as u64))),
        Value::Int(-1) => Some(Ttl::Persistent),
        _ => None,
    }
}

/// A hold of this client, from [`Client::holds`](crate::Client::holds).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The lock's name.
    pub lock: String,
    /// Who holds it.
    pub owner: Owner,
    /// Its field in Redis.
    pub field: String,
    /// How many acquires are not unlocked yet.
    pub count: u32,
    /// How long it may be acted on without a further renewal.
    pub remaining: Duration,
    /// The time since it was acquired.
    pub held_for: Duration,
    /// The watchdog renews it, by itself or as a part of a [`RedLock`](crate::RedLock).
    pub watched: bool,
}

impl HoldInfo {
    pub(crate) fn of(core: &Core, hold: &Hold) -> Option<Self> {
        let now = core.clock.now();
        let watched = hold.is_renewed();
        let state = hold.state();
        state.is_valid(now).then(|| Self {
            lock: hold.key().name().to_owned(),
            owner: hold.owner(),
            field: core.field(hold),
            count: state.count,
            remaining: state.deadline.since(now),
            held_for: now.since(state.acquired),
            watched,
        })
    }
}
