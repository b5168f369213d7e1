//! Sends what waits in a spool until each operation has a final answer, or this run's patience ends.

use std::{error::Error as _, time::Duration};

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{
    Client, Method, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use tokio::time::sleep;

use super::spool::{Operation, Spool, SpoolError, State};
use crate::domain::RetryPolicy;

/// Bytes of an answer that are looked at, to say why it was a failure.
const EXCERPT: usize = 2_048;

/// Longest `Retry-After` that is honoured.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How to send.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long one try may take.
    pub timeout: Duration,
    /// Tries of one operation in one run, and the pauses between them.
    pub retry: RetryPolicy,
}

impl Default for Settings {
    /// 30 s a try; 15 tries, from 1 s up to a minute.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            retry: RetryPolicy {
                attempts: 15,
                base: Duration::from_secs(1),
                cap: Duration::from_secs(60),
            },
        }
    }
}

/// What a run has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub done: u64,
    pub failed: u64,
    /// Still waiting; a later run goes on with them.
    pub waiting: u64,
}

/// What happens, for whoever looks on.
#[derive(Debug)]
pub enum Progress<'a> {
    Done(&'a Operation),
    /// Final: another try cannot help.
    Failed {
        operation: &'a Operation,
        error: &'a str,
    },
    /// Tried again after this long.
    Again {
        operation: &'a Operation,
        error: &'a str,
        after: Duration,
    },
    /// Out of this run's tries; it stays in the spool.
    Left {
        operation: &'a Operation,
        error: &'a str,
    },
}

