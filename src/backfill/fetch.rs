//! Asks the sender's API: with the key, within limits, again where that can help.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{HeaderMap, HeaderName, HeaderValue, LINK, RETRY_AFTER},
};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use super::{BackfillError, Backfiller};
use crate::adapters::{Auth, Backfill};

/// Largest answer that is read.
const MOST_BYTES: usize = 32 << 20;
const CONNECT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(60);
/// Characters of an answer that are told.
const EXCERPT: usize = 200;

/// How an API that is busy or broken is asked again.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Tries of one request, the first included.
    pub tries: u32,
    /// Before the second try; doubled before each further one.
    pub base: Duration,
    /// The longest wait that the API may ask for; one that asks for more ends the run.
    pub longest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            tries: 6,
            base: Duration::from_secs(1),
            longest: Duration::from_secs(300),
        }
    }
}

/// What the API said.
pub(super) struct Answer {
    pub(super) url: Url,
    pub(super) body: Vec<u8>,
    /// The address of the next page, as the headers say it.
    pub(super) link: Option<String>,
}

pub(super) struct Fetcher<'a> {
    client: Client,
    of: &'a Backfiller,
    stop: &'a CancellationToken,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(of: &'a Backfiller, stop: &'a CancellationToken) -> Result<Self, BackfillError> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .user_agent(concat!("Cerca/", env!("CARGO_PKG_VERSION")))
                // The key is for one host.
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT)
                .timeout(WHOLE)
        };
        let client = builder().build().or_else(|_| {
            let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            let tls = rustls::ClientConfig::builder()
                .with_root_certificates(roots)
                .with_no_client_auth();
            builder().tls_backend_preconfigured(tls).build()
        });
        let client = client.map_err(|error| BackfillError::Api {
            host: of.provider.name.to_string(),
            problem: error.to_string(),
        })?;
        Ok(Self { client, of, stop })
    }

    /// Something that the API should not say.
    pub(super) fn wrong(&self, url: &Url, problem: impl Into<String>) -> BackfillError {
        BackfillError::Api {
            host: shown(url),
            problem: problem.into(),
        }
    }

    /// Asks until there is an answer of success.
    pub(super) async fn get(&self, list: &Backfill, url: &Url) -> Result<Answer, BackfillError> {
        let patience = self.of.patience;
        let headers = self.headers(list, url)?;
        let mut wait = patience.base;
        for attempt in 1.. {
            let request = self.client.get(url.clone()).headers(headers.clone()).send();
            let result = tokio::select! {
                () = self.stop.cancelled() => return Err(BackfillError::Stopped),
                result = request => result,
            };
            let (problem, after) = match result {
                Err(error) => (error.without_url().to_string(), None),
                Ok(response) => {
                    let status = response.status();
                    let after = retry_after(response.headers(), Timestamp::now());
                    let link = next_link(response.headers());
                    match read(response).await {
                        Ok(body) if status.is_success() => {
                            return Ok(Answer {
                                url: url.clone(),
                                body,
                                link,
                            });
                        }
                        Ok(body) => {
                            let problem = describe(status, &body);
                            let again = status.is_server_error()
                                || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
                                // GitHub answers so where a limit is spent.
                                || (status == StatusCode::FORBIDDEN && after.is_some());
                            if !again {
                                return Err(self.wrong(url, problem));
                            }
                            (problem, after)
                        }
                        Err(problem) => (problem, after),
                    }
                }
            };
            if attempt >= patience.tries {
                return Err(self.wrong(url, format!("{problem} ({attempt} tries)")));
            }
            let pause = after.unwrap_or(wait);
            if pause > patience.longest {
                let seconds = pause.as_secs();
                return Err(self.wrong(url, format!("{problem}; it asks to wait {seconds} s")));
            }
            tracing::debug!(problem, pause = ?pause, "the sender's API is asked again");
            tokio::select! {
                () = self.stop.cancelled() => return Err(BackfillError::Stopped),
                () = tokio::time::sleep(pause) => {}
            }
            wait = (wait * 2).min(patience.longest);
        }
        Err(self.wrong(url, "no try was allowed"))
    }

    fn headers(&self, list: &Backfill, url: &Url) -> Result<HeaderMap, BackfillError> {
        let mut headers = HeaderMap::new();
        let options = &self.of.provider.options;
        for (name, pieces) in &list.headers {
            let value = super::shape::fill_text(pieces, None, options)?;
            let name: HeaderName = name.parse().map_err(|_| self.wrong(url, "a header's name is none"))?;
            let value = HeaderValue::from_bytes(&value).map_err(|_| self.wrong(url, "a header's value is none"))?;
            headers.insert(name, value);
        }
        let key = self.of.api_key.expose_secret();
        let (name, value) = match &list.auth {
            Auth::Bearer => ("authorization", format!("Bearer {key}")),
            Auth::Basic => {
                use base64::{Engine as _, prelude::BASE64_STANDARD};
                (
                    "authorization",
                    format!("Basic {}", BASE64_STANDARD.encode(format!("{key}:"))),
                )
            }
            Auth::Header(name) => (name.as_str(), key.to_owned()),
        };
        let unfit = || self.wrong(url, "the API key cannot be sent in a header");
        let mut value = HeaderValue::from_str(&value).map_err(|_| unfit())?;
        value.set_sensitive(true);
        headers.insert(name.parse::<HeaderName>().map_err(|_| unfit())?, value);
        Ok(headers)
    }
}

