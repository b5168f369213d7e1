//! JSON read in place: one pass validates the whole document and notes where the wanted values lie.
//!
//! It works on bytes and keeps offsets, because the value of an event is its exact bytes: numbers of any size keep
//! their digits, and invalid UTF-8 or a lone surrogate in one string does not make the others unreadable (a parser
//! that yields `str` must refuse both). It never recurses into what is not wanted, so depth costs no stack.

mod brackets;
mod canonical;
mod pointers;
pub(crate) mod text;

use std::ops::Range;

use brackets::OpenBrackets;
use text::{hex4, unescape};

pub(crate) use canonical::canonical;
pub(crate) use pointers::{Wanted, parse_pointer};

/// Deepest nesting that is read. No sender comes near; a bomb does.
pub(crate) const MAX_DEPTH: usize = 1024;

/// Where and why the text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub(crate) struct JsonError {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

/// Where the wanted values lie, by slot.
#[derive(Debug)]
pub(crate) struct Found(Vec<Option<Range<usize>>>);

impl Found {
    /// Where a value lies.
    pub(crate) fn range(&self, slot: usize) -> Option<Range<usize>> {
        self.0.get(slot)?.clone()
    }

    /// The exact text of a value.
    pub(crate) fn slice<'a>(&self, text: &'a [u8], slot: usize) -> Option<&'a [u8]> {
        text.get(self.0.get(slot)?.clone()?)
    }
}

/// Reads a whole document. Where a key occurs twice, the last one counts, as it does for most parsers.
pub(crate) fn scan(text: &[u8], wanted: &Wanted) -> Result<Found, JsonError> {
    let mut scanner = Scanner::new(text);
    let mut found = vec![None; wanted.slots()];
    scanner.wanted(wanted, 0, 0, &mut found)?;
    scanner.space();
    if scanner.at < text.len() {
        return scanner.fail("text after the end of the document");
    }
    Ok(Found(found))
}

