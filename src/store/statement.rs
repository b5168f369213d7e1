//! What a sql handler's statement may not be. The engines check that it is a single one.

use std::time::Duration;

use crate::units::format_duration;

/// First words of statements that end or change the transaction, or reach past it.
const CONTROL: [&str; 21] = [
    "abort",
    "attach",
    "begin",
    "checkpoint",
    "close",
    "commit",
    "declare",
    "deallocate",
    "detach",
    "discard",
    "end",
    "listen",
    "pragma",
    "prepare",
    "release",
    "reset",
    "rollback",
    "savepoint",
    "set",
    "start",
    "vacuum",
];

/// Refuses control of the transaction and of the session.
pub(super) fn refuse_control(statement: &str) -> Result<(), &'static str> {
    // PostgreSQL's comments nest and SQLite's do not; the text must be harmless read in either way.
    for nested in [true, false] {
        let text = skip_comments(statement, nested);
        if text.is_empty() {
            return Err("the handler's statement is empty");
        }
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let word = text[..end].to_ascii_lowercase();
        if CONTROL.contains(&word.as_str()) {
            return Err("the handler's statement may not control the transaction or the session");
        }
    }
    Ok(())
}

/// What is wrong with the number of parameters, if anything is.
pub(super) fn wrong_count(wants: usize, has: usize) -> Option<String> {
    let plural = if wants == 1 { "" } else { "s" };
    (wants != has).then(|| format!("the statement has {wants} parameter{plural} and the handler gives {has}"))
}

/// The failure of a statement that ran out of time.
pub(super) fn took_longer(limit: Duration) -> String {
    format!("the statement took longer than {}", format_duration(limit))
}

/// What follows comments, white space and semicolons.
fn skip_comments(mut sql: &str, nested: bool) -> &str {
    loop {
        sql = sql.trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == '\u{feff}');
        if let Some(rest) = sql.strip_prefix("--") {
            sql = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(rest) = sql.strip_prefix("/*") {
            sql = after_comment(rest, nested);
        } else {
            return sql;
        }
    }
}

fn after_comment(mut sql: &str, nested: bool) -> &str {
    let mut depth = 1;
    while depth > 0 {
        match (sql.find("/*"), sql.find("*/")) {
            (Some(open), Some(close)) if nested && open < close => {
                depth += 1;
                sql = &sql[open + 2..];
            }
            (_, Some(close)) => {
                depth -= 1;
                sql = &sql[close + 2..];
            }
            _ => return "",
        }
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_refused_behind_comments_too() {
        for bad in [
            "COMMIT",
            " ; rollback",
            "-- x\n/* /* y */ */ Begin",
            "pragma x",
            "/* /* */ commit",
            "end",
            "",
            "SET x = 1",
        ] {
            assert!(refuse_control(bad).is_err(), "{bad}");
        }
        for good in [
            "insert into t values ($1)",
            "with x as (select 1) select 1",
            "select 'commit'",
        ] {
            assert!(refuse_control(good).is_ok(), "{good}");
        }
    }
}
