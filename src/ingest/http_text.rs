//! Requests as text: samples of adapters, and files that a person saved.

use crate::domain::{HeaderList, RawRequest};

/// A request that owns what it holds. [`RawRequest`] borrows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRequest {
    pub method: String,
    /// The public URL, absolute.
    pub url: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

/// A text that is no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct HttpTextError {
    /// From 1.
    pub line: usize,
    pub message: &'static str,
}

impl OwnedRequest {
    /// Reads request line, headers, an empty line and the body, to the last byte. Lines of the head end in LF or
    /// CRLF. Where there is a `Content-Length` that the body exceeds, the rest (a newline that an editor added) is
    /// not taken. A target that is a path is put after `base_url`, which has no trailing slash.
    ///
    /// # Errors
    /// The line that is none of these.
    pub fn parse(text: &[u8], base_url: &str) -> Result<Self, HttpTextError> {
        let mut request = Self::read(text, base_url)?;
        let length = request.header("content-length");
        let length = length.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
        if let Some(length) = length {
            request.body.truncate(length);
        }
        Ok(request)
    }

    /// Reads a sample of an adapter: as [`OwnedRequest::parse`], but the body ends before one final newline.
    ///
    /// # Errors
    /// The line that is none of these.
    pub fn parse_sample(text: &[u8], base_url: &str) -> Result<Self, HttpTextError> {
        let mut request = Self::read(text, base_url)?;
        if request.body.last() == Some(&b'\n') {
            request.body.pop();
            if request.body.last() == Some(&b'\r') {
                request.body.pop();
            }
        }
        Ok(request)
    }

    fn read(text: &[u8], base_url: &str) -> Result<Self, HttpTextError> {
        let fail = |line, message| Err(HttpTextError { line, message });
        let (first, mut rest) = line(text);
        let Some((method, target)) = request_line(first) else {
            return fail(
                1,
                "expected a request line such as `POST /webhooks/stripe HTTP/1.1`",
            );
        };
        let mut headers = Vec::new();
        for number in 2.. {
            if rest.is_empty() {
                break;
            }
            let (header, after) = line(rest);
            rest = after;
            if header.is_empty() {
                break;
            }
            let colon = header.iter().position(|byte| *byte == b':');
            let name = colon.and_then(|at| std::str::from_utf8(&header[..at]).ok());
            let (Some(at), Some(name)) = (colon, name.filter(|name| is_token(name))) else {
                return fail(
                    number,
                    "expected a header such as `Content-Type: application/json`, or an empty line",
                );
            };
            headers.push((name.to_owned(), header[at + 1..].trim_ascii().to_vec()));
        }
        let url = match target.contains("://") {
            true => target.to_owned(),
            false => format!("{base_url}{target}"),
        };
        Ok(Self {
            method: method.to_owned(),
            url,
            headers,
            body: rest.to_vec(),
        })
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }

    /// Replaces the headers of this name by one.
    pub fn set_header(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
    }

    /// The path and query, to be put after another host.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        let parts = super::url::parts(&self.url);
        let start = match parts.scheme.is_empty() {
            true => 0,
            false => parts.scheme.len() + 3 + parts.host.len(),
        };
        &self.url[start..]
    }

    /// The headers, borrowed, for [`OwnedRequest::raw`].
    #[must_use]
    pub fn header_list(&self) -> HeaderList<'_> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect()
    }

    /// The request as `ingest` takes it, with its [`OwnedRequest::header_list`].
    #[must_use]
    pub fn raw<'a>(&'a self, headers: &'a HeaderList<'a>) -> RawRequest<'a> {
        RawRequest {
            method: &self.method,
            url: &self.url,
            headers,
            body: &self.body,
        }
    }
}

fn request_line(line: &[u8]) -> Option<(&str, &str)> {
    let (method, rest) = std::str::from_utf8(line).ok()?.trim_end().split_once(' ')?;
    let target = rest
        .rsplit_once(" HTTP/")
        .map_or(rest, |(target, _)| target)
        .trim();
    let is_target = target.starts_with('/') || target.contains("://");
    (is_target && is_token(method)).then_some((method, target))
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// One line without its end, and what follows.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[text.len()..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_in_either_newline_and_bodies_are_exact() {
        for text in [
            "POST /p?a=1 HTTP/1.1\r\nA: 1\r\nB:2\r\n\r\nx\r\n\n",
            "POST /p?a=1\nA: 1\nB:2\n\nx\r\n\n",
        ] {
            let request = OwnedRequest::parse(text.as_bytes(), "https://h").unwrap();
            assert_eq!(
                (request.url.as_str(), request.body.as_slice()),
                ("https://h/p?a=1", &b"x\r\n\n"[..])
            );
            assert_eq!(
                (request.header("a"), request.path_and_query()),
                (Some(&b"1"[..]), "/p?a=1")
            );
            assert_eq!(
                OwnedRequest::parse_sample(text.as_bytes(), "")
                    .unwrap()
                    .body,
                b"x\r\n"
            );
        }
        let text = b"POST http://a/b HTTP/1.1\ncontent-length: 2\n\nxy\n";
        assert_eq!(OwnedRequest::parse(text, "https://h").unwrap().body, b"xy");
    }

    #[test]
    fn mistakes_name_the_line() {
        let line = |text: &str| OwnedRequest::parse(text.as_bytes(), "").unwrap_err().line;
        assert_eq!(line(""), 1);
        assert_eq!(line("{\"a\":1}"), 1);
        assert_eq!(line("POST / HTTP/1.1\nA: 1\nnonsense\n\n"), 3);
        assert_eq!(line("POST / HTTP/1.1\n\u{e9}: 1\n\n"), 2);
    }
}
