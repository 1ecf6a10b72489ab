//! What the workloads need of a library.

use std::future::Future;

use crate::Result;
use crate::protocol::Request;

/// A client of a lock library.
pub(crate) trait Library: Sized + Send + Sync + 'static {
    type Lock: Send + Sync + 'static;
    type Held: Send + 'static;

    /// Why this library cannot do a workload; none if it can.
    fn refuses(workload: &str) -> Option<&'static str>;

    /// A client in its default configuration, but for what the workload is about.
    fn connect(request: &Request) -> impl Future<Output = Result<Self>> + Send;

    fn lock(&self, name: &str) -> Self::Lock;

    /// What a writer takes, where the others read: W9 only.
    fn write_lock(&self, name: &str) -> Self::Lock {
        self.lock(name)
    }

    fn acquire(lock: &Self::Lock) -> impl Future<Output = Result<Self::Held>> + Send;

    fn unlock(held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    fn close(self) -> impl Future<Output = ()> + Send;
}
