//! The certificates of TLS connections: which ones to trust, and which one to present.

use std::fmt;

use redis::ConnectionInfo;

use crate::error::Error;

/// Certificates for TLS connections (`rediss://`), for
/// [`ClientBuilder::tls`](crate::ClientBuilder::tls): which ones to trust, and which one to
/// present.
///
/// The client always verifies the server's certificate, with or without these settings.
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

/// The client's certificate and its key, both in PEM.
#[derive(Clone)]
struct ClientCertificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TlsSettings {
    /// Trusts the system's certificates and presents none, as without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The root certificates to trust, in PEM, one or several. They replace the system's.
    ///
    /// Defaults to the system's. Corresponds to Redisson's `sslTruststore`.
    #[must_use = "it changes nothing by itself"]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// The certificate that this client presents if the server asks for one (`tls-auth-clients
    /// yes`), followed by any intermediate certificates, and its key (PKCS#8, PKCS#1 or SEC1, not
    /// encrypted). Both are in PEM. The key is never shown.
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

    /// Applies the settings to a TLS connection. Fails if a certificate or key is invalid.
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

    /// Uses its own texts, because the parsers' errors may quote their input.
    #[cfg(feature = "tls")]
    fn check(&self) -> Result<(), Error> {
        use rustls::RootCertStore;
        use rustls::pki_types::PrivateKeyDer;
        use rustls::pki_types::pem::PemObject;

        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.roots {
            for root in certificates(pem, "the root certificates")? {
                let added = roots.add(root);
                added.map_err(|_| refuse("a root certificate is not a valid CA certificate"))?;
            }
        }
        let Some(own) = &self.own else { return Ok(()) };
        let chain = certificates(&own.certificate, "the client's certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&own.key).map_err(|_| {
            refuse("the client's key must be an unencrypted private key in PEM (PKCS#8, PKCS#1 or SEC1)")
        })?;
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key);
        let unfit =
            |_| refuse("the client's key cannot be used, or does not match its certificate");
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

/// Shows which settings are present, not their contents.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("root_certificates", &self.roots.is_some())
            .field("client_certificate", &self.own.is_some())
            .finish_non_exhaustive()
    }
}
