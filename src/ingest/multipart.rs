//! Fields of `multipart/form-data` bodies, which are in memory as a whole. Whatever is no such body has no fields.

use std::{convert::Infallible, future::ready};

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use multer::Multipart;

/// Most parts that are looked at.
const MOST_PARTS: usize = 256;

/// The first part of this name.
pub(crate) fn field(content_type: &[u8], body: &[u8], name: &str) -> Option<Vec<u8>> {
    let boundary = multer::parse_boundary(std::str::from_utf8(content_type).ok()?).ok()?;
    let whole = ready(Ok::<_, Infallible>(Bytes::copy_from_slice(body)));
    let mut parts = Multipart::new(stream::once(whole), boundary);
    for _ in 0..MOST_PARTS {
        // Nothing is waited for, because there is nothing more to come.
        let part = parts.next_field().now_or_never()?.ok()??;
        if part.name() == Some(name) {
            return part.bytes().now_or_never()?.ok().map(Vec::from);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=xx";
    const BODY: &str = "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n--x\r\n\
        --xx\r\nContent-Disposition: form-data; name=\"json\"\r\nContent-Type: application/json\r\n\r\n{\"a\":\"\r\n\"}\r\n\
        --xx\r\nContent-Disposition: form-data; name=\"json\"\r\n\r\nsecond\r\n--xx--\r\n";

    #[test]
    fn the_first_part_of_a_name_is_read() {
        let read = |content_type: &[u8], body: &str, name| field(content_type, body.as_bytes(), name);
        assert_eq!(read(TYPE, BODY, "json").unwrap(), b"{\"a\":\"\r\n\"}");
        assert_eq!(read(TYPE, BODY, "file").unwrap(), b"--x");
        assert_eq!(read(TYPE, BODY, "none"), None);
        assert_eq!(read(b"multipart/form-data", BODY, "json"), None);
        assert_eq!(read(b"text/plain; boundary=xx", BODY, "json"), None);
        assert_eq!(read(b"multipart/form-data; boundary=yy", BODY, "json"), None);
        let many = "--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n".repeat(MOST_PARTS);
        assert_eq!(read(TYPE, &format!("{many}{BODY}"), "json"), None);
    }

    proptest! {
        #[test]
        fn any_body_has_a_field_or_none(cut in 0..BODY.len(), at in 0..BODY.len(), byte in any::<u8>(), text in "[-x\r\n:;=\"a ]{0,60}") {
            let mut changed = BODY.as_bytes().to_vec();
            changed[at] = byte;
            for body in [&changed[..], &changed[..cut], text.as_bytes(), &[text.as_bytes(), &changed[cut..]].concat()] {
                let _ = field(TYPE, body, "json");
                let _ = field(body, BODY.as_bytes(), "json");
            }
        }
    }
}
