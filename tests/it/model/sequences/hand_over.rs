//! The step in which one owner unlocks while another waits.

use super::{Case, Fate, SOON, check_ended, poll_once};
use crate::model::state::Acquired;

impl Case<'_> {
    /// Of two owners of one client that is a hand-over, of two clients a release. Where no owner holds
    /// the lock, an owner takes it first; and the inner guards are unlocked before.
    pub(super) async fn hand_over(&mut self, to: usize, unlock: Fate, wait: Fate) {
        if self.model.holder().is_none() {
            self.acquire(usize::from(to == 0), false).await;
        }
        let Some((from, count)) = self.model.holder() else {
            return;
        };
        if from == to || self.guards[from].len() as u32 != count {
            return;
        }
        // An owner with a guard of a lost hold acquires nothing. While a client considers a hold valid,
        // its other owners send no commands.
        for owner in (0..3).filter(|owner| owner / 2 == to / 2 && *owner != from) {
            while let Some(lost) = self.guards[owner].pop() {
                drop(lost);
                self.model.unlock(owner);
            }
            let own = self.model.owners[owner];
            if own.count() > 0 || own.ghost {
                return;
            }
        }
        for _ in 1..count {
            let inner = self.guards[from].pop().expect("it was counted");
            check_ended(inner.unlock().await, self.model.unlock(from));
        }
        let request = self.lock(to).lock().owner(&self.owners[to]);
        let mut waiting = request.into_future();
        assert!(poll_once(&mut waiting).await.is_none(), "it is held");
        let guard = self.guards[from].pop().expect("it has one");
        let expected = self.model.unlock(from);
        match unlock {
            Fate::Ends => check_ended(guard.unlock().await, expected),
            Fate::IsCancelled => drop(poll_once(guard.unlock()).await),
        }
        if let Fate::Ends = wait {
            let got = tokio::time::timeout(SOON, waiting).await;
            let got = got.unwrap_or_else(|_| panic!("owner {to} waits for a free lock"));
            assert_eq!(self.model.acquire(to), Acquired::Guard);
            self.guards[to].push(got.expect("the server is up"));
        }
    }
}
