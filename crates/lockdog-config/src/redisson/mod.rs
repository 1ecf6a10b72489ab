//! Redisson's configuration: what its keys mean for lockdog.

mod address;
mod certificates;
mod keys;
mod meaning;
mod replicas;
pub(crate) mod rule;
mod servers;
mod walk;

use std::collections::HashSet;

use crate::document::{DocumentNode, NodeKind};
use crate::error::ConfigError;
use crate::note::Note;
use crate::settings::Settings;
use crate::value::Variables;

/// Reads the settings. A name mapper of Redisson's is refused unless the caller has one of its own, and an
/// unknown key unless it is in `ignored`.
pub(crate) fn read(
    root: &DocumentNode,
    variables: Variables<'_>,
    ignored: &HashSet<String>,
    has_name_mapper: bool,
) -> Result<(Settings, Vec<Note>), ConfigError> {
    meaning::settings(walk::walk(root, variables, ignored)?, has_name_mapper)
}

/// Whether the keys at the top are Redisson's.
pub(crate) fn is_its_own(root: &DocumentNode) -> bool {
    let NodeKind::Map(entries) = &root.kind else {
        return false;
    };
    entries.iter().any(|entry| {
        let key = keys::find(&[rule::Class::Config], &entry.key);
        key.is_some_and(|key| matches!(key.rule, rule::Rule::Section(_)))
    })
}
