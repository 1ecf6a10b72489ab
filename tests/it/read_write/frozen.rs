//! A reader in a process of its own, which is stopped while a writer waits for it.

use std::fs;

use super::*;
use crate::support::child::{Copy, argument, await_go_ahead, send};

/// Runs twice for each lease: as the test, and started by it as the reader's process.
#[tokio::test]
async fn a_reader_stopped_beyond_its_lease_lets_the_writer_in_and_sees_the_loss() {
    let Some(argument) = argument() else {
        for lease in ["fixed", "watched"] {
            stopped_while_a_writer_waits(lease).await;
        }
        return;
    };
    let mut words = argument.split(' ');
    let (Some(url), Some(path), Some(lease)) = (words.next(), words.next(), words.next()) else {
        panic!("{argument}");
    };
    let client = Client::builder().url(url).watchdog_lease(STOPPED_LEASE);
    let client = client.build().await.unwrap();
    let rw = client.read_write_lock(NAME);
    let guard = until_ok(SOON, async || match lease {
        "fixed" => rw.read().lock().lease(STOPPED_LEASE).await,
        _ => rw.read().lock().await,
    })
    .await;
    send("reading");
    // No task of this runtime runs after this line.
    await_go_ahead();
    // The reader must not treat the writer's value as protected.
    let seen = fs::read_to_string(path).unwrap();
    send(&format!("{seen} valid: {}", guard.is_valid()));
    let error = guard.unlock().await.unwrap_err();
    send(if error.is_lost() { "lost" } else { "unlocked" });
    await_go_ahead();
}

async fn stopped_while_a_writer_waits(lease: &str) {
    let test = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cell");
    fs::write(&path, "first").unwrap();
    let name = "read_write::frozen::a_reader_stopped_beyond_its_lease_lets_the_writer_in_and_sees_the_loss";
    let argument = format!("{} {} {lease}", test.server.url(), path.display());
    let before = Instant::now();
    let mut reader = Copy::run(name, &argument);
    assert_eq!(reader.receive(), "reading");
    reader.pause();
    let writes = within_soon(writer(&test.rw)).await;
    // The reader was granted after that moment, and until the end of its lease it was alone.
    assert!(before.elapsed() >= STOPPED_LEASE);
    test.eventually_mode("write", 1).await;
    fs::write(&path, "second").unwrap();
    reader.go_ahead();
    reader.resume();
    assert_eq!(reader.receive(), "second valid: false");
    assert_eq!(reader.receive(), "lost");
    // Its late unlock ended nothing.
    assert_eq!(test.mode().await, ("write".to_owned(), 1));
    assert!(writes.is_valid());
    reader.kill();
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// Of the reader.
const STOPPED_LEASE: Duration = Duration::from_millis(1_500);
