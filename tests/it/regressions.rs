//! Former defects, each with the interleaving that showed it.

mod answers;
mod endings;
mod watching;

use lockdog::{Client, ClientBuilder};

use crate::support::Proxy;
use crate::support::prelude::{WITHIN_A_LEASE as SOON, ms};

/// A client whose every connection goes through the proxy.
fn through(proxy: &Proxy) -> ClientBuilder {
    Client::builder().url(proxy.url())
}

/// The script call that names this key.
fn call_for(key: &'static str) -> impl Fn(&[String]) -> bool + Send + Sync {
    move |args| args[0].starts_with("EVAL") && args.get(3).is_some_and(|name| name == key)
}
