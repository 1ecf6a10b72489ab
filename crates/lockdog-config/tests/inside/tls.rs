//! Key stores, trust stores and what is verified.

use super::{failure, is, note, read};
use crate::error::ConfigErrorKind;
use crate::from_str;
use crate::note::NoteKind;

fn file(scheme: &str, keys: &str) -> String {
    format!("singleServerConfig:\n  address: {scheme}://a:1\n{keys}\n")
}

#[tokio::test]
async fn pem_files_are_the_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let client = folder.path().join("client.pem");
    let issued = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    std::fs::write(&ca, issued.cert.pem()).unwrap();
    let both = format!(
        "{}{}",
        issued.cert.pem(),
        issued.signing_key.serialize_pem()
    );
    std::fs::write(&client, both).unwrap();
    for prefix in ["file:", "file://", ""] {
        let keys = format!(
            "  sslTruststore: {prefix}{}\nsslKeystore: {prefix}{}",
            ca.display(),
            client.display()
        );
        let config = from_str(&file("rediss", &keys)).unwrap_or_else(|error| panic!("{error}"));
        let shown = format!("{config:?}");
        assert!(
            shown.contains("root_certificates: true, client_certificate: true"),
            "{shown}"
        );
        assert!(!shown.contains("BEGIN"), "{shown}");
        assert_eq!(note(&config.notes, "sslKeystore").0, NoteKind::Mapped);
        // The client checks the certificates and the key before it connects.
        config.builder.lazy(true).build().await.unwrap();
    }
    // The one of the section is not read.
    let top = format!("sslTruststore: file:{}", ca.display());
    let keys = format!("  sslTruststore: file:/none/ca.pem\n{top}");
    let (_, notes) = read(&file("rediss", &keys)).unwrap_or_else(|error| panic!("{error}"));
    let section = note(&notes, "singleServerConfig.sslTruststore");
    assert_eq!(section.0, NoteKind::Ignored);
    assert_eq!(note(&notes, "sslTruststore").0, NoteKind::Mapped);
    // Without its key a certificate proves nothing.
    let keys = format!("sslKeystore: file:{}", ca.display());
    let error = failure(&file("rediss", &keys));
    is(
        &error,
        ConfigErrorKind::Refused,
        "sslKeystore",
        3,
        14,
        "private key",
    );
}

#[test]
fn java_key_stores_are_refused_with_the_command_that_converts_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for (begin, key, command) in [
        (
            &[0xfe, 0xed, 0xfe, 0xed, 0][..],
            "sslTruststore",
            "keytool -list -rfc",
        ),
        (&[0x30, 0x82, 1], "sslKeystore", "openssl pkcs12"),
    ] {
        std::fs::write(&store, begin).unwrap();
        let error = failure(&file("rediss", &format!("{key}: file:{}", store.display())));
        is(
            &error,
            ConfigErrorKind::Refused,
            key,
            3,
            key.len() + 3,
            command,
        );
    }
    std::fs::write(&store, "hello").unwrap();
    let error = failure(&file(
        "rediss",
        &format!("sslTruststore: {}", store.display()),
    ));
    is(
        &error,
        ConfigErrorKind::Refused,
        "sslTruststore",
        3,
        16,
        "no certificate in PEM",
    );
    let error = failure(&file("rediss", "sslTruststore: file:/none/ca.pem"));
    is(
        &error,
        ConfigErrorKind::Value,
        "sslTruststore",
        3,
        16,
        "cannot be read",
    );
    let error = failure(&file("rediss", "sslTruststore: https://a/ca.pem"));
    is(
        &error,
        ConfigErrorKind::Refused,
        "sslTruststore",
        3,
        16,
        "only a file",
    );
}

#[test]
fn weaker_checks_are_refused_where_tls_is_used() {
    for (keys, key, column) in [
        ("sslVerificationMode: NONE", "sslVerificationMode", 22),
        ("sslVerificationMode: CA_ONLY", "sslVerificationMode", 22),
        (
            "  sslEnableEndpointIdentification: false",
            "singleServerConfig.sslEnableEndpointIdentification",
            36,
        ),
        ("sslProtocols: [TLSv1, TLSv1.1]", "sslProtocols", 15),
    ] {
        let error = failure(&file("rediss", keys));
        is(&error, ConfigErrorKind::Refused, key, 3, column, "");
        let text = file("redis", keys);
        let (_, notes) = read(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(note(&notes, key).0, NoteKind::Ignored, "{keys}");
    }
    let keys = "sslVerificationMode: STRICT\nsslProtocols: [TLSv1.1, TLSv1.2]";
    assert!(read(&file("rediss", keys)).is_ok());
}
