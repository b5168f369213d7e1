//! Placeholders of samples: `{{uuid}}` and its like.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::OwnedRequest;
use crate::adapters::{Hash, hash};

/// Fills what a sample leaves open. The same name gives the same value throughout one request.
pub(crate) struct Filler<'a> {
    values: HashMap<String, String>,
    now: Timestamp,
    secret: &'a str,
    options: &'a BTreeMap<String, String>,
    /// What random values are made from, where they must be the same each time.
    seed: Option<&'a str>,
}

/// Filled in by signing, not before.
pub(crate) const SIGNATURE: &str = "{{signature}}";

/// What stands between these is sent in base64.
const BASE64_BEGIN: &str = "{{base64}}";
const BASE64_END: &str = "{{end}}";

impl<'a> Filler<'a> {
    pub(crate) fn new(now: Timestamp, secret: &'a str, options: &'a BTreeMap<String, String>) -> Self {
        Self {
            values: HashMap::new(),
            now,
            secret,
            options,
            seed: None,
        }
    }

    /// With values that follow from a seed in place of random ones.
    pub(crate) fn seeded(self, seed: Option<&'a str>) -> Self {
        Self { seed, ..self }
    }

    /// Fills URL, header values and body.
    pub(crate) fn request(&mut self, request: &OwnedRequest) -> OwnedRequest {
        let url = self.fill(request.url.as_bytes());
        OwnedRequest {
            method: request.method.clone(),
            url: String::from_utf8_lossy(&url).into_owned(),
            headers: request
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), self.fill(value)))
                .collect(),
            body: self.body(request),
        }
    }

    /// The body, with what is marked in base64, and percent-encoded where it is a form.
    fn body(&mut self, request: &OwnedRequest) -> Vec<u8> {
        let mut filled = self.fill(&request.body);
        let is_form = request.header("content-type").is_some_and(super::form::is_form);
        let find = |text: &[u8], mark: &str| text.windows(mark.len()).position(|part| part == mark.as_bytes());
        let (begin, end) = (BASE64_BEGIN, BASE64_END);
        while let Some(at) = find(&filled, begin)
            && let Some(length) = find(&filled[at + begin.len()..], end)
        {
            let text = at + begin.len()..at + begin.len() + length;
            let encoded = base64::engine::general_purpose::STANDARD.encode(&filled[text.clone()]);
            let encoded = match is_form {
                true => utf8_percent_encode(&encoded, NON_ALPHANUMERIC).to_string(),
                false => encoded,
            };
            filled.splice(at..text.end + end.len(), encoded.into_bytes());
        }
        filled
    }

    /// Fills one text. Names that are not known stay as they are.
    pub(crate) fn fill(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.windows(2).position(|pair| pair == b"{{") {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            let end = rest.windows(2).take(40).position(|pair| pair == b"}}");
            let name = end.and_then(|end| std::str::from_utf8(&rest[2..end]).ok());
            match (end, name.and_then(|name| self.value(name))) {
                (Some(end), Some(value)) => {
                    out.extend_from_slice(value.as_bytes());
                    rest = &rest[end + 2..];
                }
                _ => {
                    out.push(b'{');
                    rest = &rest[1..];
                }
            }
        }
        out.extend_from_slice(rest);
        out
    }

    /// Random bytes, or those that follow from the seed and this name.
    fn bytes(&self, name: &str) -> [u8; 16] {
        let Some(seed) = self.seed else {
            return rand::random();
        };
        let digest = hash(Hash::Sha256, format!("{seed}/{name}").as_bytes());
        std::array::from_fn(|at| digest.bytes()[at])
    }

    fn value(&mut self, name: &str) -> Option<String> {
        if let Some(value) = self.values.get(name) {
            return Some(value.clone());
        }
        let value = match name.split(':').next()? {
            "uuid" => uuid(self.bytes(name)),
            "hex24" => hex::encode(&self.bytes(name)[..12]),
            "digits10" => {
                let number = self.bytes(name)[..8]
                    .iter()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte));
                (1_000_000_000 + number % 9_000_000_000).to_string()
            }
            "unix" => self.now.as_second().to_string(),
            "unix_ms" => self.now.as_millisecond().to_string(),
            "rfc3339" => self.now.to_string(),
            "config" => self.options.get(name.strip_prefix("config:")?)?.clone(),
            "secret" => self.secret.to_owned(),
            "secret_id" => self.secret.split(':').next()?.to_owned(),
            _ => return None,
        };
        self.values.insert(name.to_owned(), value.clone());
        Some(value)
    }
}

/// A UUID (version 4) of these bytes.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_sent_in_base64() {
        let now = Timestamp::from_second(5).unwrap();
        let options = BTreeMap::new();
        let sent = |content_type: &str| {
            let text = format!(
                "POST /p\nContent-Type: {content_type}\n\na={{{{base64}}}}<{{{{unix}}}}>>>{{{{end}}}}&b={{{{end}}}}\n"
            );
            let sample = OwnedRequest::parse_sample(text.as_bytes(), "").unwrap();
            String::from_utf8(Filler::new(now, "s", &options).request(&sample).body).unwrap()
        };
        assert_eq!(sent("text/plain"), "a=PDU+Pj4=&b={{end}}");
        assert_eq!(sent("application/x-www-form-urlencoded"), "a=PDU%2BPj4%3D&b={{end}}");
    }

    #[test]
    fn a_name_has_one_value_and_the_unknown_stays() {
        let now = Timestamp::from_second(5).unwrap();
        let options = BTreeMap::from([("account".to_owned(), "7".to_owned())]);
        let mut filler = Filler::new(now, "s", &options);
        let text = filler.fill(
            b"{{uuid}}{{uuid}}{{uuid:2}} {{unix}} {{secret}} {{config:account}} {{nope}} {{{unix}}} {{signature}} {{",
        );
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text[..36], text[36..72]);
        assert_ne!(text[..36], text[72..108]);
        assert_eq!(&text[108..], " 5 s 7 {{nope}} {5} {{signature}} {{");
    }
}
