//! The user's connection pool. Without the feature `deadpool` no value of this type exists.

#[cfg(feature = "deadpool")]
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;

use super::failure::Failure;

#[cfg(feature = "deadpool")]
type Pool = deadpool_redis::Pool;
#[cfg(not(feature = "deadpool"))]
type Pool = std::convert::Infallible;

#[cfg(feature = "deadpool")]
type Kept = Mutex<Option<deadpool_redis::Connection>>;
#[cfg(not(feature = "deadpool"))]
type Kept = std::convert::Infallible;

#[derive(Clone)]
pub(crate) struct UserPool(Pool);

/// A connection that the pool counts as taken until this is dropped, or until the client leaves the connection.
pub(super) struct PooledConnection(Kept);

#[cfg(feature = "deadpool")]
impl PooledConnection {
    /// The pool forgets the connection. It would give it to the next caller again, because it checks it by a PING,
    /// which a replica answers too. And the call that abandoned it still refers to it when it needs another one from
    /// the pool.
    pub(super) fn leave(&self) {
        let taken = self.0.lock().take();
        drop(taken.map(deadpool_redis::Connection::take));
    }
}

#[cfg(not(feature = "deadpool"))]
impl PooledConnection {
    pub(super) fn leave(&self) {
        match self.0 {}
    }
}

#[cfg(feature = "deadpool")]
impl UserPool {
    pub(crate) fn new(pool: Pool) -> Self {
        Self(pool)
    }

    /// How many connections the pool can have.
    pub(crate) fn max_size(&self) -> usize {
        self.0.status().max_size
    }

    /// Takes a connection from the pool, and waits until one is free.
    pub(super) async fn take(&self) -> Result<(MultiplexedConnection, PooledConnection), Failure> {
        let taken = self.0.get().await.map_err(|error| failure(&error))?;
        let multiplexed = taken.as_ref().clone();
        let pooled = PooledConnection(Mutex::new(Some(taken)));
        Ok((multiplexed, pooled))
    }
}

#[cfg(not(feature = "deadpool"))]
impl UserPool {
    pub(crate) fn max_size(&self) -> usize {
        match self.0 {}
    }

    pub(super) async fn take(&self) -> Result<(MultiplexedConnection, PooledConnection), Failure> {
        match self.0 {}
    }
}

/// The pool's error for an attempt to connect, or to take a connection.
#[cfg(feature = "deadpool")]
fn failure(error: &deadpool_redis::PoolError) -> Failure {
    use deadpool_redis::{HookError, PoolError};
    match error {
        // Only the pool knows the password.
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            Failure::of_connect(error, None)
        }
        _ => Failure::of_pool(&error.to_string()),
    }
}
