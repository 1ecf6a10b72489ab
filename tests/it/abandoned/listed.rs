//! The list of public futures is complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::public::PUBLIC;
use crate::support::binary::root;

#[test]
fn every_public_future_is_listed() {
    let listed: BTreeSet<String> = PUBLIC
        .iter()
        .flat_map(|public| public.is.iter().map(|name| (*name).to_owned()))
        .collect();
    let mut found = BTreeSet::new();
    for file in sources(&root().join("src")) {
        found.extend(public_futures(&fs::read_to_string(file).unwrap()));
    }
    assert_eq!(
        listed, found,
        "left: listed in abandoned/public.rs; right: in src"
    );
}

/// Tests the functions on which the test above relies.
#[test]
fn only_public_futures_are_found() {
    let code = "\
impl<T> Lock<T> {
    pub async fn with<F>(&self) {}
    pub(crate) async fn own(&self) {}
    pub fn scope<F: IntoFuture>(
        &self,
    ) -> impl Future<Output = F::Output> {
        Box::pin(async {})
    }
    pub fn plain(&self) -> u8 {}
    pub fn takes<F>(self, source: F) -> Self
    where
        F: Future,
    {
    }
}
pub struct Request;
impl IntoFuture for Request {
    fn into_future(self) {}
}
pub enum Waiting<T> {}
impl<T> Future for Waiting<T> {
}
pub(crate) struct Own;
pub struct OwnAndMore;
impl Future for Own {
}
pub async fn free() {}
";
    let found: Vec<String> = public_futures(code).into_iter().collect();
    let expected = ["Lock::scope", "Lock::with", "Request", "Waiting", "free"];
    assert_eq!(found, expected);
}

/// The public functions of a file that return futures, and its types that are or become futures.
fn public_futures(code: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or(code);
    let mut found = BTreeSet::new();
    let mut of = String::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('}') {
            of.clear();
        }
        if let Some(rest) = line.strip_prefix("impl") {
            let rest = rest.trim_start();
            let rest = match rest.strip_prefix('<') {
                Some(generic) => after_generics(generic),
                None => rest,
            };
            let (what, on) = rest.split_once(" for ").unwrap_or(("", rest));
            of = name(on);
            let is_public = ["struct", "enum"].iter().any(|it| {
                let declared = format!("pub {it} {of}");
                let mut rest = code.split(&declared).skip(1);
                rest.any(|rest| !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_'))
            });
            if is_public && matches!(name(what).as_str(), "IntoFuture" | "Future") {
                found.insert(of.clone());
            }
        }
        let Some(function) = line.trim_start().strip_prefix("pub ") else {
            continue;
        };
        let is_async = function.starts_with("async fn ");
        let Some((_, rest)) = function.split_once("fn ") else {
            continue;
        };
        let mut signature = rest.to_owned();
        while !signature.contains(['{', ';']) {
            signature += lines.next().unwrap_or(";");
        }
        // The bounds of a function's future argument are not its result.
        let signature = signature.split(" where ").next().unwrap_or_default();
        let result = signature.rsplit_once("->").map_or("", |(_, result)| result);
        let is_future = ["Future", "Boxed<"].iter().any(|it| result.contains(it));
        if is_async || is_future {
            let path = if of.is_empty() { "" } else { "::" };
            found.insert(format!("{of}{path}{}", name(rest)));
        }
    }
    found
}

/// The text after a list of generics.
fn after_generics(rest: &str) -> &str {
    let mut open = 1;
    let end = rest.find(|it| {
        open += match it {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        open == 0
    });
    end.map_or("", |end| rest[end + 1..].trim_start())
}

/// The identifier at the start of the text.
fn name(rest: &str) -> String {
    let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
    rest[..end.unwrap_or(rest.len())].to_owned()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}
