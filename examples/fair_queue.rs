//! Several processes print on one printer, each in its turn.
//!
//! ```text
//! cargo run --example fair_queue -- redis://127.0.0.1:6379 alice 3
//! cargo run --example fair_queue -- redis://127.0.0.1:6379 bob 3
//! ```
//!
//! Each process has a number of documents. A plain lock promises no order between the processes. With a fair lock,
//! the server has a queue: after each document a process enters the queue again at its end, so the processes print
//! in turn. Threads of a Java service that wait for `getFairLock("example:printer")`
//! are in the same queue. Kill a process that waits: the others drop it from the queue after a few seconds.

use std::time::Duration;

use lockdog::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let name = args.next().unwrap_or_else(|| "somebody".to_owned());
    let documents = args.next().and_then(|number| number.parse().ok());

    let client = Client::builder()
        .url(url)
        // After this time without a query, the other clients drop a waiter from the queue.
        .fair_absence(Duration::from_secs(8))
        .build()
        .await?;
    let printer = client.fair_lock("example:printer");
    for number in 1..=documents.unwrap_or(3_u32) {
        println!("{name} waits with document {number}");
        let turn = printer.lock().await?;
        println!("{name} prints document {number}");
        tokio::time::sleep(A_PAGE).await;
        let behind = printer.waiters().await?.len();
        turn.unlock().await?;
        println!("{name} printed document {number}, {behind} waited");
    }
    client.shutdown().await;
    Ok(())
}

const A_PAGE: Duration = Duration::from_millis(1_000);
