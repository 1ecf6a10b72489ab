//! Inside a folder, too, files import each other in one direction only: in each folder of each crate.
//!
//! The check reads imports and paths, so it has two limits:
//!
//! - An edge from a folder's own file to a name that it re-exports does not count. So the check does not see a
//!   parent and a child that use each other's types, if the parent uses the re-exported name.
//! - A method that a file adds to the type of a sibling by `impl` needs no import. So the check does not see a
//!   call of such a method.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{code, relative, sources, sources_of_members};

type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_folder_has_an_import_cycle() {
    let all = sources().into_iter().chain(sources_of_members());
    let files: Vec<File> = all.map(|path| File::read(&path)).collect();
    let folders: Vec<&File> = files.iter().filter(|file| file.is_folder()).collect();
    for name in [
        "lockdog",
        "lockdog::server",
        "lockdog-quorum",
        "lockdog-test::commands",
    ] {
        assert!(folders.iter().any(|it| it.name() == name), "{name}");
    }
    let mut circles = Vec::new();
    for folder in folders {
        let edges = edges(folder, &files);
        if let Some(circle) = circle(&edges) {
            circles.push(format!("{}: {}", folder.name(), circle.join(" -> ")));
        }
    }
    assert!(
        circles.is_empty(),
        "move what both sides use into a file of its own:\n{}",
        circles.join("\n")
    );
}

/// What the check above relies on.
#[test]
fn a_cycle_through_an_item_of_the_folder_itself_is_found() {
    let file = |path: &str, code: &str| File {
        path: path.split("::").map(str::to_owned).collect(),
        paths: paths(code),
        children: Vec::new(),
    };
    let own = "mod b;\nmod c;\npub(crate) use b::B;\nfn f() { c::g() }";
    let mut folder = file("crate::a", own);
    folder.children = vec!["b".to_owned(), "c".to_owned()];
    let b = file("crate::a::b", "pub struct B;");
    let through_a_name = file("crate::a::c", "use super::{B, Own};");
    let files = [folder, b, through_a_name];
    let found = circle(&edges(&files[0], &files));
    assert_eq!(found.unwrap().join(" "), "a c a");

    let [folder, b, _] = files;
    let of_another_crate = file("other::a::c", "use crate::a::Own;");
    let c = file("crate::a::c", "use crate::a::B;\nuse std::fmt;");
    let files = [folder, b, c, of_another_crate];
    assert_eq!(circle(&edges(&files[0], &files)), None);
}

struct File {
    /// Its module, from the name of its crate.
    path: Vec<String>,
    paths: Vec<Import>,
    /// Its modules; none if it is not the file of a folder.
    children: Vec<String>,
}

/// A path in the code.
struct Import {
    segments: Vec<String>,
    /// It only gives something of below another name.
    is_reexport: bool,
}

impl File {
    fn read(path: &Path) -> Self {
        let file = relative(path);
        let (folder, module) = file.split_once("src/").expect("it is a source file");
        let package = folder.trim_start_matches("crates/").trim_end_matches('/');
        let package = if package.is_empty() {
            "lockdog"
        } else {
            package
        };
        let module = module.trim_end_matches(".rs").trim_end_matches("/mod");
        let modules = module.split('/').filter(|name| *name != "lib");
        let code = code(path);
        let children = code.lines().filter_map(|line| {
            let name = line.trim().strip_suffix(';')?;
            let (_, name) = name.split_once("mod ")?;
            Some(name.to_owned())
        });
        Self {
            path: [package]
                .into_iter()
                .chain(modules)
                .map(str::to_owned)
                .collect(),
            paths: paths(&code),
            children: children.collect(),
        }
    }

    fn is_folder(&self) -> bool {
        !self.children.is_empty()
    }

    fn name(&self) -> String {
        self.path.join("::")
    }

