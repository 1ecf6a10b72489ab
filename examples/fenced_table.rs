//! A table that refuses a late write of an owner that has lost the lock.
//!
//! ```text
//! cargo run --example fenced_table
//! ```
//!
//! It starts three redis-servers of its own. To use other servers, pass their URLs as arguments.
//!
//! Alice takes a lock on three servers, reads a row, and is stopped for longer than her lease: by a
//! page fault, a debugger, a virtual machine that is moved. Bob takes the lock after her and writes.
//! Then Alice continues, and writes what she computed from what she read. No lock can prevent that; the
//! table can, by the fencing token of each acquire.
//!
//! The program exits with an error if one of these steps ends differently.

#[path = "support/server.rs"]
mod server;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lockdog::{Client, Guard, RedLock};
use rusqlite::{Connection, params};
use server::Server;

/// Why the story stopped.
type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match play().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> Result<(), Failure> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let mut servers = Vec::new();
    if urls.is_empty() {
        for _ in 0..3 {
            let server = Server::start().await?;
            urls.push(server.url().to_owned());
            servers.push(server);
        }
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("stock.db");
    Connection::open(&file)?.execute_batch(
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, pieces INTEGER, token INTEGER NOT NULL);
         INSERT INTO stock VALUES (42, 10, 0);",
    )?;
    let alice = Service::start(&urls, &file).await?;
    let bob = Service::start(&urls, &file).await?;

    let guard = alice.lock.lock().lease(LEASE).await?;
    let early = token(&guard)?;
    let pieces = alice.pieces()?;
    println!("alice: token {early}, reads {pieces} pieces, and is stopped");

    // Nothing of Alice's runs now. Bob waits until her lease is over.
    let bobs = bob.lock.lock().lease(LEASE).await?;
    let late = token(&bobs)?;
    let left = bob.pieces()? - 3;
    check(bob.write(left, late)?, "bob was refused, and has the lock")?;
    println!("bob:   token {late}, sells 3, writes {left} pieces");
    bobs.unlock().await?;
    check(late > early, "the later token is not the larger one")?;

    // Alice continues. She could ask `guard.is_valid()`, but might be stopped after that as well.
    let refused = !alice.write(pieces - 1, early)?;
    check(refused, "the table took a write that came too late")?;
    check(!guard.is_valid(), "two believed that they had the lock")?;
    println!(
        "alice: goes on, sells 1, writes {} pieces: refused",
        pieces - 1
    );
    drop(guard);

    let guard = alice.lock.lock().lease(LEASE).await?;
    let last = token(&guard)?;
    let pieces = alice.pieces()?;
    check(
        alice.write(pieces - 1, last)?,
        "alice was refused, and has the lock",
    )?;
    println!(
        "alice: token {last}, reads {pieces}, sells 1, writes {} pieces",
        pieces - 1
    );
    guard.unlock().await?;
    check(last > late, "the last token is not the largest one")?;

    let pieces = bob.pieces()?;
    check(pieces == 10 - 3 - 1, "a sale is missing")?;
    println!("stock: {pieces} pieces, no sale is missing");
    for client in alice.clients.iter().chain(&bob.clients) {
        client.shutdown().await;
    }
    Ok(())
}

/// One of the services that sell from the same stock.
struct Service {
    clients: Vec<Client>,
    lock: RedLock,
    table: Connection,
}

impl Service {
    async fn start(urls: &[String], file: &Path) -> Result<Self, Failure> {
        let mut clients = Vec::new();
        for url in urls {
            clients.push(Client::connect(url).await?);
        }
        let locks = clients.iter().map(|client| client.lock("example:stock:42"));
        let lock = RedLock::new(locks).fenced();
        let table = Connection::open(file)?;
        Ok(Self {
            clients,
            lock,
            table,
        })
    }

    fn pieces(&self) -> rusqlite::Result<i64> {
        let sql = "SELECT pieces FROM stock WHERE id = 42";
        self.table.query_row(sql, [], |row| row.get(0))
    }

    /// False if the table has a larger token: another owner had the lock after this one.
    fn write(&self, pieces: i64, token: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE stock SET pieces = ?2, token = ?1 WHERE id = 42 AND token <= ?1";
        Ok(self.table.execute(sql, params![token, pieces])? == 1)
    }
}

/// Tokens are below 2^53, which every database can hold and compare.
fn token(guard: &Guard) -> Result<i64, Failure> {
    let token = guard.token().ok_or("a fenced lock brings a token")?;
    Ok(i64::try_from(token)?)
}

fn check(so: bool, what: &str) -> Result<(), Failure> {
    if so { Ok(()) } else { Err(what.into()) }
}

/// Fixed, so that it ends while Alice is stopped, and short, so that Bob does not wait for long.
const LEASE: Duration = Duration::from_secs(5);
