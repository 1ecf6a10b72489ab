//! rslock, which has no watchdog: a lease of 30 s instead.

use std::time::Duration;

use rslock::{Lock, LockManager};

use crate::Result;
use crate::drive::library::Library;
use crate::protocol::Request;

pub(crate) struct Rslock(LockManager);

pub(crate) struct Named {
    manager: LockManager,
    name: String,
}

impl Library for Rslock {
    type Lock = Named;
    type Held = Lock;

    fn refuses(workload: &str) -> Option<&'static str> {
        match workload {
            "W5" | "W12" | "W15r" | "W15k" => Some("it has no watchdog"),
            "W8a" | "W8b" | "W8c" | "W8d" | "W8w" | "W9a" | "W9b" | "W9c" | "W11a" | "W11b"
            | "W11c" | "W13" => Some("it has no such kind"),
            "W7" | "W7-local" => Some("it is not re-entrant"),
            "rtt" | "idle" | "serial" | "latch" | "campaign" => Some("the bare protocol's"),
            _ => None,
        }
    }

    async fn connect(request: &Request) -> Result<Self> {
        let manager = LockManager::new(request.urls.clone());
        // It connects at its first use.
        let lock = manager.acquire_no_guard("connect", LEASE).await?;
        manager.unlock(&lock).await;
        Ok(Self(manager))
    }

    fn lock(&self, name: &str) -> Named {
        Named {
            manager: self.0.clone(),
            name: name.to_owned(),
        }
    }

    async fn acquire(lock: &Named) -> Result<Lock> {
        Ok(lock
            .manager
            .acquire_no_guard(lock.name.as_str(), LEASE)
            .await?)
    }

    async fn unlock(held: Lock) -> Result<()> {
        let manager = held.lock_manager.clone();
        manager.unlock(&held).await;
        Ok(())
    }

    async fn close(self) {}
}

const LEASE: Duration = Duration::from_secs(30);
