//! A hint at a wait that may never end: a task that holds the lock may itself wait for this one.

use std::time::Duration;

use super::Contender;
use super::contest::Contest;

impl<C: Contender> Contest<C> {
    /// Says once that another owner of this client keeps what this call waits for, if both the wait and
    /// the hold are long. A lock that goes from owner to owner has no long hold, however long the queue.
    pub(super) fn warn_of_own_client(&mut self) {
        let now = self.now();
        if self.has_warned || now.since(self.began) < LONG_WAIT {
            return;
        }
        let (Some(owner), Some(hold)) = (self.contender.owner(), self.contender.local_holder())
        else {
            return;
        };
        if now.since(hold.state().acquired) < LONG_WAIT {
            return;
        }
        self.has_warned = true;
        tracing::warn!(
            target: "lockdog::wait",
            {
                lock.hash = %hold.key().fingerprint(),
                %owner,
                holder = %hold.owner(),
            },
            "waiting for a lock that another owner of this client holds; if its task waits for this \
             one, neither goes on"
        );
    }
}

/// After so long a wait is worth a line, if the lock was held for all of it.
const LONG_WAIT: Duration = Duration::from_secs(10);
