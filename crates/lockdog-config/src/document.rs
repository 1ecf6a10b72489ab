//! The text as a tree that knows the place of each value.
//!
//! JSON is read as YAML, which contains it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use crate::error::{ConfigError, Position};

/// A value. It has no `Debug`, because it may be a password.
pub(crate) struct DocumentNode {
    pub(crate) at: Position,
    /// The class that a tag names, as in `!<org.redisson.codec.Kryo5Codec>`.
    pub(crate) class: Option<String>,
    pub(crate) kind: NodeKind,
}

pub(crate) enum NodeKind {
    Scalar {
        text: String,
        /// Without quotes, so it may be the word for no value.
        is_plain: bool,
    },
    List(Vec<Rc<DocumentNode>>),
    Map(Vec<Entry>),
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Position,
    pub(crate) value: Rc<DocumentNode>,
}

impl DocumentNode {
    /// The value of this key, if the node is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let NodeKind::Map(entries) = &self.kind else {
            return None;
        };
        let mut found = entries.iter().filter(|entry| entry.key == key);
        found.next().map(|entry| &*entry.value)
    }

    /// Whether the node is one of YAML's words for no value.
    pub(crate) fn is_null(&self) -> bool {
        match &self.kind {
            NodeKind::Scalar { text, is_plain } => {
                *is_plain && is_null(text) && self.class.is_none()
            }
            NodeKind::List(_) | NodeKind::Map(_) => false,
        }
    }
}

/// Whether YAML reads this text without quotes as no value.
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Reads the one document of the text; `None` if it is empty.
///
/// An alias shares the node of its anchor, so a bomb of aliases costs what its text costs. Only a merge
/// (`<<`) copies, and is counted.
pub(crate) fn load(text: &str) -> Result<Option<Rc<DocumentNode>>, ConfigError> {
    if text.len() > LONGEST {
        return Err(too_long());
    }
    let mut loader = Loader::default();
    // Nearly every event needs a character, so a parser with more events has a defect.
    let mut left = 4 * text.len() + 64;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = position(error.marker().line(), error.marker().col());
            // This text of the parser quotes a character, which may belong to a password.
            let why = match error.info() {
                info if info.starts_with("unexpected character") => "unexpected character",
                info => info,
            };
            ConfigError::syntax(
                at,
                format!("not valid YAML or JSON: {}", why.replace('\n', " ")),
            )
        })?;
        if matches!(event, Event::StreamEnd) {
            break;
        }
        left -= 1;
        if left == 0 {
            return Err(ConfigError::syntax(START, "the parser does not end"));
        }
        loader.take(event, span)?;
    }
    Ok(loader.root.filter(|root| !root.is_null()))
}

/// A text that is longer than [`LONGEST`].
pub(crate) fn too_long() -> ConfigError {
    ConfigError::syntax(START, "a configuration has at most 1 MiB")
}

#[derive(Default)]
struct Loader {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<DocumentNode>>,
    root: Option<Rc<DocumentNode>>,
    documents: usize,
    merged: usize,
}

/// A list or map whose end has not come yet.
struct Open {
    at: Position,
    class: Option<String>,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Rc<DocumentNode>>),
    Map {
        entries: Vec<Entry>,
        known: HashSet<String>,
        /// What `<<` names, in its order.
        merges: Vec<Rc<DocumentNode>>,
        key: Option<Key>,
    },
}

/// A key whose value has not come yet.
struct Key {
    name: String,
    at: Position,
    is_merge: bool,
}