/// The exact texts of the elements of an array; `None` where the text is no array.
pub(crate) fn elements(text: &[u8]) -> Result<Option<Vec<Range<usize>>>, JsonError> {
    let mut scanner = Scanner::new(text);
    scanner.space();
    if scanner.peek() != Some(b'[') {
        return Ok(None);
    }
    let mut ranges = Vec::new();
    scanner.array(|scanner, _| {
        let start = scanner.at;
        scanner.skip(1)?;
        ranges.push(start..scanner.at);
        Ok(())
    })?;
    Ok(Some(ranges))
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8]) -> Self {
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { text, at }
    }

    /// Reads one value and notes what is wanted in it. Recurses along wanted pointers only.
    fn wanted(
        &mut self,
        wanted: &Wanted,
        node: usize,
        depth: usize,
        found: &mut [Option<Range<usize>>],
    ) -> Result<(), JsonError> {
        self.space();
        let start = self.at;
        let here = wanted.node(node);
        clear(wanted, node, found);
        match self.peek() {
            Some(b'{') if !here.children.is_empty() => {
                self.object(
                    |scanner, key| match here.children.iter().find(|(name, _)| **name == *key) {
                        Some((_, child)) => scanner.wanted(wanted, *child, depth + 1, found),
                        None => scanner.skip(depth + 1),
                    },
                )?
            }
            Some(b'[') if !here.children.is_empty() => {
                self.array(
                    |scanner, index| match here.children.iter().find(|(name, _)| is_index(name, index)) {
                        Some((_, child)) => scanner.wanted(wanted, *child, depth + 1, found),
                        None => scanner.skip(depth + 1),
                    },
                )?
            }
            _ => self.skip(depth)?,
        }
        if let Some(slot) = here.slot {
            found[slot] = Some(start..self.at);
        }
        Ok(())
    }

    /// Reads an object, calling `member` at each value.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &[u8]) -> Result<(), JsonError>) -> Result<(), JsonError> {
        self.raw_object(|scanner, key| match key {
            plain if !plain.contains(&b'\\') => member(scanner, plain),
            escaped => member(scanner, &unescape(escaped)),
        })
    }

    /// The same, with the key as it is written.
    fn raw_object(
        &mut self,
        mut member: impl FnMut(&mut Self, &[u8]) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            let text = self.text;
            let key = self.key()?;
            member(self, &text[key])?;
            self.space();
            if self.eat(b'}') {
                return Ok(());
            }
            self.expect(b',', "expected `,` or `}`")?;
            self.space();
        }
    }

    /// Reads an array, calling `element` at each value with its index.
    fn array(&mut self, mut element: impl FnMut(&mut Self, usize) -> Result<(), JsonError>) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.eat(b']') {
            return Ok(());
        }
        for index in 0.. {
            self.space();
            element(self, index)?;
            self.space();
            if self.eat(b']') {
                break;
            }
            self.expect(b',', "expected `,` or `]`")?;
        }
        Ok(())
    }

    /// Passes over one value of any depth, without recursion. `depth` is how deep it lies itself.
    fn skip(&mut self, depth: usize) -> Result<(), JsonError> {
        // Most values are strings, and need no brackets to be kept.
        if self.peek() == Some(b'"') {
            return self.string().map(drop);
        }
        let mut open = OpenBrackets::default();
        loop {
            self.space();
            match self.peek() {
                Some(b'"') => {
                    self.string()?;
                }
                Some(bracket @ (b'{' | b'[')) => {
                    let object = bracket == b'{';
                    self.at += 1;
                    self.space();
                    if !self.eat(if object { b'}' } else { b']' }) {
                        if depth + open.len >= MAX_DEPTH {
                            return self.fail("nesting too deep");
                        }
                        open.push(object);
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return self.fail("expected a value"),
            }
            loop {
                let Some(object) = open.last() else {
                    return Ok(());
                };
                self.space();
                if self.eat(b',') {
                    if object {
                        self.space();
                        self.key()?;
                    }
                    break;
                }
                let (close, what) = match object {
                    true => (b'}', "expected `,` or `}`"),
                    false => (b']', "expected `,` or `]`"),
                };
                self.expect(close, what)?;
                open.pop();
            }
        }
    }

    /// Reads `"key" :` and gives the range between the quotes.
    fn key(&mut self) -> Result<Range<usize>, JsonError> {
        if self.peek() != Some(b'"') {
            return self.fail("expected a key in quotes");
        }
        let key = self.string()?;
        self.space();
        self.expect(b':', "expected `:`")?;
        Ok(key)
    }

    /// Reads a string and gives the range between the quotes.
    fn string(&mut self) -> Result<Range<usize>, JsonError> {
        self.at += 1;
        let start = self.at;
        loop {
            self.plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at - 1);
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                        Some(b'u') if hex4(&self.text[self.at + 1..]).is_some() => self.at += 5,
                        _ => return self.fail("invalid escape"),
                    }
                }
                Some(0..0x20) => return self.fail("control character in a string"),
                Some(_) => self.at += 1,
                None => return self.fail("string without an end"),
            }
        }
    }

    /// Passes over bytes of a string that mean themselves, eight at a time.
    fn plain(&mut self) {
        while let Some(bytes) = self.text[self.at..].first_chunk() {
            let telling = telling(u64::from_le_bytes(*bytes));
            self.at += telling.trailing_zeros() as usize / 8;
            if telling != 0 {
                return;
            }
        }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        self.eat(b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        match self.at > start {
            true => Ok(()),
            false => self.fail("expected a digit"),
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), JsonError> {
        match self.eat(byte) {
            true => Ok(()),
            false => self.fail(what),
        }
    }

    fn fail<T>(&self, what: &'static str) -> Result<T, JsonError> {
        Err(JsonError { what, at: self.at })
    }
}

/// Sets the highest bit of the first byte, from the lowest on, that is a quote, a backslash or a control character (and
/// perhaps of later bytes); zero where there is none.
fn telling(bytes: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHEST: u64 = ONES << 7;
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes & HIGHEST;
    let is = |byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    is(b'"') | is(b'\\') | below(bytes, 0x20)
}

/// Forgets what an earlier key of the same name gave.
fn clear(wanted: &Wanted, node: usize, found: &mut [Option<Range<usize>>]) {
    let here = wanted.node(node);
    if let Some(slot) = here.slot {
        found[slot] = None;
    }
    for (_, child) in &here.children {
        clear(wanted, *child, found);
    }
}

/// Whether a token is the decimal form of an index.
fn is_index(token: &[u8], index: usize) -> bool {
    let mut left = index;
    let digits = token.iter().rev().all(|digit| {
        let same = usize::from(digit.wrapping_sub(b'0')) == left % 10;
        left /= 10;
        same
    });
    digits && left == 0 && (token == b"0" || token.first().is_some_and(|first| *first != b'0'))
}

#[cfg(test)]
mod tests;
