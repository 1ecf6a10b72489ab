//! Queries: the state of a lock in Redis.

use std::time::Duration;

use redis::{Cmd, Value};

use super::Lock;
use super::holder::{self, HolderInfo, Ttl};
use crate::background::ensure_runtime;
use crate::error::Result;
use crate::hold::Hold;
use crate::key::{LockKey, Mode};
use crate::lock_request::FromGuard;
use crate::owner::Owner;
use crate::server::{Failure, Sent};
use crate::session::Core;

impl<G: FromGuard> Lock<G> {
    /// Whether any owner of any client holds the lock. Corresponds to Redisson's `isLocked()`. For the two locks
    /// of a [`ReadWriteLock`](crate::ReadWriteLock): whether any owner reads, or writes.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`](crate::Error::Timeout) or [`Error::Unavailable`](crate::Error::Unavailable) if
    ///   the server did not answer within the command timeout.
    /// - [`Error::Refused`](crate::Error::Refused) if the server does not permit the command.
    /// - [`Error::Invalid`](crate::Error::Invalid) for an invalid name, and outside a tokio runtime.
    /// - [`Error::Closed`](crate::Error::Closed) after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_locked(&self) -> Result<bool> {
        let key = self.key()?;
        if key.mode().is_some() || !key.values().is_empty() {
            return Ok(!self.fields().await?.is_empty());
        }
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

    /// Whether this owner holds the lock through this client. Corresponds to Redisson's
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

    /// The number of acquires of the current owner that are not unlocked yet, as Redis counts them. It does
    /// not include those of [`Reentry::Local`](crate::config::Reentry::Local). 0 if the owner does not
    /// hold the lock.
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

