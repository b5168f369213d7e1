//! Which URLs may be fetched or called, where a request names them.

/// Longest URL.
const LONGEST: usize = 2048;

/// Whether a URL is one of these hosts. A pattern is a host, in which `*` stands for one label, and maybe the beginning
/// of a path: `sns.*.amazonaws.com/SimpleNotificationService-`. Only https, no port, no user, no fragment, no path that
/// goes up, and no character that parsers disagree on.
pub(crate) fn is_pinned(url: &str, patterns: &[String]) -> bool {
    let Some(rest) = url.strip_prefix("https://") else {
        return false;
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/?&=%+,:;".contains(&byte);
    if url.len() > LONGEST || !rest.bytes().all(plain) || rest.contains("..") {
        return false;
    }
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    patterns.iter().any(|pattern| {
        let (wanted, prefix) = pattern.split_at(pattern.find('/').unwrap_or(pattern.len()));
        matches_host(host, wanted) && path.starts_with(prefix)
    })
}

/// The host in an https URL.
pub(crate) fn host_of(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.split(['/', '?']).next().unwrap_or_default()
}

fn matches_host(host: &str, pattern: &str) -> bool {
    let label = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let mut wanted = pattern.split('.');
    let mut found = host.split('.');
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some("*"), Some(found)) if label(found) => {}
            (Some(wanted), Some(found)) if label(found) && wanted.eq_ignore_ascii_case(found) => {}
            _ => return false,
        }
    }
}

/// Whether a pattern names a host narrowly enough: at least two labels at its end are written out.
///
/// # Errors
/// A sentence.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let host = pattern.split('/').next().unwrap_or_default();
    let written = host.rsplit('.').take_while(|label| !label.contains('*')).count();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte);
    let is_name = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().any(|b| b.is_ascii_alphabetic()));
    match written >= 2 && is_name && host.bytes().all(plain) {
        true => Ok(()),
        false => Err(format!(
            "expected a host such as `api.example.com` or `*.example.com`, maybe with a path, found `{pattern}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_named() {
        let pins = ["sns.*.amazonaws.com/Simple".to_owned(), "api.example.com".to_owned()];
        for good in [
            "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
            "https://api.example.com/certs/1?x=%20",
            "https://API.example.com",
        ] {
            assert!(is_pinned(good, &pins), "{good}");
        }
        for bad in [
            "http://api.example.com/",
            "https://api.example.com:8443/",
            "https://api.example.com@evil.example/",
            "https://evil.example/api.example.com",
            "https://api.example.com.evil.example/",
            "https://evilapi.example.com/",
            "https://api.example.com/../x",
            "https://api.example.com\\@evil.example/",
            "https://api.example.com#@evil.example/",
            "https://sns.a.b.amazonaws.com/Simple",
            "https://sns..amazonaws.com/Simple",
            "https://sns.us-east-1.amazonaws.com/other.pem",
            "https://127.0.0.1/",
            "https://api.example.com/\r\n",
        ] {
            assert!(!is_pinned(bad, &pins), "{bad}");
        }
        assert!(check("sns.*.amazonaws.com").is_ok());
        for bad in ["*", "*.com", "a.*", "localhost", "10.0.0.1", "a b.example.com"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