/// Scheme, host and path: queries may hold what is nobody's business.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                if body.len() + chunk.len() > MOST_BYTES {
                    return Err(format!("the answer is larger than {} MiB", MOST_BYTES >> 20));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(None) => return Ok(body),
            Err(error) => return Err(format!("the answer broke off: {}", error.without_url())),
        }
    }
}

fn describe(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let plain = text.trim().chars().take(EXCERPT);
    let excerpt: String = plain.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => " (is `api_key` right, and may it list events?)",
        _ => "",
    };
    if excerpt.is_empty() {
        format!("answered {status}{hint}")
    } else {
        format!("answered {status}{hint}: {excerpt}")
    }
}

/// When to ask again: seconds, or a date of HTTP, or the time when GitHub's limit is full again.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(text) = text(RETRY_AFTER.as_str()) {
        if let Ok(seconds) = text.parse::<f64>() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        return Some(Duration::try_from(date.duration_since(now)).unwrap_or_default());
    }
    if text("x-ratelimit-remaining")? != "0" {
        return None;
    }
    let reset = Timestamp::from_second(text("x-ratelimit-reset")?.parse().ok()?).ok()?;
    Some(Duration::try_from(reset.duration_since(now)).unwrap_or_default())
}

/// The `rel="next"` of a `Link` header (RFC 8288).
fn next_link(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    links.flat_map(links_of).find_map(|(target, parameters)| {
        let is_next = parameters.split(';').any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            let words = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && words.split_ascii_whitespace().any(|w| w.eq_ignore_ascii_case("next"))
        });
        is_next.then(|| target.to_owned())
    })
}

/// Each target of a header with its parameters; a target may hold commas and semicolons.
fn links_of(mut text: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    while let Some((_, rest)) = text.split_once('<') {
        let Some((target, rest)) = rest.split_once('>') else {
            break;
        };
        let end = rest.find(",<").or_else(|| rest.find(", <")).unwrap_or(rest.len());
        links.push((target, &rest[..end]));
        text = &rest[end..];
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_next_page_is_told_from_others() {
        let link = |text: &str| next_link(&headers(&[("link", text)]));
        let both = r#"<https://a/x?page_info=p>; rel="previous", <https://a/x?a=1,2&page_info=n>; rel="next""#;
        assert_eq!(link(both).as_deref(), Some("https://a/x?a=1,2&page_info=n"));
        assert_eq!(link("<https://a/2>; rel=next").as_deref(), Some("https://a/2"));
        for none in ["", "<https://a/2>; rel=\"last\"", "<https://a/2", "next"] {
            assert_eq!(link(none), None, "{none}");
        }
    }

    #[test]
    fn a_wait_is_read_in_every_form() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let wait = |pairs: &[(&'static str, &str)]| retry_after(&headers(pairs), now);
        assert_eq!(wait(&[("retry-after", "2.0")]), Some(Duration::from_secs(2)));
        assert_eq!(
            wait(&[("retry-after", "Thu, 01 Jan 2026 00:00:09 GMT")]),
            Some(Duration::from_secs(9))
        );
        let spent = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225630")];
        assert_eq!(wait(&spent), Some(Duration::from_secs(30)));
        for none in ["-1", "nan", "soon"] {
            assert_eq!(wait(&[("retry-after", none)]), None, "{none}");
        }
        assert_eq!(wait(&[]), None);
    }
}
