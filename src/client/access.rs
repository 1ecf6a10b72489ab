//! Settings of how servers and sentinels let in, and what is spoken with them.

use super::ClientBuilder;
use crate::error::{Error, Result};
use crate::server::{Address, Protocol, TlsSettings};

impl ClientBuilder {
    /// The user at the servers that keep the locks, in place of the URL's.
    ///
    /// Defaults to the URL's, or Redis's default user. Corresponds to Redisson's `username`.
    pub fn username(mut self, user: impl Into<String>) -> Self {
        self.username = Some(user.into());
        self
    }

    /// The password at the servers that keep the locks, in place of the URL's. It is shown nowhere.
    ///
    /// Defaults to the URL's, or none. Corresponds to Redisson's `password`.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The user at the sentinels, in place of those in their URLs; in a `redis+sentinel://` URL there
    /// is no other place for it.
    ///
    /// Defaults to that in each sentinel's URL, or Redis's default user. Corresponds to Redisson's
    /// `sentinelUsername`.
    pub fn sentinel_username(mut self, user: impl Into<String>) -> Self {
        self.sentinel_username = Some(user.into());
        self
    }

    /// The password at the sentinels, in place of those in their URLs. It is shown nowhere.
    ///
    /// Defaults to that in each sentinel's URL, or none. Corresponds to Redisson's `sentinelPassword`.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Whether the master that sentinels name is connected to by TLS, where it is not as they are.
    ///
    /// Defaults to what the sentinels' URLs say: `rediss+sentinel://`, or `rediss://` for the first of
    /// them. Redisson says it with the scheme of the addresses, for all alike.
    pub fn master_tls(mut self, by_tls: bool) -> Self {
        self.master_tls = Some(by_tls);
        self
    }

    /// Certificates for what is connected to by TLS: servers and sentinels.
    ///
    /// Defaults to the system's root certificates, and none to show. Corresponds to Redisson's
    /// `sslTruststore` and `sslKeystore`.
    pub fn tls(mut self, settings: TlsSettings) -> Self {
        self.tls = Some(settings);
        self
    }

    /// The version of the protocol that is spoken with the servers that keep the locks, in place of
    /// the URL's (`?protocol=resp3`). A pool of yours speaks its own.
    ///
    /// Defaults to the URL's, or [`Protocol::Resp2`]. Corresponds to Redisson's `protocol`.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// What concerns a sentinel set-up only.
    pub(super) fn tell_sentinels(&self, address: &mut Address) -> Result<()> {
        let no_sentinels = |what| Err(Error::invalid(what, "there are no sentinels".to_owned()));
        let (user, password) = (&self.sentinel_username, &self.sentinel_password);
        if user.is_some() || password.is_some() {
            let there_are = address.change_sentinels(|mut settings| {
                if let Some(user) = user {
                    settings = settings.set_username(user);
                }
                if let Some(password) = password {
                    settings = settings.set_password(password);
                }
                settings
            });
            if !there_are {
                return no_sentinels("sentinel_username");
            }
        }
        match self.master_tls {
            Some(true) if !cfg!(feature = "tls") => {
                let why = "lockdog was built without its feature `tls`".to_owned();
                Err(Error::invalid("master_tls", why))
            }
            Some(by_tls) if !address.change_master_tls(by_tls) => no_sentinels("master_tls"),
            _ => Ok(()),
        }
    }

    /// Where the servers are, in words that hold no password.
    pub(super) fn deployment(&self) -> String {
        let found = match (&self.url, &self.sentinel, &self.cluster) {
            (Some(url), None, None) => Address::parse(url),
            (None, Some((name, urls)), None) => Address::sentinel(name, urls.clone(), None),
            (None, None, Some(urls)) => Address::cluster(urls.clone()),
            (None, None, None) if self.pool.is_some() => return "pool".to_owned(),
            (None, None, None) => return "none".to_owned(),
            _ => return "more than one".to_owned(),
        };
        found.map_or_else(
            |_| "a url that cannot be used".to_owned(),
            |it| it.described(),
        )
    }
}
