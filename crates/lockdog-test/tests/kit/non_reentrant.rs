//! Non-reentrant locks as parts of other locks.

use std::time::Duration;

use lockdog::{Client, Error, Owner, RedLock};
use lockdog_test::Server;

fn scripts(servers: &[Server]) -> usize {
    let commands = servers.iter().flat_map(Server::commands);
    let is_script = |command: &Vec<String>| command[0].to_lowercase().starts_with("eval");
    commands.filter(is_script).count()
}

#[tokio::test(start_paused = true)]
async fn a_red_lock_refuses_a_non_reentrant_lock_before_a_command_is_sent() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(server.client().await);
    }
    // A client looks at a new server.
    let before = scripts(&servers);
    let plain = |client: &Client| client.lock("orders");
    let other = |client: &Client| client.non_reentrant_lock("orders");
    let all = RedLock::new(clients.iter().map(other));
    let one = RedLock::new([plain(&clients[0]), other(&clients[1]), plain(&clients[2])]);
    let mut errors = Vec::new();
    for red in [all.clone(), one.clone(), all.exclusive()] {
        errors.push(red.try_lock().await.unwrap_err());
        errors.push(
            red.try_lock()
                .wait(Duration::from_secs(1))
                .await
                .unwrap_err(),
        );
        errors.push(red.lock().owner(&Owner::new()).await.unwrap_err());
        let (first, second) = tokio::join!(red.with(|_| async {}), red.with(|_| async {}));
        errors.extend([first.unwrap_err(), second.unwrap_err()]);
    }
    for error in &errors {
        assert!(
            matches!(error, Error::Invalid { what, .. } if *what == "locks"),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("not reentrant, lock=\"orders\""), "{text}");
    }
    let place = one.try_lock().await.unwrap_err().to_string();
    assert!(place.contains("place=2"), "{place}");
    assert_eq!(scripts(&servers), before);
}
