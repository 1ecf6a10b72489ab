//! What holds of the texts: the order of the source, and what the documents say of it.
//!
//! No server, no client: it reads files.

#![allow(clippy::disallowed_methods, reason = "the bans are for the library")]

mod documents;
mod source;

fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
}
