//! A Lua file and the digest by which the server knows it.

use std::borrow::Cow;
use std::sync::LazyLock;

/// A Lua file and its digest.
pub(crate) struct Script {
    text: Cow<'static, str>,
    digest: String,
}

/// The script of a transition. Its digest is computed at its first use.
pub(crate) type LazyScript = LazyLock<Script>;

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self::of(Cow::Borrowed(text))
    }

    /// A script that can call `script` as a local function of this name. Both have the same keys and arguments.
    pub(super) fn calling(function: &str, script: &Self, text: &str) -> Self {
        let inner = script.text();
        Self::of(format!("local function {function}()\n{inner}\nend\n{text}").into())
    }

    /// A script that may call these ones as functions of these names, with keys and arguments of their own.
    pub(super) fn of_several(scripts: &[(&str, &Self)], text: &str) -> Self {
        let functions = scripts.iter().map(|(function, script)| {
            let inner = script.text();
            format!("local function {function}(KEYS, ARGV)\n{inner}\nend\n")
        });
        let functions: String = functions.collect();
        Self::of(format!("{functions}{text}").into())
    }

    fn of(text: Cow<'static, str>) -> Self {
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}