/// Sends what waits, oldest first, one at a time. `resolve` gives the value of a header that is a reference. When no server
/// answers for as long as the retries of one operation last, the run ends; an operation that is answered, but never with a final
/// word, is left for a later run, and the next ones have their turn.
///
/// # Errors
/// [`SpoolError::Busy`] while another process sends, or what the file says. Whatever was sent is written down or will be
/// sent again under its key.
pub async fn send(
    spool: &Spool,
    settings: Settings,
    resolve: &(dyn Fn(&str) -> Result<String, String> + Sync),
    mut look: impl FnMut(Progress<'_>),
) -> Result<Summary, SpoolError> {
    let _lock = spool.lock()?;
    let client = client(settings.timeout).map_err(|error| SpoolError::Input(error.to_string()))?;
    let mut summary = Summary::default();
    let mut after = 0;
    while let Some(operation) = spool.next_waiting(after)? {
        after = operation.id;
        match finish(spool, &client, settings, resolve, operation, &mut look).await? {
            End::Done => summary.done += 1,
            End::Failed => summary.failed += 1,
            End::Left => {}
            End::NobodyThere => break,
        }
    }
    summary.waiting = spool.waiting()?;
    Ok(summary)
}

enum End {
    Done,
    Failed,
    Left,
    NobodyThere,
}

/// Tries one operation until its end.
async fn finish(
    spool: &Spool,
    client: &Client,
    settings: Settings,
    resolve: &(dyn Fn(&str) -> Result<String, String> + Sync),
    operation: Operation,
    look: &mut impl FnMut(Progress<'_>),
) -> Result<End, SpoolError> {
    let early = Duration::try_from(operation.run_at.duration_since(Timestamp::now())).unwrap_or_default();
    sleep(early).await;
    let mut tries = 0;
    loop {
        tries += 1;
        let answer = attempt(client, resolve, &operation).await;
        let now = Timestamp::now();
        let (error, status, asked) = match answer {
            Answer::Done(status) => {
                spool.tried(operation.id, State::Done, now, Some(status), None)?;
                look(Progress::Done(&operation));
                return Ok(End::Done);
            }
            Answer::Failed { status, error } => {
                spool.tried(operation.id, State::Failed, now, status, Some(&error))?;
                look(Progress::Failed {
                    operation: &operation,
                    error: &error,
                });
                return Ok(End::Failed);
            }
            // Put right, it goes on.
            Answer::Unready(error) => {
                spool.tried(operation.id, State::Waiting, now, None, Some(&error))?;
                look(Progress::Left {
                    operation: &operation,
                    error: &error,
                });
                return Ok(End::Left);
            }
            Answer::Again { status, error, after } => (error, status, after),
        };
        let delay = settings.retry.delay(tries, rand::random());
        let pause = match (asked, delay) {
            (Some(asked), _) => asked.min(LONGEST_RETRY_AFTER),
            (None, Some(delay)) => delay,
            (None, None) => Duration::ZERO,
        };
        let run_at = now.checked_add(pause).unwrap_or(now);
        spool.tried(operation.id, State::Waiting, run_at, status, Some(&error))?;
        if delay.is_none() {
            look(Progress::Left {
                operation: &operation,
                error: &error,
            });
            return Ok(if status.is_some() { End::Left } else { End::NobodyThere });
        }
        look(Progress::Again {
            operation: &operation,
            error: &error,
            after: pause,
        });
        sleep(pause).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done(u16),
    /// A header of ours is not at hand; nothing was sent.
    Unready(String),
    Failed {
        status: Option<u16>,
        error: String,
    },
    Again {
        status: Option<u16>,
        error: String,
        after: Option<Duration>,
    },
}

async fn attempt(
    client: &Client,
    resolve: &(dyn Fn(&str) -> Result<String, String> + Sync),
    operation: &Operation,
) -> Answer {
    let failed = |error: String| Answer::Failed { status: None, error };
    let headers = match headers(operation, resolve) {
        Ok(headers) => headers,
        Err(error) => return Answer::Unready(error),
    };
    let Ok(method) = Method::from_bytes(operation.method.as_bytes()) else {
        return failed(format!("`{}` is not a method", operation.method));
    };
    let request = client
        .request(method, &operation.url)
        .headers(headers)
        .body(operation.body.clone());
    match request.send().await {
        Ok(response) => {
            let (status, headers) = (response.status(), response.headers().clone());
            let excerpt = excerpt(response).await;
            judge(status, &headers, &excerpt, Timestamp::now())
        }
        Err(error) if error.is_builder() => failed(text_of(&error)),
        Err(error) => Answer::Again {
            status: None,
            error: text_of(&error.without_url()),
            after: None,
        },
    }
}

fn headers(
    operation: &Operation,
    resolve: &(dyn Fn(&str) -> Result<String, String> + Sync),
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &operation.headers {
        let value = if value.starts_with("env:") || value.starts_with("file:") {
            resolve(value).map_err(|error| format!("the header {name}: {error}"))?
        } else {
            value.clone()
        };
        let wrong = || format!("the header {name} cannot be sent");
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
    }
    let key = HeaderValue::from_str(&operation.key).map_err(|_| "the key cannot be sent".to_owned())?;
    headers.insert("idempotency-key", key);
    Ok(headers)
}

fn judge(status: StatusCode, headers: &HeaderMap, excerpt: &str, now: Timestamp) -> Answer {
    if status.is_success() {
        return Answer::Done(status.as_u16());
    }
    let mut error = format!("the server answered {status}");
    if !excerpt.is_empty() {
        error.push_str(": ");
        error.push_str(excerpt);
    }
    let may_help = status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429);
    let status = Some(status.as_u16());
    if may_help {
        let after = retry_after(headers, now);
        Answer::Again { status, error, after }
    } else {
        Answer::Failed { status, error }
    }
}

/// The beginning of an answer on one line.
async fn excerpt(mut response: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    bytes.truncate(EXCERPT);
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
        .collect();
    words.join(" ")
}

fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(date.duration_since(now)).ok()
}

fn client(timeout: Duration) -> Result<Client, reqwest::Error> {
    let builder = || {
        Client::builder()
            .user_agent(concat!("Cerca/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(timeout)
    };
    // Minimal containers have no roots at all, and would fail for http:// URLs too.
    builder().build().or_else(|_| {
        let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        builder().tls_backend_preconfigured(tls).build()
    })
}

fn text_of(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_final_or_not() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let says = |status: u16, after: Option<&'static str>| {
            let headers = after.map(|value| (RETRY_AFTER, HeaderValue::from_static(value)));
            judge(
                StatusCode::from_u16(status).unwrap(),
                &headers.into_iter().collect(),
                "",
                now,
            )
        };
        for status in [200, 201, 202, 204] {
            assert_eq!(says(status, None), Answer::Done(status));
        }
        for status in [301, 307, 400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(says(status, None), Answer::Failed { status: Some(s), .. } if s == status));
        }
        for status in [408, 409, 425, 429, 500, 502, 503] {
            assert!(
                matches!(says(status, None), Answer::Again { after: None, .. }),
                "{status}"
            );
        }
        let asked = |text| match says(409, Some(text)) {
            Answer::Again { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Fri, 02 Jan 2026 03:04:15 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(asked("soon"), None);
    }
}
