//! What is wrong with one adapter's folder: its manifest, its samples, its vectors.

use jiff::Timestamp;

use crate::{
    adapters::{Adapter, Registry},
    ingest::{self, VectorResult},
};

/// One thing to tell of a folder.
pub(super) struct Told {
    pub(super) is_error: bool,
    /// File, and the line where one is to blame.
    pub(super) place: String,
    pub(super) text: String,
}

/// Everything there is to tell.
pub(super) fn look(adapter: &Adapter, registry: &Registry) -> Vec<Told> {
    let mut told = Vec::new();
    let place = |file: &str, line: Option<usize>| match line {
        Some(line) => format!("{}/{file}:{line}", adapter.folder()),
        None => format!("{}/{file}", adapter.folder()),
    };
    let mut tell = |is_error, place, text| told.push(Told { is_error, place, text });
    for (key, problem) in adapter.faults() {
        tell(true, place("adapter.toml", None), format!("{key}: {problem}"));
    }
    for text in adapter.lint() {
        tell(false, place("adapter.toml", None), text);
    }
    for file in adapter.strays() {
        tell(false, place(file, None), "nothing reads this file".to_owned());
    }
    for finding in ingest::examine(adapter, Timestamp::now()) {
        let key = match finding.key.as_str() {
            "" => String::new(),
            key => format!("{key}: "),
        };
        tell(
            true,
            place(&finding.file, finding.line),
            format!("{key}{}", finding.message),
        );
    }
    if adapter.samples().len() == 1 {
        let text = "one sample only: a second, of another type, shows that id and type are found in both";
        tell(false, place("samples", None), text.to_owned());
    }
    let Some(text) = adapter.vectors() else {
        return told;
    };
    let vectors = |line| place("vectors.jsonl", line);
    let mut results = Vec::new();
    for result in ingest::try_vectors(text, registry) {
        match result {
            Err(error) => tell(true, vectors(Some(error.line)), error.message),
            Ok(result) => {
                if *result.provider != *adapter.name {
                    let text = format!("`provider` is `{}`, in the folder of {}", result.provider, adapter.name);
                    tell(true, vectors(Some(result.line)), text);
                }
                if !result.ok() {
                    let text = format!("{}: {}", result.case, result.differences.join("; "));
                    tell(true, vectors(Some(result.line)), text);
                }
                if !result.expects {
                    let text = format!("{}: it has no `expect`, so it shows nothing", result.case);
                    tell(false, vectors(Some(result.line)), text);
                }
                results.push(result);
            }
        }
    }
    for text in not_shown(adapter, &results) {
        tell(false, vectors(None), text.to_owned());
    }
    told
}

/// The ways to be refused that every folder shows: a word in the names of cases, and what is missing without one.
const REFUSED: [(&str, &str); 5] = [
    ("wrong key", "no refused vector is named `wrong key …`"),
    ("tampered", "no refused vector is named `tampered …`"),
    ("malformed", "no refused vector is named `malformed …`"),
    ("missing", "no refused vector is named `missing …`"),
    (
        "stale",
        "no refused vector is named `stale …`, and the adapter has a `tolerance`",
    ),
];

/// What the vector is called that shows that the body may be another.
const NOT_SIGNED: &str = "the body is not signed";

/// What no vector shows.
fn not_shown(adapter: &Adapter, results: &[VectorResult]) -> Vec<&'static str> {
    let mut missing = Vec::new();
    let is_event = |result: &&VectorResult| result.status == "event";
    if !results.iter().any(|result| is_event(&result)) {
        missing.push("no vector is an event");
    }
    if !adapter.verifies() {
        return missing;
    }
    for (word, text) in REFUSED {
        let applies = word != "stale" || adapter.judges_time();
        let for_that = |reason: &str| word != "stale" || reason == "stale";
        let shows = |result: &VectorResult| {
            result.case.contains(word) && result.status == "rejected" && result.reason.as_deref().is_some_and(for_that)
        };
        if applies && !results.iter().any(shows) {
            missing.push(text);
        }
    }
    if adapter.signs_no_body()
        && !results
            .iter()
            .filter(is_event)
            .any(|result| result.case.contains(NOT_SIGNED))
    {
        missing.push("no vector with another body is taken and named `…, taken: the body is not signed`");
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::MakeError;

    #[test]
    fn no_folder_has_anything_to_tell() {
        let registry = Registry::embedded();
        let told = |adapter| {
            look(adapter, &registry)
                .into_iter()
                .map(|told| format!("{}: {}", told.place, told.text))
        };
        let all: Vec<String> = registry.iter().flat_map(told).collect();
        assert!(all.is_empty(), "{}", all.join("\n"));
    }

    #[test]
    fn samples_make_vectors_of_every_kind_whatever_the_scheme() {
        let registry = Registry::embedded();
        let mut made = 0;
        for adapter in registry.iter() {
            let at = &adapter.name;
            let vectors = match ingest::make_vectors(adapter, &registry, None) {
                Ok(vectors) => vectors,
                // Those need a key of the sender's kind.
                Err(MakeError::NoKey | MakeError::Provider(_)) => continue,
                Err(error) => panic!("{at}: {error}"),
            };
            let again = ingest::make_vectors(adapter, &registry, None).unwrap();
            // A cipher takes chance.
            assert!(vectors == again || adapter.source().contains("[decrypt]"), "{at}");
            let text: String = vectors.iter().map(|vector| format!("{}\n", vector.line)).collect();
            let results: Vec<VectorResult> = ingest::try_vectors(&text, &registry).map(Result::unwrap).collect();
            for result in &results {
                assert!(
                    result.ok() && result.expects,
                    "{at}: {}: {:?}",
                    result.case,
                    result.differences
                );
            }
            let mut left = not_shown(adapter, &results);
            if adapter.signatures().count() > 1 {
                // Another rule judges a time than the one that samples are signed by.
                left.retain(|text| !text.contains("`stale"));
            }
            assert_eq!(left, Vec::<&str>::new(), "{at}");
            made += 1;
        }
        assert!(made > registry.names().count() / 2, "{made}");
    }
}
