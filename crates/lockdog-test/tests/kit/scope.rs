//! A client for the duration of one piece of work.

use lockdog::{Client, Error, Lock};
use lockdog_test::Server;

/// Takes a lock, forgets its guard, and ends as the argument says.
async fn forgets<T>(client: Client, end: impl FnOnce(Lock) -> T) -> T {
    let lock = client.lock("orders");
    lock.lock().await.unwrap().forget();
    end(lock)
}

#[tokio::test(start_paused = true)]
async fn a_scope_shuts_its_client_down_after_success_failure_and_panic() {
    let server = Server::new();
    let done = server
        .builder()
        .scope(|client| forgets(client, Ok::<_, Error>));
    let lock = done.await.unwrap();
    // At once: the shutdown was awaited.
    assert_eq!(server.keys(), Vec::<String>::new());
    assert!(matches!(lock.lock().await, Err(Error::Closed)));

    let failed = server
        .builder()
        .scope(|client| forgets(client, |_| Err::<(), Error>(Error::Closed)));
    assert!(matches!(failed.await, Err(Error::Closed)));
    assert_eq!(server.keys(), Vec::<String>::new());

    let panicked = server.builder().scope(|client| {
        forgets(client, |_| -> Result<(), Error> {
            panic!("the work fails")
        })
    });
    let panic = tokio::spawn(panicked).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"the work fails"));
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_cannot_connect_does_not_start_the_work() {
    let failed = Client::scope("http://localhost", |_| async {
        panic!("there is no client")
    });
    let failed: Result<(), Error> = failed.await;
    assert!(matches!(failed, Err(Error::Invalid { .. })), "{failed:?}");
}
