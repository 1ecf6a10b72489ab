//! Warns of a possible deadlock: the task that holds the lock may itself wait for the waiting task.

use std::time::Duration;

use super::Contender;
use super::contest::Contest;

impl<C: Contender> Contest<C> {
    /// Logs once that another owner of this client holds the lock, if both the wait and the hold are long.
    /// A lock with many waiters that pass it on has long waits, but no long hold.
    pub(super) fn warn_of_own_client(&mut self) {
        let now = self.now();
        // Once for each wait, and not for a short one.
        if self.has_warned || now.since(self.began) < LONG_WAIT {
            return;
        }
        let (Some(owner), Some(hold)) = (self.contender.owner(), self.contender.local_holder())
        else {
            // Another client holds the lock, or the waiter has no owner: that is no deadlock of this client.
            return;
        };
        // The lock changed hands recently, so its owners make progress.
        if now.since(hold.state().acquired) < LONG_WAIT {
            return;
        }
        self.has_warned = true;
        tracing::warn!(
            target: "lockdog::wait",
            {
                lock = hold.key().logged_name(),
                lock.hash = %hold.key().fingerprint(),
                %owner,
                holder = %hold.owner(),
            },
            "waiting for a lock that another owner of this client holds; if its task waits for this \
             one, this is a deadlock"
        );
    }
}

/// The shortest wait, and the shortest hold, that causes the warning.
const LONG_WAIT: Duration = Duration::from_secs(10);
