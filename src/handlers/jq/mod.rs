//! Filters in the language of jq (<https://gedenkt.at/jaq/manual/>), run by jaq on threads of their own.
//!
//! A filter is configuration and trusted to mean well; the payload is not. jaq takes no measures against endless loops, deep
//! recursion and huge strings, so `guard` puts some in: a run ends after a time, a number of steps, or at a depth of the
//! stack, and what can leave the filter (environment, standard error, the exit of the process) is not there.
//!
//! Numbers keep their digits as long as a filter only moves them. Integers of any size are computed exactly; arithmetic
//! with a fraction or an exponent is that of doubles.

mod guard;
mod pool;
mod values;

use std::{cell::Cell, panic::AssertUnwindSafe, time::Duration};

use jaq_core::{
    Compiler, Ctx, Vars,
    compile::Undefined,
    load::{
        Arena, File, Lexer, Loader, Parser,
        lex::Token,
        parse::{Def, Term},
    },
};
use jaq_json::Val;
use tokio::time::Instant;

use self::guard::{Kind, Run, Stop};
use crate::json::{self, MAX_DEPTH, Wanted};

pub(super) use pool::{Pace, run_apart};

/// How long one run of a filter may take.
const TIME: Duration = Duration::from_secs(2);
/// The longest text that a filter may make.
pub(super) const MAX_OUTPUT: usize = 32 << 20;
/// Longer numbers cost more to read than they are worth: reading and writing takes the square of their length.
const LONGEST_NUMBER: usize = 1_000;
/// Characters of a filter's own error that are told.
const ERROR_CHARS: usize = 300;
/// The filter's name among the definitions.
const MAIN: &str = "filter_of_this_handler";

/// A filter, compiled. May be run from many threads.
pub(super) struct Jq {
    key: &'static str,
    filter: jaq_core::Filter<Kind>,
}

impl Jq {
    /// Compiles the filter of a key of the configuration. `variables` are the names, with `$`, of what [`Jq::run`] is given.
    ///
    /// # Errors
    /// The key, the place and what is wrong there.
    pub(super) fn compile(key: &'static str, code: &str, variables: &[&str]) -> Result<Self, String> {
        let problem = |text: String| format!("`{key}`: {text}");
        let term = parse(code).map_err(problem)?;
        let definitions = guard::definitions().chain([Def {
            name: MAIN,
            args: Vec::new(),
            body: guard::body(term),
        }]);
        let arena = Arena::default();
        let modules = Loader::new(definitions)
            .load(&arena, File { code: MAIN, path: () })
            .map_err(|_| problem("it cannot be loaded".into()))?;
        let filter = Compiler::default()
            .with_funs(guard::natives())
            .with_global_vars(variables.iter().copied())
            .compile(modules)
            .map_err(|errors| {
                let first = errors.into_iter().flat_map(|(_, errors)| errors).next();
                problem(first.map_or_else(
                    || "it cannot be compiled".into(),
                    |(name, kind)| undefined(code, name, &kind),
                ))
            })?;
        Ok(Self { key, filter })
    }

    /// The one value that the filter gives. For a thread that may be busy for a while, with room on its stack.
    ///
    /// # Errors
    /// Says which key failed, and why, without the payload.
    pub(super) fn run(&self, input: Val, variables: Vec<Val>) -> Result<Val, String> {
        let problem = |text: String| format!("`{}` failed: {text}", self.key);
        let stack = 0_u8;
        let run = Run {
            lut: &self.filter.lut,
            until: Instant::now() + TIME,
            steps: Cell::new(0),
            stack: guard::address(&stack),
        };
        let work = AssertUnwindSafe(|| {
            let context = Ctx::<Kind>::new(&run, Vars::new(variables));
            let mut values = self.filter.id.run((context, input));
            let (first, second) = (values.next(), values.next());
            match (first, second) {
                (None, _) => Err("it gives nothing, and one value is wanted".into()),
                (Some(_), Some(Ok(_))) => Err("it gives several values, and one is wanted".into()),
                (Some(Ok(value)), None) => Ok(value),
                (Some(Err(error)), _) | (_, Some(Err(error))) => Err(match error.get_err() {
                    Ok(error) => message(error),
                    Err(_) => "it breaks out of nothing".into(),
                }),
            }
        });
        match std::panic::catch_unwind(work) {
            Ok(result) => result.map_err(problem),
            Err(panic) => Err(problem(match panic.downcast_ref::<Stop>() {
                Some(stop) => stop.to_string(),
                None => "it panicked".into(),
            })),
        }
    }
}

