//! How to connect to one sentinel: as configured, or with the servers' password if the sentinel requires one.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Client, ConnectionInfo};

use crate::error::Error;
use crate::server::wire::{client, password};

/// One sentinel, and whether it requires a login that is not configured.
pub(super) struct SentinelAccess {
    configured: Client,
    /// With the servers' password. None if a password for the sentinel is configured, or none for the servers.
    ///
    /// A sentinel that requires a password gets it, as in Redisson. A sentinel names the server to which the
    /// client sends that password, so it has to be trusted anyway.
    with_server_password: Option<Client>,
    /// The sentinel refused the configured client.
    requires_login: AtomicBool,
}

impl SentinelAccess {
    pub(super) fn new(sentinel: ConnectionInfo, master: &ConnectionInfo) -> Result<Self, Error> {
        let with_server_password = match (password(&sentinel), password(master)) {
            (None, Some(of_servers)) => {
                let settings = sentinel.redis_settings().clone();
                let settings = settings.set_password(of_servers);
                Some(client(sentinel.clone().set_redis_settings(settings))?)
            }
            _ => None,
        };
        Ok(Self {
            configured: client(sentinel)?,
            with_server_password,
            requires_login: AtomicBool::new(false),
        })
    }

    /// The sentinel's host and port.
    pub(super) fn address(&self) -> String {
        self.configured.get_connection_info().addr().to_string()
    }

    /// The client for the next attempt.
    pub(super) fn client(&self) -> &Client {
        match &self.with_server_password {
            Some(client) if self.requires_login.load(Ordering::Relaxed) => client,
            _ => &self.configured,
        }
    }

    /// The client to try after the sentinel refused the login of this one, if there is another.
    pub(super) fn client_after(&self, refused: &Client) -> Option<&Client> {
        let other = self.with_server_password.as_ref();
        let other = other.filter(|it| !ptr::eq(*it, refused))?;
        self.requires_login.store(true, Ordering::Relaxed);
        Some(other)
    }

    /// The next attempt uses the configured client: the sentinel may not require a password any more, and then
    /// it refuses one.
    pub(super) fn forget_login(&self) {
        self.requires_login.store(false, Ordering::Relaxed);
    }
}
