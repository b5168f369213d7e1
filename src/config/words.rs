//! What serde says, in the words of somebody who edits a file.

/// Keys whose values are kept out of messages.
const SECRET: [&str; 9] = [
    "secret",
    "secrets",
    "decryption_keys",
    "token",
    "database",
    "seal_key",
    "api_key",
    "jwt_key",
    "probe_authorization",
];

/// Names of types, by how serde ends its sentence.
const TYPES: &[(&str, &str)] = &[
    ("usize", "a whole number"),
    ("u64", "a whole number"),
    ("u32", "a whole number up to 4294967295"),
    ("u16", "a whole number up to 65535"),
    ("i64", "a whole number"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
];

/// The message without the names of types.
pub(super) fn plain(path: &str, message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let kind = found
        .strip_prefix("invalid type: ")
        .or_else(|| found.strip_prefix("invalid value: "));
    let Some(found) = kind else {
        return message.to_owned();
    };
    let expected = match TYPES.iter().find(|(name, _)| *name == expected) {
        Some((_, words)) => words,
        None if expected.starts_with("struct ") => "a table",
        None => expected,
    };
    let key = path.rsplit('.').next().unwrap_or_default();
    let key = key.split('[').next().unwrap_or_default();
    let found = match found.split_once(' ') {
        Some((_, _)) if SECRET.contains(&key) => "something else".to_owned(),
        _ => thing(found),
    };
    format!("expected {expected}, found {found}")
}

/// `` integer `5` `` as `the number 5`.
fn thing(found: &str) -> String {
    match found {
        "sequence" => return "a list".to_owned(),
        "map" => return "a table".to_owned(),
        _ => {}
    }
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    let value = value.trim_matches('`');
    match kind {
        "integer" => format!("the number {value}"),
        "floating" => format!("the number {}", value.trim_start_matches("point `")),
        "string" => format!("the text {value}"),
        "boolean" => value.to_owned(),
        _ => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_said_in_words() {
        for (path, message, expected) in [
            (
                "server.workers",
                "invalid type: string \"4\", expected usize",
                "expected a whole number, found the text \"4\"",
            ),
            (
                "server.workers",
                "invalid value: integer `-1`, expected usize",
                "expected a whole number, found the number -1",
            ),
            (
                "worker.concurrency",
                "invalid type: floating point `1.5`, expected usize",
                "expected a whole number, found the number 1.5",
            ),
            (
                "handler[0].events",
                "invalid type: string \"*\", expected a sequence",
                "expected a list, found the text \"*\"",
            ),
            (
                "handler[0].retry",
                "invalid type: boolean `true`, expected struct RetrySpec",
                "expected a table, found true",
            ),
            (
                "server",
                "invalid type: sequence, expected struct Server",
                "expected a table, found a list",
            ),
            (
                "handler[0].secret",
                "invalid type: integer `42`, expected a string",
                "expected a text in quotes, found something else",
            ),
            (
                "handler[0].kind",
                "unknown variant `smtp`, expected one of `http`",
                "unknown variant `smtp`, expected one of `http`",
            ),
        ] {
            assert_eq!(plain(path, message), expected);
        }
    }
}
