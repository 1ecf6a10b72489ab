//! One value, read as the type that its key needs.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::{DocumentNode, NodeKind, is_null};
use crate::duration::parse_duration;
use crate::error::{ConfigError, ConfigErrorKind, Position};
use crate::note::{Note, NoteKind};
use crate::variables::{expand, is_variable};

/// Looks a variable up.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The value of a key. Its errors name the key and the place, and never the value.
pub(crate) struct SettingValue<'a> {
    /// The key with its section.
    pub(crate) key: String,
    pub(crate) key_at: Position,
    pub(crate) node: &'a DocumentNode,
    pub(crate) variables: Variables<'a>,
}

impl<'a> SettingValue<'a> {
    /// An error at this value.
    pub(crate) fn error(&self, kind: ConfigErrorKind, why: impl Into<String>) -> ConfigError {
        let error = ConfigError::new(kind, why);
        error.at(self.node.at).of_key(&self.key)
    }

    pub(crate) fn wrong(&self, why: impl Into<String>) -> ConfigError {
        self.error(ConfigErrorKind::Value, why)
    }

    pub(crate) fn refused(&self, why: impl Into<String>) -> ConfigError {
        self.error(ConfigErrorKind::Refused, why)
    }

    /// It became this setting of the builder.
    pub(crate) fn mapped(&self, setting: impl Into<String>) -> Note {
        self.note(NoteKind::Mapped, setting)
    }

    /// lockdog does not need it, for this reason.
    pub(crate) fn ignored(&self, why: impl Into<String>) -> Note {
        self.note(NoteKind::Ignored, why)
    }

    /// lockdog behaves differently, in this way.
    pub(crate) fn differs(&self, how: impl Into<String>) -> Note {
        self.note(NoteKind::Differs, how)
    }

    fn note(&self, kind: NoteKind, text: impl Into<String>) -> Note {
        Note::new(self.key.clone(), self.key_at, kind, text)
    }

    /// The value of this key in the value, which is a map.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        let node = self.node.get(name)?;
        Some(Self {
            key: format!("{}.{name}", self.key),
            key_at: node.at,
            node,
            variables: self.variables,
        })
    }

    /// A text. An empty one counts as none, as Redisson treats an empty password.
    pub(crate) fn text(&self) -> Result<Option<String>, ConfigError> {
        self.scalar("a text")
    }

    /// A whole number.
    pub(crate) fn number(&self, bounds: RangeInclusive<u64>) -> Result<Option<u64>, ConfigError> {
        let Some(text) = self.scalar("a whole number")? else {
            return Ok(None);
        };
        let (least, most) = (bounds.start(), bounds.end());
        let wrong = || {
            let whole = "it must be a whole number, in decimal and without a leading zero";
            self.wrong(format!("{whole}, from {least} to {most}"))
        };
        // Java reads 010 as 8 and 1:00 as 60, which is hardly what a reader of the file expects.
        let digits = text.strip_prefix('+').unwrap_or(&text).replace('_', "");
        let is_decimal = digits == "0" || !digits.starts_with('0');
        let is_number = is_decimal && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = match digits.parse() {
            Ok(number) if is_number => number,
            _ => return Err(wrong()),
        };
        if bounds.contains(&number) {
            Ok(Some(number))
        } else {
            Err(wrong())
        }
    }

    /// A duration with its units, as in `250ms`, `30s` or `1h30m`.
    pub(crate) fn duration(&self) -> Result<Option<Duration>, ConfigError> {
        let Some(text) = self.scalar("a duration")? else {
            return Ok(None);
        };
        let duration = parse_duration(&text).map_err(|error| self.wrong(error.why()))?;
        Ok(Some(duration))
    }

    /// True or false, in the words of YAML 1.1, which Redisson reads.
    pub(crate) fn boolean(&self) -> Result<Option<bool>, ConfigError> {
        let Some(text) = self.scalar("true or false")? else {
            return Ok(None);
        };
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(Some(true)),
            "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(self.wrong("it must be true or false")),
        }
    }

    /// One of these words.
    pub(crate) fn choice(
        &self,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, ConfigError> {
        let wrong = || self.wrong(format!("it must be one of {}", words.join(", ")));
        let read = self.scalar("a word").map_err(|error| match error.kind() {
            ConfigErrorKind::Variable => error,
            _ => wrong(),
        });
        let Some(text) = read? else {
            return Ok(None);
        };
        let word = words.iter().find(|word| **word == text);
        word.map(|word| Some(*word)).ok_or_else(wrong)
    }

    /// A list of texts. A single text is a list, too, and so is a variable with commas.
    pub(crate) fn texts(&self) -> Result<Vec<String>, ConfigError> {
        let mut texts = Vec::new();
        match &self.node.kind {
            NodeKind::List(nodes) => {
                for node in nodes {
                    let item = SettingValue {
                        key: self.key.clone(),
                        key_at: self.key_at,
                        node,
                        variables: self.variables,
                    };
                    let Some(text) = item.scalar("a list of texts")? else {
                        continue;
                    };
                    // A variable that is a part of a text may be a password with a comma.
                    match &node.kind {
                        NodeKind::Scalar { text: raw, .. } if is_variable(raw) => {
                            texts.extend(split(&text));
                        }
                        _ => texts.push(text),
                    }
                }
            }
            NodeKind::Scalar { .. } => {
                if let Some(text) = self.scalar("a list of texts")? {
                    texts.extend(split(&text));
                }
            }
            NodeKind::Map(_) => return Err(self.wrong("it must be a list of texts")),
        }
        Ok(texts)
    }

    /// Whether the value names no class but this one of Redisson's, the default.
    pub(crate) fn is_class(&self, default: &str) -> bool {
        let named = self.node.class.clone().or_else(|| {
            // Redisson 3 writes the class into JSON this way.
            let class = self.field("class").or_else(|| self.field("@class"))?;
            class.text().ok().flatten()
        });
        // The package differs between the versions of Redisson. A user's own class may have the same name.
        named.is_some_and(|name| {
            name.starts_with("org.redisson.") && name.rsplit('.').next() == Some(default)
        })
    }

    /// The text with its variables replaced.
    fn scalar(&self, what: &str) -> Result<Option<String>, ConfigError> {
        let NodeKind::Scalar { text, is_plain } = &self.node.kind else {
            return Err(self.wrong(format!("it must be {what}")));
        };
        if self.node.class.is_some() {
            let why = format!("it must be {what}, without a tag such as !name");
            return Err(self.wrong(why));
        }
        let text = expand(text, self.variables)
            .map_err(|error| error.at(self.node.at).of_key(&self.key))?;
        let is_none = text.is_empty() || (*is_plain && is_null(&text));
        Ok((!is_none).then_some(text))
    }
}

/// The items of a list that is written in one text: `a, b`, `[a, b]` or `["a", "b"]`.
fn split(text: &str) -> impl Iterator<Item = String> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let items = inner.unwrap_or(text).split(',');
    let items = items.map(|item| item.trim().trim_matches(['"', '\'']));
    items.filter(|item| !item.is_empty()).map(str::to_owned)
}
