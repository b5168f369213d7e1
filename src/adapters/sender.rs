//! What is known of how a sender delivers: texts for people, durations and counts for programs.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap as _};

use crate::units::{format_duration, parse_duration};

/// How a sender delivers. Nothing of it changes what is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    /// Which answers it takes as received, such as `2xx`.
    pub success: Option<String>,
    /// How long it waits for the answer.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// What else is to be said of that.
    pub timeout_note: Option<String>,
    /// When and how often it tries again, for people.
    pub retries: Option<String>,
    /// How long it goes on trying one event, at least; zero where it does not try again by itself.
    #[serde(default, deserialize_with = "duration")]
    pub retries_for: Option<Duration>,
    /// Whether each attempt is signed anew; `false` where all carry the first one's signature and time.
    pub resigns: Option<bool>,
    /// What makes it stop sending, for people.
    pub disables: Option<String>,
    /// How long it must have failed until the sender may stop, or hold everything back.
    #[serde(default, deserialize_with = "duration")]
    pub disables_after: Option<Duration>,
    /// How often it must have failed until then. Where both are told, both must be.
    pub disables_failures: Option<u32>,
    /// `manual` where only a person redelivers.
    pub redelivers: Option<String>,
}

impl Sender {
    /// The time-out, for people.
    #[must_use]
    pub fn timeout_text(&self) -> Option<String> {
        match (self.timeout, &self.timeout_note) {
            (Some(timeout), Some(note)) => Some(format!("{}; {note}", format_duration(timeout))),
            (Some(timeout), None) => Some(format_duration(timeout)),
            (None, note) => note.clone(),
        }
    }
}

/// In JSON the texts, and the durations in milliseconds; `null` for what nobody knows.
impl Serialize for Sender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = |duration: Option<Duration>| duration.map(|duration| duration.as_millis());
        let mut map = serializer.serialize_map(Some(10))?;
        map.serialize_entry("success", &self.success)?;
        map.serialize_entry("timeout", &self.timeout_text())?;
        map.serialize_entry("timeout_ms", &ms(self.timeout))?;
        map.serialize_entry("retries", &self.retries)?;
        map.serialize_entry("retries_for_ms", &ms(self.retries_for))?;
        map.serialize_entry("resigns", &self.resigns)?;
        map.serialize_entry("disables", &self.disables)?;
        map.serialize_entry("disables_after_ms", &ms(self.disables_after))?;
        map.serialize_entry("disables_failures", &self.disables_failures)?;
        map.serialize_entry("redelivers", &self.redelivers)?;
        map.end()
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{Adapter, Registry};

    #[test]
    fn durations_are_read_and_told_in_milliseconds() {
        let text =
            "timeout='1250ms'\ntimeout_note='about'\nretries_for='0s'\ndisables_after='5d'\ndisables_failures=10";
        let sender: Sender = toml::from_str(text).unwrap();
        let told = serde_json::to_value(&sender).unwrap();
        assert_eq!(
            told,
            serde_json::json!({
                "success": null, "timeout": "1250ms; about", "timeout_ms": 1250, "retries": null, "retries_for_ms": 0,
                "resigns": null, "disables": null, "disables_after_ms": 432_000_000, "disables_failures": 10,
                "redelivers": null,
            })
        );
        let wrong = "title='t'\n[[signature]]\nscheme='token'\nsource='header:a'\n[sender]\ntimeout='10 sec'";
        let error = Adapter::parse("mine", wrong).unwrap_err();
        assert_eq!(error.line, 6);
        assert!(error.message.contains("`10 sec` is not a duration such as"), "{error}");
    }

    /// What people read and what programs read is the same: who is told a number of the one is told the other.
    #[test]
    fn facts_for_programs_stand_beside_texts_for_people() {
        let registry = Registry::embedded();
        for adapter in registry.iter() {
            let (name, sender) = (&adapter.name, adapter.sender());
            assert!(
                sender.retries.is_some() || sender.retries_for.is_none(),
                "{name}: retries"
            );
            let stops = sender.disables_after.is_some() || sender.disables_failures.is_some();
            assert!(sender.disables.is_some() || !stops, "{name}: disables");
            let none = sender.retries.as_deref().is_some_and(|text| text.starts_with("none"));
            assert_eq!(none, sender.retries_for == Some(Duration::ZERO), "{name}: retries");
        }
        let told = |fact: &dyn Fn(&Sender) -> bool| registry.iter().filter(|adapter| fact(adapter.sender())).count();
        assert!(told(&|sender| sender.timeout.is_some()) > 100);
        assert!(told(&|sender| sender.retries_for.is_some()) > 90);
        assert!(told(&|sender| sender.disables_after.is_some() || sender.disables_failures.is_some()) > 20);
    }
}
