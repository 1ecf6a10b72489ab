//! Delivering a command to the server after its own connection ended or continued.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::TcpStream;

use crate::support::wire::Wire;

/// Sends `request` on a fresh connection, after what its first connection had sent to log in and
/// choose a database, and returns when the server has answered it.
pub(super) async fn replay(port: u16, login: Vec<Vec<u8>>, request: Vec<u8>) -> io::Result<()> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let mut wire = Wire::new(stream);
    wire.write(&login.concat()).await?;
    wire.write(&request).await?;
    let mut missing = login.len() + 1;
    while missing > 0 {
        // A push is no answer to a command.
        if wire.next().await?.kind != b'>' {
            missing -= 1;
        }
    }
    Ok(())
}
