//! `${NAME}` and `${NAME:-default}`, as Redisson writes them.

use crate::error::{ConfigError, ConfigErrorKind};

/// Replaces the variables in one value.
///
/// Redisson replaces them in the raw text, before it is YAML. Here the value of a variable cannot change
/// the structure of the file, whatever characters it has. `$${` stands for `${`.
pub(crate) fn expand(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ConfigError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if let Some(before) = rest[..start].strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        expanded.push_str(&rest[..start]);
        rest = &rest[start + 2..];
        let end = rest.find('}').ok_or_else(malformed)?;
        let (name, default) = match rest[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&rest[..end], None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        // The `}` is that of a variable inside the default, and the rest would be a part of the value.
        let is_nested = default.is_some_and(|default| default.contains("${"));
        if name.is_empty() || !name.chars().all(is_name) || is_nested {
            return Err(malformed());
        }
        match (variable(name), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => {
                let why = format!(
                    "the variable {name} is not set: set it, or give a default as in \
                     ${{{name}:-value}}"
                );
                return Err(ConfigError::new(ConfigErrorKind::Variable, why));
            }
        }
        rest = &rest[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Whether the text is one variable and nothing else.
pub(crate) fn is_variable(text: &str) -> bool {
    let inner = text.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['{', '}']))
}

/// It shows no part of the value, which may be a password.
fn malformed() -> ConfigError {
    let why = "not a variable: write ${NAME} or ${NAME:-default}, and $${ for the characters ${";
    ConfigError::new(ConfigErrorKind::Variable, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, ConfigError> {
        let variable = |name: &str| match name {
            "HOST" => Some("redis-7".to_owned()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("a: #b ${HOST}".to_owned()),
            "app.port" => Some("7000".to_owned()),
            _ => None,
        };
        expand(text, &variable)
    }

    #[test]
    fn a_variable_has_its_value_or_its_default() {
        for (text, expected) in [
            ("plain", "plain"),
            ("redis://${HOST}:${app.port}", "redis://redis-7:7000"),
            ("${HOST:-other}", "redis-7"),
            ("${MISSING:-other}", "other"),
            ("${MISSING:-}", ""),
            ("${MISSING:-a:-b}", "a:-b"),
            ("${EMPTY:-other}", ""),
            ("<${ODD}>", "<a: #b ${HOST}>"),
            ("$${HOST} $$ $x }", "${HOST} $$ $x }"),
        ] {
            assert_eq!(expanded(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_variable_and_a_malformed_one_are_errors() {
        let missing = expanded("${REDIS_PASSWORD}").unwrap_err().to_string();
        assert!(missing.contains("REDIS_PASSWORD is not set"), "{missing}");
        for text in [
            "hunter2${",
            "${hunter-2}",
            "${}",
            "${:-x}",
            "a${hunter2",
            "${HOST:-${hunter2}}",
            "${MISSING:-${HOST:-hunter2}}",
        ] {
            let error = expanded(text).unwrap_err();
            assert_eq!(error.kind(), ConfigErrorKind::Variable);
            assert!(!error.to_string().contains("hunter"), "{error}");
        }
    }
}
