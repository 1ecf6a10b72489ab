//! An authority of one test, and what it signs.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;

/// Signs servers and clients.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Certified {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no name is no bad name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let authority = Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("it signs itself"),
            folder: TempDir::new().expect("a temporary folder can be made"),
        };
        let local = authority.certify(&["localhost", "127.0.0.1"]);
        authority.write("ca", &authority.pem());
        authority.write("certificate", &local.certificate);
        authority.write("key", &local.key);
        authority
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// For a server with one of these names or addresses, or for a client.
    pub(crate) fn certify(&self, names: &[&str]) -> Certified {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(names).expect("the names are good");
        // With the name of its issuer it would look self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "a test's own");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer);
        Certified {
            certificate: certificate.expect("it can be signed").pem(),
            key: key.serialize_pem(),
        }
    }

    /// Options of a server that is this machine, and what they are.
    pub(crate) fn options(&self) -> [(&'static str, String); 3] {
        [
            ("tls-cert-file", "certificate"),
            ("tls-key-file", "key"),
            ("tls-ca-cert-file", "ca"),
        ]
        .map(|(option, name)| (option, self.path(name).display().to_string()))
    }

    fn write(&self, name: &str, pem: &str) {
        fs::write(self.path(name), pem).expect("the folder can be written to");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
