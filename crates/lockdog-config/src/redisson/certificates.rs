//! Key stores and trust stores: lockdog reads PEM only.

use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::value::SettingValue;

/// Reads the certificates in the trust store at this URL, or its path.
pub(super) fn roots(store: &SettingValue<'_>) -> Result<Option<Vec<u8>>, ConfigError> {
    let export = "keytool -list -rfc -keystore STORE > ca.pem";
    let Some(pem) = read(store, export)? else {
        return Ok(None);
    };
    if !has(&pem, "-----BEGIN CERTIFICATE-----") {
        return Err(store.refused("the file has no certificate in PEM"));
    }
    Ok(Some(pem))
}

/// Reads the client's certificate and its key, both in the one file.
pub(super) fn identity(store: &SettingValue<'_>) -> Result<Option<Vec<u8>>, ConfigError> {
    let export = "openssl pkcs12 -in STORE -nodes -out client.pem";
    let Some(pem) = read(store, export)? else {
        return Ok(None);
    };
    if !has(&pem, "-----BEGIN CERTIFICATE-----") || !has(&pem, "PRIVATE KEY-----") {
        let why = "the file must have a certificate and its private key, both in PEM";
        return Err(store.refused(why));
    }
    Ok(Some(pem))
}

fn read(store: &SettingValue<'_>, export: &str) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(url) = store.text()? else {
        return Ok(None);
    };
    let Some(path) = path(&url) else {
        return Err(store.refused("only a file can be read: write file:/path/to/the.pem"));
    };
    let bytes = std::fs::read(path)
        .map_err(|error| store.wrong(format!("the file cannot be read: {}", error.kind())))?;
    // The first bytes of a Java key store, and of PKCS#12.
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) || bytes.starts_with(&[0x30]) {
        let why =
            format!("lockdog reads PEM and no Java key store: run `{export}`, and name that file");
        return Err(store.refused(why));
    }
    Ok(Some(bytes))
}

/// The path in `file:/a`, `file:///a`, or `/a`.
fn path(url: &str) -> Option<PathBuf> {
    let path = match url.strip_prefix("file:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None if url.contains("://") || url.starts_with("classpath:") => return None,
        None => url,
    };
    Some(Path::new(path).to_owned())
}

fn has(pem: &[u8], line: &str) -> bool {
    pem.windows(line.len()).any(|part| part == line.as_bytes())
}
