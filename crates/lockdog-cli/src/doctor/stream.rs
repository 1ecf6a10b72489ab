//! The way to a server, step by step: name, connection, TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::found::{Found, State, millis};
use crate::connect::{Certificates, Settings};

/// Bytes to and from a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Host and port, or the path of a socket.
pub(super) fn place(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{host}:{port}")
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        _ => "an unknown address".to_owned(),
    }
}

/// Opens a stream. `report` gets what each step found. Returns `None` after a failure, which `report` got.
pub(super) async fn open(
    info: &ConnectionInfo,
    settings: &Settings,
    report: &mut impl FnMut(Found),
) -> Option<Box<dyn Stream>> {
    let place = place(info);
    let limit = settings.limit();
    match info.addr() {
        ConnectionAddr::Unix(path) => {
            let began = Instant::now();
            match within(limit, UnixStream::connect(path)).await {
                Ok(stream) => {
                    report(Found::new("connect", &place, State::Ok, &place).since(began));
                    Some(Box::new(stream))
                }
                Err(error) => {
                    report(unreachable("connect", &place, &error).since(began));
                    None
                }
            }
        }
        ConnectionAddr::Tcp(host, port) => {
            let stream = by_tcp(host, *port, limit, report).await?;
            Some(Box::new(stream))
        }
        ConnectionAddr::TcpTls { host, port, .. } => {
            let stream = by_tcp(host, *port, limit, report).await?;
            by_tls(stream, host, &place, settings, report).await
        }
        _ => None,
    }
}

/// Looks the name up, and connects to the first of its addresses that answers.
pub(super) async fn by_tcp(
    host: &str,
    port: u16,
    limit: Duration,
    report: &mut impl FnMut(Found),
) -> Option<TcpStream> {
    let place = format!("{host}:{port}");
    let began = Instant::now();
    let plain = host.trim_matches(['[', ']']);
    let addresses: Vec<SocketAddr> = match within(limit, lookup_host((plain, port))).await {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            let found = Found::new("name", &place, State::Fail, format_args!("{host}: {error}"));
            report(
                found
                    .fix("check the name in the URL, and the name servers of this machine")
                    .since(began),
            );
            return None;
        }
    };
    if plain.parse::<IpAddr>().is_err() {
        let shown: Vec<String> = addresses.iter().map(|it| it.ip().to_string()).collect();
        let found = Found::new(
            "name",
            &place,
            State::Ok,
            format_args!("{host}: {}", shown.join(", ")),
        );
        report(
            Found {
                is_answer: false,
                ..found
            }
            .since(began),
        );
    }
    let began = Instant::now();
    let mut failed = io::Error::other("the name has no address");
    for address in addresses {
        match within(limit, TcpStream::connect(address)).await {
            Ok(stream) => {
                // As the client does: no command waits for more bytes.
                let _ = stream.set_nodelay(true);
                report(Found::new("connect", &place, State::Ok, address).since(began));
                return Some(stream);
            }
            Err(error) => failed = error,
        }
    }
    report(unreachable("connect", &place, &failed).since(began));
    None
}

async fn by_tls(
    stream: TcpStream,
    host: &str,
    place: &str,
    settings: &Settings,
    report: &mut impl FnMut(Found),
) -> Option<Box<dyn Stream>> {
    let began = Instant::now();
    let shaken = async {
        let config = config(&settings.certificates)?;
        let name = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    };
    match within(settings.limit(), shaken).await {
        Ok(stream) => {
            let (_, tls) = stream.get_ref();
            let version = tls.protocol_version().and_then(|it| it.as_str());
            let text = version.unwrap_or("TLS").replace('_', ".");
            report(Found::new("tls", place, State::Ok, text).since(began));
            Some(Box::new(stream))
        }
        Err(error) => {
            let found = Found::new("tls", place, State::Fail, error);
            report(found.fix("give the issuer of the server's certificate with --cacert, and the name that the certificate has in the URL").since(began));
            None
        }
    }
}

/// As the library makes it. Its errors have no bytes of a key.
fn config(certificates: &Certificates) -> io::Result<ClientConfig> {
    let bad = |what: &str| io::Error::other(format!("{what} cannot be read as PEM"));
    let mut roots = RootCertStore::empty();
    match &certificates.roots {
        Some(pem) => {
            for root in CertificateDer::pem_slice_iter(pem) {
                let root = root.map_err(|_| bad("the root certificates"))?;
                roots.add(root).map_err(|_| bad("a root certificate"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let Some((certificate, key)) = &certificates.own else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| bad("the client's certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| bad("the client's key"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|_| bad("the client's certificate and key"))
}

pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::other(format!(
            "no answer within {}",
            millis(limit)
        ))),
    }
}

fn unreachable(step: &'static str, place: &str, error: &io::Error) -> Found {
    Found::new(step, place, State::Fail, format_args!("{place}: {error}"))
        .fix("start the server there, or open the way to it: its `bind`, firewalls")
}
