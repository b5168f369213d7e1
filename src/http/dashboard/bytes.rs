//! A body on a page: as text where it is text, else as a hex dump; only the beginning of a large one.

use std::fmt::Write as _;

use super::text::visible_lines;

/// Bytes of text on a page.
const MOST_TEXT: usize = 128 << 10;
/// Bytes of a dump on a page.
const MOST_DUMP: usize = 8 << 10;

/// What a page shows of a body.
pub(super) struct Shown {
    pub(super) text: String,
    /// Not text, but a dump.
    pub(super) is_dump: bool,
    /// Bytes that are not shown.
    pub(super) rest: usize,
}

pub(super) fn show(body: &[u8]) -> Shown {
    let head = &body[..body.len().min(MOST_TEXT)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // Cut within a character.
        Err(error) if head.len() < body.len() && error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text {
        Some(text) => Shown {
            rest: body.len() - text.len(),
            text: visible_lines(text),
            is_dump: false,
        },
        None => {
            let head = &body[..body.len().min(MOST_DUMP)];
            Shown {
                text: dump(head),
                is_dump: true,
                rest: body.len() - head.len(),
            }
        }
    }
}

fn dump(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 5);
    for (line, row) in bytes.chunks(16).enumerate() {
        // Writing to a text does not fail.
        let _ = write!(text, "{:06x} ", line * 16);
        for byte in row {
            let _ = write!(text, " {byte:02x}");
        }
        text.extend(std::iter::repeat_n(' ', (16 - row.len()) * 3 + 2));
        text.extend(row.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_the_rest_a_dump() {
        let shown = show("{\"a\":\"é\u{202e}\"}\r\n".as_bytes());
        assert_eq!(shown.text, "{\"a\":\"é\\u{202e}\"}\\r\n");
        assert!(!shown.is_dump && shown.rest == 0);
        let shown = show(b"<script>\xff\xfe\0");
        assert!(shown.is_dump);
        assert_eq!(
            shown.text,
            "000000  3c 73 63 72 69 70 74 3e ff fe 00                 <script>...\n"
        );
    }

    #[test]
    fn only_the_beginning_of_a_large_one() {
        let long = "é".repeat(MOST_TEXT);
        let shown = show(&long.as_bytes()[1..]);
        assert!(shown.is_dump, "it does not begin with a character");
        let shown = show(&[b"a", long.as_bytes()].concat());
        assert!(!shown.is_dump);
        assert_eq!(shown.rest, 1 + 2 * MOST_TEXT - shown.text.len());
    }
}
