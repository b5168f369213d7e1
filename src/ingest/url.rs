//! The parts of the public URL, found by text: it is signed as it is written, so it is never normalised.

use std::borrow::Cow;

/// Parts of an absolute URL.
pub(crate) struct Parts<'a> {
    pub(crate) scheme: &'a str,
    /// Host, and port where one is written.
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    /// Without the question mark; `None` where there is none.
    pub(crate) query: Option<&'a str>,
}

/// Splits a URL. One without a scheme is a path.
pub(crate) fn parts(url: &str) -> Parts<'_> {
    let url = url.split_once('#').map_or(url, |(before, _)| before);
    let (before, query) = match url.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (url, None),
    };
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let at = if scheme.is_empty() {
        0
    } else {
        rest.find('/').unwrap_or(rest.len())
    };
    Parts {
        scheme,
        host: &rest[..at],
        path: &rest[at..],
        query,
    }
}

/// The URL with its port written, where it is the default one.
pub(crate) fn with_port(url: &str) -> Cow<'_, [u8]> {
    let parts = parts(url);
    let port = match parts.scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return Cow::Borrowed(url.as_bytes()),
    };
    let bracket = parts.host.rfind(']').unwrap_or(0);
    if parts.host[bracket..].contains(':') {
        return Cow::Borrowed(url.as_bytes());
    }
    let end = parts.scheme.len() + 3 + parts.host.len();
    Cow::Owned(format!("{}{port}{}", &url[..end], &url[end..]).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let all = parts("https://a.example:8443/x/y?b=1?c#d");
        assert_eq!(
            (all.scheme, all.host, all.path, all.query),
            ("https", "a.example:8443", "/x/y", Some("b=1?c"))
        );
        let bare = parts("http://a");
        assert_eq!((bare.host, bare.path, bare.query), ("a", "", None));
        assert_eq!(parts("/x?y").path, "/x");
    }

    #[test]
    fn ports_are_written_once() {
        assert_eq!(&*with_port("https://a/x"), b"https://a:443/x");
        assert_eq!(&*with_port("http://[::1]/x"), b"http://[::1]:80/x");
        assert_eq!(&*with_port("https://a:1/x?y=:"), b"https://a:1/x?y=:");
    }
}