    /// Where a path of this file leads, from the root of the crate.
    fn absolute(&self, import: &Import) -> Option<Vec<String>> {
        let mut from = self.path.clone();
        let mut rest = import.segments.as_slice();
        match rest.first()?.as_str() {
            "crate" => {
                from.truncate(1);
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    from.pop();
                    rest = &rest[1..];
                }
            }
            child if self.children.iter().any(|it| it == child) => {}
            // Of another crate, or a name that an import explains.
            _ => return None,
        }
        from.extend_from_slice(rest);
        Some(from)
    }
}

/// Which modules of a folder use which; the folder's own file has the folder's name.
fn edges(folder: &File, files: &[File]) -> Edges {
    let depth = folder.path.len();
    let own = folder.path.last().expect("it has a name").clone();
    // Names that the folder gives what is in its modules.
    let reexported: BTreeMap<&str, &str> = folder
        .paths
        .iter()
        .filter(|import| import.is_reexport)
        .filter_map(|import| {
            let segments: Vec<&str> = import.segments.iter().map(String::as_str).collect();
            let segments = segments
                .strip_prefix(&["self"])
                .unwrap_or(&segments)
                .to_vec();
            Some((*segments.last()?, *segments.first()?))
        })
        .collect();
    let mut edges = Edges::new();
    for file in files
        .iter()
        .filter(|file| file.path.starts_with(&folder.path))
    {
        let from = file.path.get(depth).unwrap_or(&own);
        for import in &file.paths {
            let Some(to) = file.absolute(import) else {
                continue;
            };
            let is_here = to.starts_with(&folder.path) && to.len() > depth;
            if !is_here || (*from == own && import.is_reexport) {
                continue;
            }
            let name = &to[depth];
            let target = if folder.children.contains(name) {
                name.clone()
            } else {
                let module = reexported.get(name.as_str()).copied();
                module.unwrap_or(&own).to_owned()
            };
            if target != *from {
                edges.entry(from.clone()).or_default().insert(target);
            }
        }
    }
    edges
}

/// Some way round, from a module back to it.
fn circle(edges: &Edges) -> Option<Vec<String>> {
    fn go(at: &str, edges: &Edges, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(first) = way.iter().position(|it| it == at) {
            way.drain(..first);
            way.push(at.to_owned());
            return true;
        }
        if done.contains(at) {
            return false;
        }
        way.push(at.to_owned());
        let next = edges.get(at).into_iter().flatten();
        for to in next {
            if go(to, edges, way, done) {
                return true;
            }
        }
        way.pop();
        done.insert(at.to_owned());
        false
    }
    let mut done = BTreeSet::new();
    edges.keys().find_map(|start| {
        let mut way = Vec::new();
        go(start, edges, &mut way, &mut done).then_some(way)
    })
}

/// The paths of a file: what it imports, and what it names in full.
fn paths(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let mut body = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let is_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let (before, after) = rest.split_at(at);
        body.push_str(before);
        let Some(end) = after.find(';').filter(|_| is_word) else {
            body.push_str(&after[..4]);
            rest = &after[4..];
            continue;
        };
        let line = before.rsplit('\n').next().unwrap_or_default();
        let is_test = before.trim_end().ends_with("#[cfg(test)]")
            || before
                .trim_end_matches(line)
                .trim_end()
                .ends_with("#[cfg(test)]");
        if !is_test {
            let mut all = Vec::new();
            expand("", &after[4..end], &mut all);
            found.extend(all.into_iter().map(|path| Import {
                segments: segments(&path),
                is_reexport: line.trim_start().starts_with("pub"),
            }));
        }
        rest = &after[end..];
    }
    body.push_str(rest);
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let named = body.split(|c: char| !is_path(c));
    found.extend(named.filter(|word| word.contains("::")).map(|word| Import {
        segments: segments(word.trim_matches(':')),
        is_reexport: false,
    }));
    found
}

/// Each path of a tree of imports.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        found.push(format!("{prefix}{path}"));
        return;
    };
    let body = body.trim_end().trim_end_matches('}');
    let prefix = format!("{prefix}{head}");
    let (mut depth, mut start) = (0, 0);
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &body[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !body[start..].trim().is_empty() {
        expand(&prefix, &body[start..], found);
    }
}

fn segments(path: &str) -> Vec<String> {
    let parts = path.split("::").map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
