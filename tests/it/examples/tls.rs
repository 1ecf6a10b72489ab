//! `rediss://`: the server has to show a certificate that the machine trusts.

use super::program::Program;
use crate::support::Certificates;

#[tokio::test]
async fn every_call_works_over_tls_and_none_with_an_untrusted_certificate() {
    let certificates = Certificates::new();
    let (server, port) = certificates.start_server().await;
    let url = format!("rediss://localhost:{port}");

    let issuer = certificates.issuer().display().to_string();
    let trusting = [("SSL_CERT_FILE", &*issuer)];
    let (status, output) = Program::start_with("porting", &[&url], &trusting)
        .end()
        .await;
    assert!(status.success(), "{output:#?}");
    let redis = server.redis().await;
    assert!(redis.commandstats().await.contains_key("evalsha"));

    redis.reset_stats().await;
    let (status, _) = Program::start("porting", &[&url]).end().await;
    assert!(!status.success());
    let stats = redis.commandstats().await;
    assert!(!stats.contains_key("evalsha") && !stats.contains_key("eval"));
}
