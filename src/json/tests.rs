use std::borrow::Cow;

use proptest::prelude::*;

use super::{text::value, *};

fn find(text: &[u8], pointer: &str) -> Result<Option<Vec<u8>>, JsonError> {
    let wanted = Wanted::only(&parse_pointer(pointer).unwrap());
    let found = scan(text, &wanted)?;
    Ok(found.slice(text, 0).and_then(value).map(Cow::into_owned))
}

fn text(text: &str, pointer: &str) -> Option<String> {
    find(text.as_bytes(), pointer)
        .unwrap()
        .map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn values_keep_their_exact_text() {
    let doc =
        r#" {"n": 12345678901234567890.10, "o": {"a" : [1, 2]}, "s": "a\n\u00e9\ud83d\ude00", "z": null, "t": true} "#;
    assert_eq!(text(doc, "/n").unwrap(), "12345678901234567890.10");
    assert_eq!(text(doc, "/o").unwrap(), r#"{"a" : [1, 2]}"#);
    assert_eq!(text(doc, "/o/a/1").unwrap(), "2");
    assert_eq!(text(doc, "/s").unwrap(), "a\né😀");
    assert_eq!(text(doc, "/t").unwrap(), "true");
    assert_eq!(text(doc, "/z"), None);
    assert_eq!(text(doc, "/o/b"), None);
    assert_eq!(text(doc, "/n/x"), None);
}

#[test]
fn the_last_of_equal_keys_counts() {
    assert_eq!(text(r#"{"a":1,"a":2}"#, "/a").unwrap(), "2");
    assert_eq!(text(r#"{"a":{"b":1},"a":{}}"#, "/a/b"), None);
    assert_eq!(text(r#"{"\u0061":1}"#, "/a").unwrap(), "1");
}

#[test]
fn broken_text_elsewhere_does_not_matter() {
    let doc = b"{\"bad\":\"\xff\xfe\",\"lone\":\"\\ud800\",\"\xff\":1,\"id\":\"x\"}";
    assert_eq!(find(doc, "/id").unwrap().unwrap(), b"x");
    assert_eq!(find(doc, "/bad").unwrap().unwrap(), b"\xff\xfe");
    assert_eq!(find(doc, "/lone").unwrap().unwrap(), b"\\ud800");
}

#[test]
fn depth_is_an_error_and_not_a_crash() {
    let deep = |n: usize| format!("{{\"id\":1,\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
    assert!(find(deep(1000).as_bytes(), "/id").is_ok());
    assert_eq!(
        find(deep(100_000).as_bytes(), "/id").unwrap_err().what,
        "nesting too deep"
    );
    assert!(find("[".repeat(100_000).as_bytes(), "/id").is_err());
    assert!(find("{\"a\":".repeat(100_000).as_bytes(), "/a/a/a").is_err());
}

#[test]
fn elements_are_exact() {
    let array = b" [ {\"a\": 1} , 2,[] ]";
    let ranges = elements(array).unwrap().unwrap();
    let texts: Vec<_> = ranges.iter().map(|r| &array[r.clone()]).collect();
    assert_eq!(texts, [&b"{\"a\": 1}"[..], b"2", b"[]"]);
    assert_eq!(elements(b"{}").unwrap(), None);
    assert_eq!(elements(b"[]").unwrap(), Some(vec![]));
}

#[test]
fn it_agrees_with_another_parser_on_what_is_json() {
    for doc in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "01",
        "-",
        "-0",
        "1.",
        ".5",
        "1e",
        "1e+5",
        "1E-5",
        "nul",
        "nulll",
        "true false",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12\"",
        "\"\t\"",
        "[1 2]",
        "{\"a\" 1}",
        "[[]]",
        "{a:1}",
        "[1]]",
        "\"a",
        "\"\\",
        "\"\\u",
        "+1",
        "NaN",
        "[]",
        "{}",
        "0",
        "\"\"",
    ] {
        assert_eq!(is_json(doc.as_bytes()), known(doc.as_bytes()), "{doc:?}");
    }
}

fn is_json(text: &[u8]) -> bool {
    scan(text, &Wanted::default()).is_ok()
}

fn known(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

proptest! {
    #[test]
    fn it_agrees_on_token_soup(tokens in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\n\"", "1", "-2.5e3", "null", "true", " ", "0", "\"", "\\", "e", "\u{e9}",
    ]), 0..12)) {
        let text = tokens.concat();
        prop_assert_eq!(is_json(text.as_bytes()), known(text.as_bytes()));
        let _ = find(text.as_bytes(), "/a/0");
        let _ = elements(text.as_bytes());
    }
}

proptest! {
    #[test]
    fn strings_end_where_another_parser_says(inner in prop::collection::vec(any::<u8>(), 0..40), at in 0_usize..40, special in prop::sample::select(vec![b'"', b'\\', 0x1f, 0x20, 0x7f, 0x80, 0xa2])) {
        let mut text = [b"[\"", &inner[..], b"\",1]"].concat();
        let at = (at + 2).min(text.len() - 1);
        text[at] = special;
        prop_assert_eq!(is_json(&text), known(&text));
    }
}