impl Loader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), ConfigError> {
        let at = position(span.start.line(), span.start.col());
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let why = "a second document begins here: a configuration is one document";
                    return Err(ConfigError::syntax(at, why));
                }
            }
            Event::Alias(anchor) => {
                // A node that contains itself has no entry yet.
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(ConfigError::syntax(at, "an alias without its anchor"));
                };
                self.add(node)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.as_ref().is_some_and(|tag| is_core(tag, "str"));
                let kind = NodeKind::Scalar {
                    text: text.into_owned(),
                    is_plain: style == ScalarStyle::Plain && !is_text,
                };
                let class = tag.and_then(|tag| class(&tag));
                self.end(DocumentNode { at, class, kind }, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                let class = tag.and_then(|tag| class(&tag));
                self.begin(at, class, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    known: HashSet::new(),
                    merges: Vec::new(),
                    key: None,
                };
                let class = tag.and_then(|tag| class(&tag));
                self.begin(at, class, anchor, content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else {
                    return Err(ConfigError::syntax(at, "an end without a beginning"));
                };
                let anchor = open.anchor;
                let node = self.close(open)?;
                self.end(node, anchor)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        at: Position,
        class: Option<String>,
        anchor: usize,
        content: Content,
    ) -> Result<(), ConfigError> {
        if self.open.len() == DEEPEST {
            let why = format!("values may be nested {DEEPEST} deep");
            return Err(ConfigError::syntax(at, why));
        }
        self.open.push(Open {
            at,
            class,
            anchor,
            content,
        });
        Ok(())
    }

    fn close(&mut self, open: Open) -> Result<DocumentNode, ConfigError> {
        let kind = match open.content {
            Content::List(nodes) => NodeKind::List(nodes),
            Content::Map {
                mut entries,
                mut known,
                merges,
                ..
            } => {
                for source in merges {
                    let NodeKind::Map(more) = &source.kind else {
                        let why = "`<<` needs a map, or a list of maps";
                        return Err(ConfigError::syntax(source.at, why));
                    };
                    self.merged += more.len();
                    if self.merged > MOST_MERGED {
                        let why = format!("`<<` may add {MOST_MERGED} keys in all");
                        return Err(ConfigError::syntax(open.at, why));
                    }
                    for entry in more {
                        if known.insert(entry.key.clone()) {
                            entries.push(entry.clone());
                        }
                    }
                }
                NodeKind::Map(entries)
            }
        };
        let (at, class) = (open.at, open.class);
        Ok(DocumentNode { at, class, kind })
    }

    fn end(&mut self, node: DocumentNode, anchor: usize) -> Result<(), ConfigError> {
        let node = Rc::new(node);
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.add(node)
    }

    /// Adds a node to what is open, as a key or a value.
    fn add(&mut self, node: Rc<DocumentNode>) -> Result<(), ConfigError> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(nodes)) => nodes.push(node),
            Some(Content::Map {
                entries,
                known,
                merges,
                key,
            }) => match key.take() {
                None => {
                    let NodeKind::Scalar { text, is_plain } = &node.kind else {
                        return Err(ConfigError::syntax(node.at, "a key must be a text"));
                    };
                    *key = Some(Key {
                        name: text.clone(),
                        at: node.at,
                        is_merge: *is_plain && text == "<<",
                    });
                }
                Some(key) if key.is_merge => match &node.kind {
                    NodeKind::List(nodes) => merges.extend(nodes.iter().cloned()),
                    NodeKind::Map(_) | NodeKind::Scalar { .. } => merges.push(node),
                },
                Some(key) => {
                    if !known.insert(key.name.clone()) {
                        let why = "this key is here twice: remove one (Redisson takes the last)";
                        return Err(ConfigError::syntax(key.at, why));
                    }
                    entries.push(Entry {
                        key: key.name,
                        at: key.at,
                        value: node,
                    });
                }
            },
        }
        Ok(())
    }
}

fn position(line: usize, column: usize) -> Position {
    Position {
        line,
        column: column + 1,
    }
}

/// The class that a tag names. The types of YAML itself are no classes.
fn class(tag: &Tag) -> Option<String> {
    let is_plain = ["str", "int", "bool", "float", "null", "map", "seq", "set"]
        .iter()
        .any(|name| is_core(tag, name));
    let is_nothing = tag.suffix.is_empty() || tag.suffix == "!";
    (!is_plain && !is_nothing).then(|| tag.suffix.clone())
}

fn is_core(tag: &Tag, name: &str) -> bool {
    (tag.is_yaml_core_schema() && tag.suffix == name)
        || tag.suffix.strip_prefix("tag:yaml.org,2002:") == Some(name)
}

/// In bytes.
pub(crate) const LONGEST: usize = 1 << 20;
const START: Position = Position { line: 1, column: 1 };
const DEEPEST: usize = 64;
const MOST_MERGED: usize = 10_000;
