//! A captured request as a text file: request line, headers, an empty line, the body as it was.

use anyhow::{Context as _, bail};

/// One request, borrowed from the file's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestFile<'a> {
    pub(super) method: &'a str,
    /// As written: a path with query, or a whole URL.
    pub(super) target: &'a str,
    pub(super) headers: Vec<(&'a str, &'a [u8])>,
    pub(super) body: &'a [u8],
}

/// Reads a file. Lines of the head may end in LF or CRLF. The body has the length that `Content-Length` says; without
/// one it ends before one final newline, which editors add.
///
/// # Errors
/// Says which part is not of this form.
pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<RequestFile<'_>> {
    let (head, body) = split_head(bytes);
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = std::str::from_utf8(lines.next().unwrap_or_default()).context("the request line is not UTF-8")?;
    let mut words = first.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        bail!("the first line is not a request line such as `POST /webhooks/stripe HTTP/1.1`");
    };
    let mut headers = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            bail!(
                "line {}: not a header such as `Content-Type: application/json`",
                number + 2
            );
        };
        let name = std::str::from_utf8(&line[..colon]).with_context(|| format!("line {}", number + 2))?;
        headers.push((name.trim(), line[colon + 1..].trim_ascii()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse::<usize>().ok());
    let body = match length {
        Some(length) if length <= body.len() => &body[..length],
        Some(length) => bail!(
            "Content-Length is {length}, but only {} bytes follow the head",
            body.len()
        ),
        None => body.strip_suffix(b"\n").unwrap_or(body),
    };
    Ok(RequestFile {
        method,
        target,
        headers,
        body,
    })
}

fn split_head(bytes: &[u8]) -> (&[u8], &[u8]) {
    let unix = bytes.windows(2).position(|pair| pair == b"\n\n").map(|at| (at, 2));
    let dos = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| (at, 4));
    match unix.into_iter().chain(dos).min() {
        Some((at, length)) => (&bytes[..at], &bytes[at + length..]),
        None => (bytes, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_taken_as_they_are() {
        let request = parse(b"POST /webhooks/a?x=1 HTTP/1.1\r\nA: b\r\nC:d \r\n\r\n{\n\n}\r\n").unwrap();
        assert_eq!((request.method, request.target), ("POST", "/webhooks/a?x=1"));
        assert_eq!(request.headers, [("A", b"b".as_slice()), ("C", b"d".as_slice())]);
        assert_eq!(request.body, b"{\n\n}\r");
        assert_eq!(parse(b"POST /\nContent-Length: 2\n\n{}\n\n").unwrap().body, b"{}");
        assert_eq!(parse(b"POST /\n\n{}\n").unwrap().body, b"{}");
        assert_eq!(parse(b"GET /").unwrap().body, b"");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("", "request line"),
            ("POST /\nnonsense\n\n", "line 2: not a header"),
            ("POST /\ncontent-length: 9\n\n{}", "only 2 bytes"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
