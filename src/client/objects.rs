//! The objects of a client that are not locks.

use super::Client;
use crate::election::Election;
use crate::latch::CountDownLatch;
use crate::permit_semaphore::PermitSemaphore;
use crate::semaphore::Semaphore;

impl Client {
    /// The semaphore of this name, whose permits have leases. Corresponds to Redisson's
    /// `getPermitExpirableSemaphore(name)`.
    ///
    /// The name has 1 to 512 bytes, which the client does not change. This call sends nothing. If the name
    /// is invalid, each request of the semaphore returns [`Error::Invalid`](crate::Error::Invalid).
    pub fn permit_semaphore(&self, name: impl AsRef<str>) -> PermitSemaphore {
        PermitSemaphore::new(self.session.clone(), name.as_ref())
    }

    /// The semaphore of this name, whose permits have no leases. Corresponds to Redisson's
    /// `getSemaphore(name)`.
    ///
    /// A permit stays in use until it is released, also if its process crashes. Where that matters, use
    /// [`Client::permit_semaphore`].
    ///
    /// The name has 1 to 512 bytes, which the client does not change. This call sends nothing. If the name
    /// is invalid, each request of the semaphore returns [`Error::Invalid`](crate::Error::Invalid).
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(self.session.clone(), name.as_ref())
    }

    /// The count-down latch of this name. Corresponds to Redisson's `getCountDownLatch(name)`.
    ///
    /// The name has 1 to 512 bytes, which the client does not change; on a cluster it has no braces. This
    /// call sends nothing. If the name is invalid, each request of the latch returns
    /// [`Error::Invalid`](crate::Error::Invalid).
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(self.session.clone(), name.as_ref())
    }

    /// The election of this name: one of its candidates leads at a time. Redisson has none.
    ///
    /// The name has 1 to 512 bytes, which the client does not change. This call sends nothing. If the name
    /// is invalid, each request of the election returns [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// It excludes locks of other kinds with the same name, and is excluded by them.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.session.clone(), name.as_ref())
    }
}
