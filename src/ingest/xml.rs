//! XML as JSON, so that pointers read it: an element is the text in it, or an object of what it holds. Names are without
//! their prefixes, attributes begin with `@`, text beside either is `#text`, and elements of one name are a list.

use quick_xml::{Reader, XmlVersion, escape::resolve_predefined_entity, events::Event};
use serde_json::{Map, Value};

/// Deepest nesting, and most elements and attributes: what is larger is not read. A request may ask for this before it is proved.
const DEEPEST: usize = 64;
const MOST: usize = 10_000;

/// An element that has begun.
struct Open {
    name: String,
    inner: Map<String, Value>,
    text: String,
}

/// The JSON of a document, `{"root": …}`; `lists` are the names that are lists even where there is one. `None` where it is not well
/// formed, or has a document type or entities of its own.
pub(crate) fn to_json(text: &[u8], lists: &[String]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut top = Map::new();
    let mut open: Vec<Open> = Vec::new();
    let mut left = MOST;
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                if open.len() == DEEPEST || (open.is_empty() && !top.is_empty()) {
                    return None;
                }
                left = left.checked_sub(1)?;
                let mut inner = Map::new();
                for attribute in tag.attributes() {
                    left = left.checked_sub(1)?;
                    let attribute = attribute.ok()?;
                    let name = format!("@{}", attribute.key.local_name().as_ref());
                    let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?;
                    // Declarations of namespaces say nothing to a pointer.
                    if !attribute.key.as_ref().starts_with("xmlns") {
                        inner.insert(name, value.into_owned().into());
                    }
                }
                open.push(Open {
                    name: tag.local_name().as_ref().to_owned(),
                    inner,
                    text: String::new(),
                });
            }
            Event::End(_) => {
                let ended = open.pop()?;
                let into = open.last_mut().map_or(&mut top, |outer| &mut outer.inner);
                put(into, ended, lists);
            }
            Event::Text(text) if open.is_empty() => {
                if !text.xml10_content().trim().is_empty() {
                    return None;
                }
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::GeneralRef(entity) => {
                let into = &mut open.last_mut()?.text;
                match entity.resolve_char_ref().ok()? {
                    Some(char) => into.push(char),
                    None => into.push_str(resolve_predefined_entity(&entity)?),
                }
            }
            Event::DocType(_) => return None,
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    match open.is_empty() && !top.is_empty() {
        true => serde_json::to_vec(&top).ok(),
        false => None,
    }
}

fn put(into: &mut Map<String, Value>, ended: Open, lists: &[String]) {
    let Open { name, mut inner, text } = ended;
    let value = if inner.is_empty() {
        Value::String(text)
    } else {
        if !text.trim().is_empty() {
            inner.insert("#text".into(), text.into());
        }
        Value::Object(inner)
    };
    match into.get_mut(&name) {
        Some(Value::Array(list)) => list.push(value),
        Some(one) => {
            let first = one.take();
            *one = Value::Array(vec![first, value]);
        }
        None if lists.contains(&name) => {
            into.insert(name, Value::Array(vec![value]));
        }
        None => {
            into.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Option<String> {
        to_json(text.as_bytes(), &["n".to_owned()]).map(|json| String::from_utf8(json).unwrap())
    }

    #[test]
    fn elements_become_texts_objects_and_lists() {
        for (xml, expected) in [
            ("<?xml version=\"1.0\"?>\n<a/>\n", r#"{"a":""}"#),
            ("<x:a xmlns:x='u'><x:b>1</x:b></x:a>", r#"{"a":{"b":"1"}}"#),
            (
                "<a><b>1</b><b k='v'>2</b></a>",
                r##"{"a":{"b":["1",{"@k":"v","#text":"2"}]}}"##,
            ),
            ("<a><n>1</n></a>", r#"{"a":{"n":["1"]}}"#),
            ("<a><![CDATA[<b>&amp;]]>&lt;&#x41;</a>", r#"{"a":"<b>&amp;<A"}"#),
        ] {
            assert_eq!(json(xml).as_deref(), Some(expected), "{xml}");
        }
    }

    #[test]
    fn what_is_not_well_formed_or_too_much_is_not_read() {
        let deep = format!("{}{}", "<a>".repeat(DEEPEST + 1), "</a>".repeat(DEEPEST + 1));
        let wide = format!("<a>{}</a>", "<b/>".repeat(MOST));
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bb\">]><a>&b;</a>";
        for text in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><a/>",
            "<a>&b;</a>",
            "<a/>x",
            bomb,
            &deep,
            &wide,
        ] {
            assert_eq!(json(text), None, "{text:.60}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_json_or_nothing(text in "[<>/!?\\[\\]&;#a-c=\"' \n-]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for text in [text.as_bytes(), &bytes, format!("<a>{text}</a>").as_bytes()] {
                if let Some(json) = to_json(text, &[]) {
                    serde_json::from_slice::<Value>(&json).unwrap();
                }
            }
        }
    }
}