    /// How long Redis keeps the lock unless it is renewed. `None` if no owner holds it.
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
        if !key.values().is_empty() {
            let left = self.of_values_now().await?.into_iter().map(|it| it.left);
            return Ok(left.max().map(Ttl::Expires));
        }
        Ok(ttl(&self.ask("PTTL", key, &[]).await?))
    }

    /// The holder of the lock, as Redis shows it. `None` if no owner holds it. If several readers of a
    /// read/write lock hold it, this is one of them; [`ReadWriteLock::holders`](crate::ReadWriteLock::holders)
    /// has all of them. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn holder(&self) -> Result<Option<HolderInfo>> {
        Ok(self.holders().await?.into_iter().next())
    }

    /// The holders in the mode of this lock, as Redis shows them. A lock without modes has at most one; the
    /// hash of a read/write lock also shows it its readers, behind the writer.
    pub(crate) async fn holders(&self) -> Result<Vec<HolderInfo>> {
        if !self.key()?.values().is_empty() {
            return self.holders_of_values().await;
        }
        let fields = self.fields().await?;
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        // The lock was released between the two commands.
        let Some(ttl) = ttl(&self.ask("PTTL", self.key()?, &[]).await?) else {
            return Ok(Vec::new());
        };
        let core = self.session().core();
        let holders = fields.into_iter().map(|(field, count)| {
            let is_ours = core.number_of(&field).is_some();
            HolderInfo::new(field, count, ttl, is_ours)
        });
        Ok(holders.collect())
    }

    /// The fields that a forced unlock frees: one holder, or all readers if there is no writer.
    pub(super) async fn freed_by_force(&self) -> Result<Vec<String>> {
        let key = self.key()?;
        if !key.values().is_empty() {
            let fields = self.fields().await?;
            return Ok(fields.into_iter().map(|(field, _)| field).collect());
        }
        let hash = self.ask("HGETALL", key, &[]).await?;
        if key.mode() == Some(Mode::Read)
            && !holder::of_hash(hash.clone(), Some(Mode::Write)).is_empty()
        {
            return Ok(Vec::new());
        }
        let mut holders = holder::of_hash(hash, key.mode());
        if key.mode().is_none() {
            holders.truncate(1);
        }
        Ok(holders.into_iter().map(|(field, _)| field).collect())
    }

    /// The holders' fields in the mode of this lock, with their counts.
    async fn fields(&self) -> Result<Vec<(String, u32)>> {
        let key = self.key()?;
        if !key.values().is_empty() {
            let holders = self.holders_of_values().await?.into_iter();
            return Ok(holders
                .map(|it| (it.field().to_owned(), it.count))
                .collect());
        }
        if key.mode() == Some(Mode::Read) {
            return self.readers().await;
        }
        let hash = self.ask("HGETALL", key, &[]).await?;
        Ok(holder::of_hash(hash, key.mode()))
    }

    /// The last fencing token that the server issued for a fenced lock, to any owner; `None` if it
    /// issued none, and for a lock of a kind without tokens. The token of your own hold is
    /// [`Guard::token`](crate::Guard::token). Corresponds to `getToken()` of Redisson's `RFencedLock`,
    /// with `None` for 0.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`]. [`Error::Refused`](crate::Error::Refused) with the code `WRONGTYPE` if the
    /// counter is no number.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn last_token(&self) -> Result<Option<u64>> {
        let key = self.key()?;
        let Some(counter) = key.counter() else {
            return Ok(None);
        };
        let mut query = redis::cmd("GET");
        query.arg(counter);
        let answer = self.send(key, query).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        let token: Option<u64> = holder::number(&answer);
        let token = token.ok_or_else(|| {
            let code = "WRONGTYPE".to_owned();
            let message = "the counter of the fencing tokens is no number".to_owned();
            Failure::Refused { code, message }
        })?;
        Ok((token > 0).then_some(token))
    }

    async fn count_of(&self, owner: &Owner) -> Result<u32> {
        let key = self.key()?;
        let core = self.session().core();
        ensure_runtime()?;
        core.ensure_open()?;
        // A hold of this client in Redis is also listed in this client.
        let Some(hold) = core.holds.of_owner(key, *owner) else {
            return Ok(0);
        };
        let field = core.field(&hold);
        if !key.values().is_empty() {
            // All of the values or none.
            let holders = self.of_values_now().await?.into_iter();
            let counts: Vec<u32> = holders
                .filter(|holder| holder.field == field)
                .map(|holder| holder.count)
                .collect();
            let is_whole = counts.len() == key.values().len();
            return Ok(counts.into_iter().min().filter(|_| is_whole).unwrap_or(0));
        }
        let count = self.ask("HGET", key, &[&field]).await?;
        let count = holder::number(&count).unwrap_or(0);
        if count > 0 && key.mode() == Some(Mode::Read) {
            // Other readers may keep the field beyond its lease.
            let mut query = redis::cmd("EXISTS");
            query.arg(key.timeout_of(&field));
            let has_lease = self.send(key, query).await? != Value::Int(0);
            return Ok(if has_lease { count } else { 0 });
        }
        Ok(count)
    }

    /// Sends a command that reads a key and changes nothing.
    async fn ask(&self, command: &str, key: &LockKey, more: &[&str]) -> Result<Value> {
        let mut query = redis::cmd(command);
        query.arg(key.key()).arg(more);
        self.send(key, query).await
    }

    /// Sends a command that changes nothing to the server that has the lock.
    pub(super) async fn send(&self, key: &LockKey, query: Cmd) -> Result<Value> {
        let core = self.session().core();
        ensure_runtime()?;
        core.ensure_open()?;
        let time = core.server.time_box(core.clock.now());
        let mut sent = Sent::default();
        let answer = core
            .server
            .call(key.key(), |_, _| query.clone(), time, &mut sent)
            .await;
        core.server.abandon_unanswered(&answer, &sent);
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

/// A hold of this client, a lock or a permit, from [`Client::holds`](crate::Client::holds).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The lock's name.
    pub lock: String,
    /// The owner that holds it.
    pub owner: Owner,
    /// The field of the lock's hash in Redis; for a permit its id, as [`PermitId`](crate::PermitId) shows
    /// it.
    pub field: String,
    /// The number of acquires that are not unlocked yet; of a [`Semaphore`](crate::Semaphore) the number of
    /// permits.
    pub count: u32,
    /// How long the lock may be used without a further renewal.
    pub remaining: Duration,
    /// The time since it was acquired.
    pub held_for: Duration,
    /// Whether the client renews it, as a lock of its own or as an instance of a
    /// [`RedLock`](crate::RedLock).
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
            field: match core.permit_id(hold) {
                Some(id) => id.to_string(),
                None => core.field(hold),
            },
            count: state.count,
            remaining: state.deadline.since(now),
            held_for: now.since(state.acquired),
            watched,
        })
    }
}
