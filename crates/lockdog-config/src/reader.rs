//! Reads a configuration.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use lockdog::ClientBuilder;

use crate::document::{self, DocumentNode};
use crate::error::{ConfigError, ConfigErrorKind, Position};
use crate::note::{Note, NoteKind};
use crate::settings::KeyMapper;
use crate::{own, redisson};

/// What a file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The settings. Set what the program decides itself, then call `build`.
    pub builder: ClientBuilder,
    /// How each key was handled, in the order of the file.
    pub notes: Vec<Note>,
    /// The format of the file.
    pub format: Format,
}

/// The format of a file. Its keys determine it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Format {
    /// Redisson's, with a section of servers such as `singleServerConfig`.
    Redisson,
    /// lockdog's own, with `url`, `sentinel` or `cluster`.
    Lockdog,
}

/// Reads configurations, with variables and a name mapper that the program chooses.
///
/// # Examples
///
/// ```
/// use lockdog_config::Reader;
///
/// let text = "
/// singleServerConfig:
///   address: redis://127.0.0.1:${REDIS_PORT:-6379}
/// nameMapper: !<com.example.BillingNames> {}
/// ";
/// let config = Reader::new()
///     .variables(|name| (name == "REDIS_PORT").then(|| "7000".to_owned()))
///     .name_mapper(|name| format!("billing:{name}")) // what com.example.BillingNames does
///     .parse(text)?;
/// for note in &config.notes {
///     println!("{note}");
/// }
/// # Ok::<(), lockdog_config::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a reader does nothing itself, use `.read(path)`"]
pub struct Reader {
    variables: VariableSource,
    name_mapper: Option<KeyMapper>,
    ignored: HashSet<String>,
}

/// Looks a variable up.
type VariableSource = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Default for Reader {
    fn default() -> Self {
        Self {
            variables: Arc::new(|name| std::env::var(name).ok()),
            name_mapper: None,
            ignored: HashSet::new(),
        }
    }
}

impl Reader {
    /// Takes variables from the environment of the process, and maps no names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the values of `${NAME}` come from.
    ///
    /// Defaults to the environment. Redisson asks Java's system properties first.
    pub fn variables<F>(mut self, variable: F) -> Self
    where
        F: Fn(&str) -> Option<String> + Send + Sync + 'static,
    {
        self.variables = Arc::new(variable);
        self
    }

    /// The mapper of the client's lock names
    /// ([`ClientBuilder::name_mapper`](lockdog::ClientBuilder::name_mapper)). A file with a `nameMapper`
    /// is refused without it, because the locks would have other keys than Java's.
    ///
    /// Defaults to none.
    pub fn name_mapper<F>(mut self, mapper: F) -> Self
    where
        F: Fn(&str) -> String + Send + Sync + 'static,
    {
        self.name_mapper = Some(Arc::new(mapper));
        self
    }

    /// A key that is ignored if this crate does not know it, for example one of a newer Redisson. Without
    /// it an unknown key is an error.
    ///
    /// Defaults to none. Call it once for each key.
    pub fn ignore_key(mut self, key: impl Into<String>) -> Self {
        self.ignored.insert(key.into());
        self
    }

    /// Reads this file. It logs how each key was handled.
    ///
    /// # Errors
    ///
    /// As for [`from_file`](crate::from_file).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        // One byte more than a configuration may have: the path may lead to a device without an end.
        let most = document::LONGEST as u64 + 1;
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        read.map_err(|error| {
            let why = format!("the file cannot be read: {error}");
            ConfigError::new(ConfigErrorKind::Read, why).of_file(path)
        })?;
        if bytes.len() > document::LONGEST {
            return Err(document::too_long().of_file(path));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            let start = before.iter().rposition(|byte| *byte == b'\n');
            let column = String::from_utf8_lossy(&before[start.map_or(0, |at| at + 1)..]);
            let column = column.chars().count() + 1;
            let why = "the file is not UTF-8 here";
            ConfigError::syntax(Position { line, column }, why).of_file(path)
        })?;
        self.parse(text).map_err(|error| error.of_file(path))
    }

    /// Reads this text, which is YAML or JSON. It logs how each key was handled.
    ///
    /// # Errors
    ///
    /// As for [`from_file`](crate::from_file).
    pub fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        let start = Position { line: 1, column: 1 };
        let root = document::load(text)?;
        let root = root.ok_or_else(|| ConfigError::syntax(start, "the configuration is empty"))?;
        let config = self.configure(&root)?;
        config.notes.iter().for_each(log);
        Ok(config)
    }

    fn configure(&self, root: &DocumentNode) -> Result<Config, ConfigError> {
        let variables = &*self.variables;
        let is_own = own::is_its_own(root) && !redisson::is_its_own(root);
        let (mut builder, notes, format) = if is_own {
            let (builder, notes) = own::read(root, &variables)?;
            (builder, notes, Format::Lockdog)
        } else {
            let has_mapper = self.name_mapper.is_some();
            let (settings, notes) = redisson::read(root, &variables, &self.ignored, has_mapper)?;
            (settings.builder(), notes, Format::Redisson)
        };
        if let Some(mapper) = self.name_mapper.clone() {
            builder = builder.name_mapper(move |name| mapper(name));
        }
        Ok(Config {
            builder,
            notes,
            format,
        })
    }
}

fn log(note: &Note) {
    let Note {
        key,
        line,
        kind,
        text,
        ..
    } = note;
    match kind {
        NoteKind::Irrelevant => {}
        NoteKind::Mapped => {
            tracing::debug!(target: "lockdog::config", key, line, text, "a key of the configuration is mapped");
        }
        NoteKind::Ignored => {
            tracing::info!(target: "lockdog::config", key, line, text, "a key of the configuration is ignored");
        }
        NoteKind::Differs => {
            tracing::warn!(target: "lockdog::config", key, line, text, "lockdog behaves differently from the configuration");
        }
    }
}
