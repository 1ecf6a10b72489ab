//! Settings for the login, TLS and protocol of servers and sentinels.

use std::future::Future;
use std::io;
use std::sync::Arc;

use super::ClientBuilder;
use crate::error::{Error, Result};
use crate::server::{Address, Credentials, Protocol, TlsSettings};

impl ClientBuilder {
    /// The user for the servers that keep the locks. It replaces the user in the URL. Without a password the
    /// client sends no login and is the default user, as in Redisson.
    ///
    /// Defaults to the user in the URL, or Redis's default user. Corresponds to Redisson's `username`.
    pub fn username(mut self, user: impl Into<String>) -> Self {
        self.username = Some(user.into());
        self
    }

    /// The password for the servers that keep the locks. It replaces the password in the URL. No log, error
    /// or `Debug` output shows it.
    ///
    /// Defaults to the password in the URL, or none. Corresponds to Redisson's `password`.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Asks this code for the user and password of each new connection to the servers that keep the locks, for
    /// passwords that change while the client lives: tokens of a cloud provider, or a secret that is rotated.
    /// The result replaces the password in the URL, and the user if the result has one. If the server refuses
    /// it, the client asks the code again immediately, and then at each later attempt to connect. Do not set
    /// [`password`](ClientBuilder::password) too: `build` returns [`Error::Invalid`] then.
    ///
    /// A server checks the password once for each connection. If a server closes connections whose password
    /// expired, the client reconnects, and its locks stay held.
    ///
    /// The client asks for each connection, sometimes for several at the same time, and waits at most a command
    /// timeout. So the code should cache its result for a short time. A panic or an error only fails the
    /// attempt, and a call that blocks its thread delays no renewal. The client shows the text of an error, so
    /// the text must not contain a secret. The client never shows a password.
    ///
    /// Defaults to none. Sentinels have credentials of their own
    /// ([`sentinel_password`](ClientBuilder::sentinel_password)), and so have the connections of your own pool.
    /// Corresponds to Redisson's `credentialsResolver`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use lockdog::config::Credentials;
    ///
    /// # async fn example() -> lockdog::Result<()> {
    /// let client = lockdog::Client::builder()
    ///     .url("rediss://redis.internal:6379")
    ///     .credentials(|| async {
    ///         let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
    ///         Ok(Credentials::new(password.trim()).username("orders"))
    ///     })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, Fut>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Credentials>> + Send + 'static,
    {
        self.credentials = Some(Arc::new(move || Box::pin(source())));
        self
    }

    /// The user for the sentinels. It replaces the users in their URLs. A `redis+sentinel://` URL contains
    /// only the master's user, so set the sentinels' user here.
    ///
    /// Defaults to the user in each sentinel's URL, or Redis's default user. Corresponds to Redisson's
    /// `sentinelUsername`.
    pub fn sentinel_username(mut self, user: impl Into<String>) -> Self {
        self.sentinel_username = Some(user.into());
        self
    }

    /// The password for the sentinels. It replaces the passwords in their URLs. No log, error or `Debug`
    /// output shows it.
    ///
    /// Defaults to the password in each sentinel's URL. If there is none, the client connects without a
    /// password, and a sentinel that requires one gets the servers' password
    /// ([`password`](ClientBuilder::password), or that of a `redis+sentinel://` URL), as in Redisson.
    /// Corresponds to Redisson's `sentinelPassword`.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Whether the connections to the sentinels' master use TLS. Set it if the master and the sentinels
    /// differ in this.
    ///
    /// Defaults to true if the URL is `rediss+sentinel://`, or if the first sentinel's URL is `rediss://`.
    /// In Redisson, the scheme of the addresses is for sentinels and master.
    pub fn master_tls(mut self, by_tls: bool) -> Self {
        self.master_tls = Some(by_tls);
        self
    }

    /// The certificates for TLS connections to servers and sentinels.
    ///
    /// Defaults to the system's root certificates, without a client certificate. Corresponds to Redisson's
    /// `sslTruststore` and `sslKeystore`.
    pub fn tls(mut self, settings: TlsSettings) -> Self {
        self.tls = Some(settings);
        self
    }

    /// The protocol version for the servers that keep the locks. It replaces the version in the URL
    /// (`?protocol=resp3`). It does not affect the connections of your own pool.
    ///
    /// Defaults to the version in the URL, or [`Protocol::Resp2`]. Corresponds to Redisson's `protocol`.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Adds the settings for sentinels. Fails if there are such settings and no sentinels.
    pub(super) fn add_sentinel_settings(&self, address: &mut Address) -> Result<()> {
        let no_sentinels = |what| Err(Error::invalid(what, "it needs sentinels".to_owned()));
        let (user, password) = (&self.sentinel_username, &self.sentinel_password);
        if user.is_some() || password.is_some() {
            let is_changed = address.change_sentinels(|mut settings| {
                if let Some(user) = user {
                    settings = settings.set_username(user);
                }
                if let Some(password) = password {
                    settings = settings.set_password(password);
                }
                settings
            });
            if !is_changed {
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

    /// The servers' addresses as text, without passwords.
    pub(super) fn deployment(&self) -> String {
        let found = match (&self.url, &self.sentinel, &self.cluster) {
            (Some(url), None, None) => Address::parse(url),
            (None, Some((name, urls)), None) => Address::sentinel(name, urls.clone(), None),
            (None, None, Some(urls)) => Address::cluster(urls.clone()),
            (None, None, None) if self.pool.is_some() => return "pool".to_owned(),
            (None, None, None) if !self.connectors.is_empty() => return "connector".to_owned(),
            (None, None, None) => return "none".to_owned(),
            _ => return "more than one".to_owned(),
        };
        found.map_or_else(|_| "an invalid url".to_owned(), |it| it.described())
    }
}
