//! The test server as a process of its own, for redis-cli, Java and other programs.
//!
//! `cargo run -p lockdog-test --example serve -- --port 6379`. Options that redis-server has and this
//! one does not are taken with their values and have no effect.

use lockdog_test::Server;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let (mut port, mut host) = (6379, "127.0.0.1".to_owned());
    let mut password = String::new();
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        match option.as_str() {
            "--port" => port = args.next().and_then(|it| it.parse().ok()).unwrap_or(port),
            "--requirepass" => password = args.next().unwrap_or_default(),
            "--bind" => host = args.next().unwrap_or(host),
            _ => {}
        }
    }
    let server = Server::new();
    server.require_password(&password);
    let address = server.listen((host, port)).await?;
    println!("lockdog's test server at {address}: Ready to accept connections");
    std::future::pending().await
}
