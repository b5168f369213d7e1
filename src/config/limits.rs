//! What single values may be. Each function says what was expected, or nothing.

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    str::FromStr as _,
    time::Duration,
};

use sqlx::{postgres::PgConnectOptions, sqlite::SqliteConnectOptions};

use super::{Environment, secret::Reference};
use crate::{
    domain::OUTBOX,
    handlers::{HandlerSpec, Kind, RetrySpec},
    units::format_duration,
};

/// The largest body that any provider may be given.
pub(super) const MAX_BODY: usize = 32 << 20;

/// More threads than the server can number.
const MAX_WORKERS: usize = 512;

/// Far more than any machine handles at once; a slip of the finger, not a wish.
const MAX_CONCURRENCY: usize = 10_000;

/// A shorter one would end between two renewals on a busy machine.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Beyond, one address has no ports left for them.
const MOST_CONNECTIONS: usize = 65_536;

pub(super) fn connections(number: usize) -> Result<(), String> {
    match number {
        1..=MOST_CONNECTIONS => Ok(()),
        _ => Err(format!("{number} is not between 1 and {MOST_CONNECTIONS}")),
    }
}

pub(super) fn workers(number: usize) -> Result<(), String> {
    if number <= MAX_WORKERS {
        return Ok(());
    }
    Err(format!(
        "{number} is not between 0 and {MAX_WORKERS}; 0 is one thread a core"
    ))
}

pub(super) fn concurrency(number: usize) -> Result<(), String> {
    match (1..=MAX_CONCURRENCY).contains(&number) {
        true => Ok(()),
        false => Err(format!("{number} is not between 1 and {MAX_CONCURRENCY}")),
    }
}

pub(super) fn lease(lease: Duration) -> Result<(), String> {
    match lease >= SHORTEST_LEASE {
        true => Ok(()),
        false => Err(format!(
            "{} is too short; expected at least {}",
            format_duration(lease),
            format_duration(SHORTEST_LEASE)
        )),
    }
}

/// A shorter pace would only keep the database busy.
const SHORTEST_POLL: Duration = Duration::from_millis(10);

pub(super) fn poll(poll: Duration) -> Result<(), String> {
    match poll >= SHORTEST_POLL {
        true => Ok(()),
        false => Err(format!(
            "{} is too short; expected at least {}",
            format_duration(poll),
            format_duration(SHORTEST_POLL)
        )),
    }
}

/// A statement that writes to the outbox for each event of the outbox never ends.
pub(super) fn writes_to_its_own_source(handler: &HandlerSpec) -> Option<String> {
    let statement = handler.statement.as_deref()?.to_ascii_lowercase();
    let writes = statement
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .any(|word| word == OUTBOX);
    let own = handler.events.iter().find(|pattern| {
        let sender = pattern.split_once(':').map_or(pattern.as_str(), |(sender, _)| sender);
        globset::Glob::new(sender).is_ok_and(|glob| glob.compile_matcher().is_match(OUTBOX))
    })?;
    (writes && handler.database.is_none()).then(|| {
        format!("writes to the outbox, and `{own}` also matches the events of the outbox: name the senders instead")
    })
}

/// Passwords of brokers in the file, where a reference would do: the keys, and what to say.
pub(super) fn passwords(handler: &HandlerSpec) -> Vec<(&'static str, String)> {
    let literal = |text: &str| Reference::from(text).is_literal();
    let url = handler.url.as_deref().filter(|url| literal(url));
    let mut found = Vec::new();
    // The URL of http is no reference.
    if handler.kind != Kind::Http && url.is_some_and(|url| super::redact_url(url) != url) {
        let message = "the password stands in the file; use env:NAME or file:PATH";
        found.push(("url", message.to_owned()));
    }
    for (name, value) in &handler.options {
        if name.contains("password") && literal(value) {
            let message = format!("\"{name}\" stands in the file; use env:NAME or file:PATH");
            found.push(("options", message));
        }
    }
    found
}

pub(super) fn retry(retry: &RetrySpec) -> Result<(), String> {
    match retry.base <= retry.cap {
        true => Ok(()),
        false => Err(format!(
            "{} is longer than the cap ({}); expected base to be at most cap",
            format_duration(retry.base),
            format_duration(retry.cap)
        )),
    }
}

/// The two listeners cannot share a port of one address.
pub(super) fn listeners(public: SocketAddr, admin: SocketAddr) -> Result<(), String> {
    let covers = |one: SocketAddr, other: SocketAddr| one.ip().is_unspecified() && one.is_ipv4() == other.is_ipv4();
    let same = public.ip() == admin.ip() || covers(public, admin) || covers(admin, public);
    if public.port() == 0 || public.port() != admin.port() || !same {
        return Ok(());
    }
    let free = SocketAddr::new(admin.ip(), public.port().checked_add(1).unwrap_or(8081));
    Err(format!(
        "{admin} is taken by [server] listen ({public}); expected another port, such as {free}"
    ))
}

/// The words of the parsers are not repeated: they can quote the URL, and with it the password.
pub(super) fn store_url(url: &str) -> Result<(), String> {
    let expected = "expected sqlite:PATH or postgres://user:password@host/database";
    if url.starts_with("sqlite:") {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|_| format!("this is not a URL of SQLite; {expected}, such as sqlite:cerca.db"))?;
        if url.contains(":memory:") || url.contains("mode=memory") || options.get_filename().as_os_str().is_empty() {
            return Err("a store in memory would keep no promise; expected a file, such as sqlite:cerca.db".to_owned());
        }
        return Ok(());
    }
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(expected.to_owned());
    }
    if let Err(error) = reqwest::Url::parse(url) {
        return Err(format!("this is not a URL ({error}); {expected}"));
    }
    match PgConnectOptions::from_str(url) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("PostgreSQL does not know what this URL asks for; {expected}")),
    }
}

/// What keeps a program from being started, for a warning: it may be put there later.
pub(super) fn program(command: &[String], folder: &Path, environment: &Environment) -> Option<String> {
    let program = command.first().filter(|program| !program.is_empty())?;
    if program.contains('/') {
        let path = folder.join(program.strip_prefix("./").unwrap_or(program));
        let problem = match path.metadata() {
            Err(error) => format!("cannot be read: {error}"),
            Ok(_) if is_executable(&path) => return None,
            Ok(_) => "is not executable; chmod +x makes it so".to_owned(),
        };
        return Some(format!("{} {problem}", path.display()));
    }
    let path = environment.get("PATH").unwrap_or_default();
    let mut folders = path.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if folders.any(|folder| is_executable(&folder.join(program))) {
        return None;
    }
    Some(format!(
        "there is no program `{program}` in PATH; one in the configuration's folder is written ./{program}"
    ))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
