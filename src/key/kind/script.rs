//! A Lua file and the digest by which the server knows it.

use std::sync::LazyLock;

/// A Lua file and its digest.
pub(crate) struct Script {
    text: &'static str,
    digest: String,
}

/// The script of a transition. Its digest is computed at its first use.
pub(crate) type LazyScript = LazyLock<Script>;

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        let digest = redis::Script::new(text).get_hash().to_owned();
        Self { text, digest }
    }

    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}
