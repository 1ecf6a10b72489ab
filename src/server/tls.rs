//! Whom a TLS connection trusts, and how it shows who we are.

use std::fmt;

use redis::ConnectionInfo;

use crate::error::Error;

/// Certificates for connections by TLS (`rediss://`), for
/// [`ClientBuilder::tls`](crate::ClientBuilder::tls): whom to trust, and what to show.
///
/// The server's certificate is always verified, with or without these.
///
/// # Examples
///
/// ```no_run
/// use lockdog::Client;
/// use lockdog::config::TlsSettings;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = TlsSettings::new()
///     .root_certificates(std::fs::read("ca.pem")?)
///     .client_certificate(std::fs::read("orders.pem")?, std::fs::read("orders.key")?);
/// let client = Client::builder().url("rediss://redis.internal").tls(tls).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TlsSettings {
    roots: Option<Vec<u8>>,
    own: Option<ClientCertificate>,
}

/// What we show: both in PEM.
#[derive(Clone)]
struct ClientCertificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TlsSettings {
    /// The system's certificates, and none to show: as without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The certificates of those who may vouch for a server, in PEM, one or several: in place of the
    /// system's.
    ///
    /// Defaults to the system's. Corresponds to Redisson's `sslTruststore`.
    #[must_use = "it changes nothing by itself"]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// What this client shows to a server that asks (`tls-auth-clients yes`): its certificate, with
    /// those between it and the root behind it, and its key (PKCS#8, PKCS#1 or SEC1, not encrypted),
    /// both in PEM. The key is shown nowhere.
    ///
    /// Defaults to none. Corresponds to Redisson's `sslKeystore`.
    #[must_use = "it changes nothing by itself"]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.own = Some(ClientCertificate {
            certificate: certificate_pem.into(),
            key: key_pem.into(),
        });
        self
    }

    /// Puts them into what is connected to by TLS. Whatever is wrong with them shows here.
    #[cfg(feature = "tls")]
    pub(super) fn apply(&self, info: &mut ConnectionInfo) -> Result<(), Error> {
        if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            return Ok(());
        }
        self.check()?;
        let certificates = redis::TlsCertificates {
            client_tls: self.own.as_ref().map(|own| redis::ClientTlsConfig {
                client_cert: own.certificate.clone(),
                client_key: own.key.clone(),
            }),
            root_cert: self.roots.clone(),
        };
        let client = redis::Client::build_with_tls(info.clone(), certificates)
            .map_err(|_| refuse("they cannot be used"))?;
        *info = client.get_connection_info().clone();
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn apply(&self, info: &mut ConnectionInfo) -> Result<(), Error> {
        let own = self.own.as_ref().map(|own| (&own.certificate, &own.key));
        let _without_tls = (info, &self.roots, own);
        Err(refuse("lockdog was built without its feature `tls`"))
    }

    /// In words of our own: what the parsers say may quote what they were given.
    #[cfg(feature = "tls")]
    fn check(&self) -> Result<(), Error> {
        use rustls::RootCertStore;
        use rustls::pki_types::PrivateKeyDer;
        use rustls::pki_types::pem::PemObject;

        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.roots {
            for root in certificates(pem, "the root certificates")? {
                let added = roots.add(root);
                added
                    .map_err(|_| refuse("one of the root certificates cannot vouch for others"))?;
            }
        }
        let Some(own) = &self.own else { return Ok(()) };
        let chain = certificates(&own.certificate, "the client's certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&own.key).map_err(|_| {
            refuse("the client's key is no PEM of a private key (PKCS#8, PKCS#1 or SEC1) that is not encrypted")
        })?;
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key);
        let unfit =
            |_| refuse("the client's key cannot be used, or is not that of its certificate");
        config.map(drop).map_err(unfit)
    }
}

#[cfg(feature = "tls")]
fn certificates(
    pem: &[u8],
    what: &str,
) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, Error> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|_| refuse(&format!("{what} cannot be read as PEM")))?;
    if read.is_empty() {
        return Err(refuse(&format!("{what} hold no certificate in PEM")));
    }
    Ok(read)
}

fn refuse(why: &str) -> Error {
    Error::invalid("tls", why.to_owned())
}

/// Shows what there is, not what it is.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("root_certificates", &self.roots.is_some())
            .field("client_certificate", &self.own.is_some())
            .finish_non_exhaustive()
    }
}
