//! `rediss://`: the server has to show a certificate that the machine trusts.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use super::program::Program;
use crate::support::{Binary, RedisServer, free_port};

/// A02, A05, over TLS.
#[tokio::test]
async fn every_call_works_over_tls_and_none_with_a_certificate_that_nobody_vouches_for() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let issuer = authority();
    let key = KeyPair::generate().expect("a key can be made");
    let certificate = CertificateParams::new(["localhost".to_owned()])
        .and_then(|localhost| localhost.signed_by(&key, &issuer))
        .expect("a certificate can be signed");
    fs::write(path("issuer"), issuer.pem()).unwrap();
    fs::write(path("certificate"), certificate.pem()).unwrap();
    fs::write(path("key"), key.serialize_pem()).unwrap();
    let port = free_port().to_string();
    let server = RedisServer::builder()
        // Debian builds it with TLS; the wheels need not.
        .binary(Binary::Redis7)
        .arg("--tls-port", &port)
        .arg("--tls-cert-file", &path("certificate"))
        .arg("--tls-key-file", &path("key"))
        .arg("--tls-auth-clients", "no")
        .start()
        .await;
    let url = format!("rediss://localhost:{port}");

    let trusting = [("SSL_CERT_FILE", &*path("issuer"))];
    let (status, said) = Program::start_with("porting", &[&url], &trusting)
        .end()
        .await;
    assert!(status.success(), "{said:#?}");
    let redis = server.redis().await;
    assert!(redis.commandstats().await.contains_key("evalsha"));

    redis.reset_stats().await;
    let (status, _) = Program::start("porting", &[&url]).end().await;
    assert!(!status.success());
    let stats = redis.commandstats().await;
    assert!(!stats.contains_key("evalsha") && !stats.contains_key("eval"));
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).expect("no name is no bad name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key can be made");
    CertifiedIssuer::self_signed(params, key).expect("it vouches for itself")
}
