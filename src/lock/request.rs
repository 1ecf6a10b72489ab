//! How a lock executes a request.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::acquire::acquire;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock_request::{Acquire, AcquireOptions, Boxed, WaitLimit, unlocker};
use crate::observe::{ClientEvent, How, LockRef};
use crate::owner::Owner;
use crate::session::{Claim, Reentry, Unlocked};

impl Acquire for Inner {
    fn name(&self) -> &str {
        &self.name
    }

    fn lock(self: Arc<Self>, options: AcquireOptions) -> Boxed<Guard> {
        // A wait without a limit ends with a guard or an error.
        let output = |guard: Option<Guard>| guard.ok_or(Error::Closed);
        self.call(options, WaitLimit::ForEver, output)
    }

    fn acquire(self: Arc<Self>, options: AcquireOptions, wait: WaitLimit) -> Boxed<Option<Guard>> {
        self.call(options, wait, Ok)
    }

    fn unlock(self: Arc<Self>, owner: Option<Owner>) -> Boxed<Unlocked> {
        Box::pin(async move {
            let owner = unlocker(owner)?;
            self.end_forgotten(owner).await
        })
    }
}

impl Inner {
    /// The future of a request, in one box. `output` maps the result of the acquire.
    fn call<T: 'static>(
        self: Arc<Self>,
        mut options: AcquireOptions,
        wait: WaitLimit,
        output: fn(Option<Guard>) -> Result<T>,
    ) -> Boxed<T> {
        let settings = &self.session.core().settings;
        if options.reentry.unwrap_or(settings.reentry) == Reentry::Counted {
            return Box::pin(async move { output(self.acquired(options, wait).await?) });
        }
        Box::pin(async move {
            let owner = options.owner()?;
            // A loop of calls that never wait must still let other tasks run.
            tokio::task::consume_budget().await;
            match self.again(&options, owner)? {
                Some(guard) => output(Some(guard)),
                // This future is large, so it is created only if Redis has to be asked.
                None => output(Box::pin(self.acquired(options, wait)).await?),
            }
        })
    }

    /// Another guard of a hold of `owner`, if Redis does not need to count it.
    fn again(&self, options: &AcquireOptions, owner: Owner) -> Result<Option<Guard>> {
        let key = self.key()?;
        let terms = options.terms_of(key, &self.session.core().settings)?;
        let claim = Claim::again(&self.session, key, owner, &terms);
        if claim.is_some() {
            self.session
                .core()
                .observers()
                .notify(|| ClientEvent::Acquired {
                    lock: LockRef::of(key, owner),
                    how: How::Reentered,
                    waited: Duration::ZERO,
                });
        }
        Ok(claim.map(Guard::new))
    }

    async fn acquired(
        &self,
        mut options: AcquireOptions,
        wait: WaitLimit,
    ) -> Result<Option<Guard>> {
        let owner = options.owner()?;
        let key = self.key()?;
        let terms = options.terms_of(key, &self.session.core().settings)?;
        acquire(&self.session, key, self.options, owner, &terms, wait).await
    }
}
