//! Users and passwords that change while the client lives: the caller's code gives them for each connection.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::Context;
use super::caught::CaughtCall;
use super::failure::Failure;
use super::user_connector::{Purpose, UserCalls};
use super::wire::isolated;

/// The user and password for one connection, for
/// [`ClientBuilder::credentials`](crate::ClientBuilder::credentials). No log, error or `Debug` output shows the
/// password.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// A password, for the user of the client's settings.
    pub fn new(password: impl Into<String>) -> Self {
        Self {
            username: None,
            password: password.into(),
        }
    }

    /// The user. Defaults to that of the client's settings.
    pub fn username(mut self, user: impl Into<String>) -> Self {
        self.username = Some(user.into());
        self
    }

    /// The same server, with this login.
    fn apply(&self, client: &redis::Client) -> Result<redis::Client, Failure> {
        let info = client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone().set_password(&self.password);
        if let Some(user) = &self.username {
            settings = settings.set_username(user);
        }
        let client = redis::Client::open(info.set_redis_settings(settings));
        client.map_err(|error| Failure::of_connect(&error, Some(&self.password)))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// The caller's code.
pub(crate) type CredentialSource =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Credentials>> + Send>> + Send + Sync>;

/// Gets credentials from the caller's code for each connection. A panic there only fails the attempt. If the
/// client's own thread needs them, the code runs on an extra thread, so a call that blocks delays no renewal. The
/// clones share the limits of these calls.
#[derive(Clone)]
pub(crate) struct Logins {
    source: CredentialSource,
    calls: UserCalls,
}

impl Logins {
    pub(crate) fn new(source: CredentialSource, context: &Context) -> Self {
        Self {
            source,
            calls: UserCalls::new(context),
        }
    }

    /// For another server.
    pub(super) fn separate(&self) -> Self {
        Self {
            source: self.source.clone(),
            calls: self.calls.separate(),
        }
    }

    async fn ask(&self, purpose: Purpose, limit: Duration) -> Result<Credentials, Failure> {
        let source = self.source.clone();
        let asking = self
            .calls
            .call(purpose, move || CaughtCall::new(|| source()));
        let asked = tokio::time::timeout(limit, isolated(Box::pin(asking))).await;
        let asked = asked.unwrap_or_else(|_| Err(Failure::Unsent("no answer in time".into())));
        match asked {
            Ok(credentials) => credentials
                .into_inner()
                .ok_or_else(|| Failure::Unsent("it panicked".into())),
            Err(failure) => Err(failure),
        }
        .map_err(|failure| {
            let cause = format!("the credentials are not available: {}", failure.words());
            Failure::Unsent(cause.into())
        })
    }
}

/// Connects, with current credentials if the caller's code gives them. If the server refuses them, they may
/// have changed in between, so the code is asked once more.
pub(super) async fn log_in<T, F>(
    logins: Option<&Logins>,
    client: &redis::Client,
    purpose: Purpose,
    limit: Duration,
    connect: impl Fn(redis::Client) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let Some(logins) = logins else {
        return connect(client.clone()).await;
    };
    // Boxed: it is rare, and would otherwise enlarge the future of every call.
    Box::pin(async {
        let first = logins.ask(purpose, limit).await?;
        match connect(first.apply(client)?).await {
            Err(failure) if failure.is_of_login() => {
                let second = logins.ask(purpose, limit).await?;
                if second == first {
                    return Err(failure);
                }
                connect(second.apply(client)?).await
            }
            connected => connected,
        }
    })
    .await
}