/// Reads a payload as jq sees it.
///
/// # Errors
/// What is not JSON, or too deep or has too long a number.
pub(super) fn read(text: &[u8]) -> Result<Val, String> {
    json::scan(text, &Wanted::default()).map_err(|error| error.to_string())?;
    if let Some(at) = long_number(text) {
        return Err(format!("a number of more than {LONGEST_NUMBER} digits at byte {at}"));
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    jaq_json::read::parse_single(text).map_err(|error| error.to_string())
}

/// Writes what a filter made as JSON, compact, numbers with their digits.
///
/// # Errors
/// What JSON cannot say (not a number, bytes, keys that are no strings), and what is too large or too deep.
pub(super) fn write(value: &Val) -> Result<Vec<u8>, String> {
    let text = to_text(value).map_err(|problem| format!("it gives {problem}"))?;
    json::scan(&text, &Wanted::default()).map_err(|error| format!("it gives what is not JSON: {error}"))?;
    Ok(text)
}

/// A value as jq writes it.
///
/// # Errors
/// What is too large or too deep.
fn to_text(value: &Val) -> Result<Vec<u8>, String> {
    let too_large = || format!("more than {}", crate::units::format_size(MAX_OUTPUT));
    let mut nodes = MAX_OUTPUT;
    if !is_shallow(value, MAX_DEPTH, &mut nodes) {
        return Err(match nodes {
            0 => too_large(),
            _ => format!("more than {MAX_DEPTH} levels"),
        });
    }
    let mut text = Bounded(Vec::new());
    jaq_json::write::write(&mut text, &jaq_json::write::Pp::default(), 0, value).map_err(|_| too_large())?;
    Ok(text.0)
}

fn parse(code: &str) -> Result<Term<&str>, String> {
    let tokens = Lexer::new(code).lex().map_err(|errors| match errors.first() {
        Some((expected, rest)) => format!("{}: expected {}", place(code, rest), expected.as_str()),
        None => "it is not jq".into(),
    })?;
    Parser::new(&tokens).parse(|parser| parser.term()).map_err(|errors| {
        errors.into_iter().next().map_or_else(
            || "it is not jq".to_owned(),
            |(expected, found)| {
                let found = Token::opt_as_str(found, code);
                let seen = found.split(char::is_whitespace).next().unwrap_or_default();
                let seen = if seen.is_empty() { "the end" } else { seen };
                format!("{}: expected {}, found {seen}", place(code, found), expected.as_str())
            },
        )
    })
}

fn undefined(code: &str, name: &str, kind: &Undefined) -> String {
    let arity = match kind {
        Undefined::Filter(arity) => format!("/{arity}"),
        _ => String::new(),
    };
    format!("{}: there is no {} {name}{arity}", place(code, name), kind.as_str())
}

/// Where a part of the code begins, counted in characters.
fn place(code: &str, part: &str) -> String {
    let offset = part.as_ptr().addr().wrapping_sub(code.as_ptr().addr());
    let Some(before) = code.get(..offset) else {
        return "somewhere".into();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

fn message(error: jaq_core::Error<Val>) -> String {
    match error.into_val() {
        Val::TStr(text) => without_values(&String::from_utf8_lossy(&text)),
        _ => "it raises a value".into(),
    }
}

/// jaq's errors repeat values, and those are the payload's: what follows the first of them is left out.
fn without_values(error: &str) -> String {
    let end = error.find(['{', '[', '"']).unwrap_or(error.len());
    let mut text: String = error[..end].chars().take(ERROR_CHARS).collect();
    if text.len() < error.len() {
        text.push('…');
    }
    text
}

/// Where a number begins that is too long to be read.
fn long_number(text: &[u8]) -> Option<usize> {
    let (mut is_string, mut is_escaped, mut length) = (false, false, 0);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E' if !is_string => {
                length += 1;
                if length > LONGEST_NUMBER {
                    return Some(at + 1 - length);
                }
                continue;
            }
            _ => {}
        }
        length = 0;
    }
    None
}

/// Whether a value has so many levels at most, and each of its parts, counted as often as it is there, still has a node. A value
/// may have far more parts than it takes memory for.
fn is_shallow(value: &Val, levels: usize, nodes: &mut usize) -> bool {
    if *nodes == 0 {
        return false;
    }
    *nodes -= 1;
    match value {
        Val::Arr(_) | Val::Obj(_) if levels == 0 => false,
        Val::Arr(values) => values.iter().all(|value| is_shallow(value, levels - 1, nodes)),
        Val::Obj(members) => members.values().all(|value| is_shallow(value, levels - 1, nodes)),
        _ => true,
    }
}

struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
