//! The request as it arrived: borrowed, never copied, never re-serialised.

/// What an adapter may look at. `body` is the bytes received, before any decoding.
#[derive(Debug, Clone, Copy)]
pub struct RawRequest<'a> {
    pub method: &'a str,
    /// The public URL that the sender called: scheme, host, path and query. Built from `public_url`,
    /// never from the `Host` header, because several schemes sign it.
    pub url: &'a str,
    pub headers: &'a HeaderList<'a>,
    pub body: &'a [u8],
}

/// Headers in the order received; names compare without case, values are bytes.
#[derive(Debug, Clone, Default)]
pub struct HeaderList<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> HeaderList<'a> {
    #[must_use]
    pub fn new(pairs: Vec<(&'a str, &'a [u8])>) -> Self {
        Self(pairs)
    }

    /// The first header of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// All headers of this name, in order.
    pub fn get_all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a [u8]> + 's {
        self.iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + '_ {
        self.0.iter().copied()
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for HeaderList<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}
