//! Passwords that change while a client lives.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockdog::config::Credentials;
use lockdog::{Client, ClientBuilder, Error};
use lockdog_test::Server;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::support::logs::Warnings;

const MINUTE: Duration = Duration::from_secs(60);

/// Where a service reads its password.
#[derive(Clone)]
struct Secret {
    now: Arc<Mutex<String>>,
    asked: Arc<AtomicU32>,
}

impl Secret {
    fn new(password: &str) -> Self {
        Self {
            now: Arc::new(Mutex::new(password.to_owned())),
            asked: Arc::default(),
        }
    }

    fn change(&self, password: &str) {
        password.clone_into(&mut self.now.lock());
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    fn of(&self, builder: ClientBuilder) -> ClientBuilder {
        let secret = self.clone();
        builder.credentials(move || {
            secret.asked.fetch_add(1, Ordering::Relaxed);
            let password = secret.now.lock().clone();
            async move { Ok(Credentials::new(password)) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_logs_in_again_with_the_password_of_now_and_keeps_its_locks() {
    let (server, secret) = (Server::new(), Secret::new("first"));
    server.require_password("first");
    let client = secret.of(server.builder()).build().await.unwrap();
    let other = secret.of(server.builder()).build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let waiter = tokio::spawn(async move { other.lock("orders").lock().await.unwrap() });
    sleep(Duration::from_secs(1)).await;
    for password in ["second", "third"] {
        server.require_password(password);
        secret.change(password);
        let asked = secret.asked();
        server.cut();
        sleep(3 * MINUTE).await;
        assert!(guard.is_valid());
        // Connections for commands, renewals and messages.
        assert!(secret.asked() >= asked + 3, "{} {asked}", secret.asked());
    }
    guard.unlock().await.unwrap();
    let guard = waiter.await.unwrap();
    drop(guard);
    client.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_password_is_asked_for_once_more_at_once() {
    let (server, asked) = (Server::new(), Arc::new(AtomicU32::new(0)));
    server.require_password("new");
    let count = asked.clone();
    let builder = server.builder().credentials(move || {
        // The password changed right after the first read.
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        let password = if is_first { "old" } else { "new" };
        async move { Ok(Credentials::new(password)) }
    });
    let client = builder.build().await.unwrap();
    client
        .lock("orders")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    assert!(asked.load(Ordering::Relaxed) >= 2);
}

#[tokio::test(start_paused = true)]
async fn renewals_continue_when_the_password_is_right_again_before_the_deadline() {
    let (server, secret) = (Server::new(), Secret::new("first"));
    server.require_password("first");
    let client = secret.of(server.builder()).build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    server.require_password("second");
    server.cut();
    sleep(Duration::from_secs(15)).await;
    let refused = client.lock("other").try_lock().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { code, .. } if code == "WRONGPASS"),
        "{refused:?}"
    );
    secret.change("second");
    sleep(3 * MINUTE).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

/// What `build` says if the program's code does this.
async fn failed<F, Fut>(server: &Server, source: F) -> Error
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<Credentials>> + Send + 'static,
{
    let builder = server.builder().credentials(source);
    builder.build().await.expect_err("it has no login")
}

#[tokio::test(start_paused = true)]
async fn code_that_fails_panics_or_hangs_only_fails_the_attempt() {
    let server = Server::new();
    server.require_password("right");
    for (error, text) in [
        (
            failed(&server, || async {
                Err(io::Error::other("the vault is closed"))
            })
            .await,
            "the vault is closed",
        ),
        (
            failed(&server, || async { panic!("a test's panic") }).await,
            "panicked",
        ),
        (failed(&server, pending).await, "in time"),
    ] {
        assert!(
            matches!(error, Error::Unavailable { .. } | Error::Timeout { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(text), "{error}");
    }
    // A held lock survives the failures.
    let works = Arc::new(AtomicU32::new(1));
    let is_there = works.clone();
    let builder = server.builder().credentials(move || {
        let works = is_there.load(Ordering::Relaxed) == 1;
        async move {
            assert!(works, "a test's panic");
            Ok(Credentials::new("right"))
        }
    });
    let client = builder.build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    works.store(0, Ordering::Relaxed);
    server.cut();
    sleep(Duration::from_secs(12)).await;
    works.store(1, Ordering::Relaxed);
    sleep(3 * MINUTE).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_password_is_in_an_error_a_debug_output_or_a_warning() {
    const SECRET: &str = "geheimnis-4711";
    let credentials = Credentials::new(SECRET).username("ann");
    let shown = format!("{credentials:?}");
    assert!(shown.contains("ann") && !shown.contains(SECRET), "{shown}");
    let (warnings, _recording) = Warnings::of_this_thread();
    let (server, secret) = (Server::new(), Secret::new(SECRET));
    server.require_password("another");
    let builder = secret.of(server.builder());
    let shown = format!("{builder:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(shown.contains("deployment: \"connector\""), "{shown}");
    let error = builder.build().await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("WRONGPASS") && !shown.contains(SECRET),
        "{shown}"
    );
    server.require_password(SECRET);
    let client = secret.of(server.builder()).build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    server.require_password("another");
    server.cut();
    guard.lost().await;
    let shown = format!("{client:?} {client:#?} {:?}", client.diagnose().await);
    assert!(!shown.contains(SECRET), "{shown}");
    let warned = warnings.with("");
    assert!(
        warned.iter().any(|line| line.contains("renewal failing")),
        "{warned:?}"
    );
    assert!(
        !warned.iter().any(|line| line.contains(SECRET)),
        "{warned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn two_answers_to_which_password_are_refused() {
    let server = Server::new();
    let give = || async { Ok(Credentials::new("x")) };
    let both = server.builder().password("y").credentials(give);
    let nowhere = Client::builder().credentials(give);
    for builder in [both, nowhere] {
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains("credentials"), "{error}");
    }
}
