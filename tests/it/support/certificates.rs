//! A certificate for this machine, and the authority that signs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::support::binary::Binary;
use crate::support::port::free_port;
use crate::support::server::{RedisServer, ServerBuilder};

/// A folder with the three files.
pub(crate) struct Certificates {
    folder: PathBuf,
    /// Removes the folder with the value.
    _own: Option<TempDir>,
}

impl Certificates {
    /// Of one test.
    pub(crate) fn new() -> Self {
        let own = TempDir::with_prefix("lockdog-").expect("a temporary folder can be made");
        write(own.path());
        Self {
            folder: own.path().to_owned(),
            _own: Some(own),
        }
    }

    /// Those of the authority that all clients of this process trust, as `SSL_CERT_FILE` has it;
    /// made where they are not there yet. Processes that a test starts find the same.
    pub(crate) fn of_this_run() -> &'static Self {
        static ALL: OnceLock<Certificates> = OnceLock::new();
        ALL.get_or_init(|| {
            let trusted = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            let folder = trusted
                .as_deref()
                .filter(|file| file.ends_with(ISSUER))
                .and_then(Path::parent)
                .expect("set SSL_CERT_FILE to a file named `issuer` in a folder that may be made");
            let above = folder.parent().expect("it is no root");
            fs::create_dir_all(above).expect("the folder can be made");
            // The program that starts the tests leaves an empty file there: cargo takes the variable away where it
            // names none.
            if fs::metadata(folder.join(ISSUER)).is_ok_and(|file| file.len() == 0) {
                fs::remove_dir_all(folder).expect("the folder can be removed");
            }
            let made = TempDir::new_in(above).expect("the folder can be written to");
            write(made.path());
            // The rename is atomic. If another process was faster, its files are used.
            if fs::rename(made.path(), folder).is_ok() {
                let _moved = made.keep();
            }
            Self {
                folder: folder.to_owned(),
                _own: None,
            }
        })
    }

    /// The certificate that a client must trust.
    pub(crate) fn issuer(&self) -> PathBuf {
        self.folder.join(ISSUER)
    }

    /// A server that speaks TLS at this port, and plainly for the test itself.
    pub(crate) fn server(&self, port: u16) -> ServerBuilder {
        let path = |name: &str| self.folder.join(name).display().to_string();
        RedisServer::builder()
            // Debian's server supports TLS. The one of the wheels may not.
            .binary(Binary::Redis7)
            .arg("--tls-port", &port.to_string())
            .arg("--tls-cert-file", &path(CERTIFICATE))
            .arg("--tls-key-file", &path(KEY))
            .arg("--tls-auth-clients", "no")
    }

    /// One that runs, and its port for TLS.
    pub(crate) async fn start_server(&self) -> (RedisServer, u16) {
        let port = free_port();
        (self.server(port).start().await, port)
    }
}

fn write(folder: &Path) {
    let issuer = authority();
    let key = KeyPair::generate().expect("a key can be made");
    let certificate = CertificateParams::new(["localhost".to_owned()])
        .and_then(|localhost| localhost.signed_by(&key, &issuer))
        .expect("a certificate can be signed");
    for (name, text) in [
        (ISSUER, issuer.pem()),
        (CERTIFICATE, certificate.pem()),
        (KEY, key.serialize_pem()),
    ] {
        fs::write(folder.join(name), text).expect("the folder can be written to");
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).expect("no name is no bad name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key can be made");
    CertifiedIssuer::self_signed(params, key).expect("it signs itself")
}

const ISSUER: &str = "issuer";
const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
