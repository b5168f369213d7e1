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

/// What no vector shows.
fn not_shown(adapter: &Adapter, results: &[VectorResult]) -> Vec<&'static str> {
    let refused = |reasons: &[&str]| {
        let is = |result: &VectorResult| result.reason.as_deref().is_some_and(|reason| reasons.contains(&reason));
        results.iter().any(is)
    };
    let verifies = adapter.verifies();
    let wrong = [
        "wrong_signature",
        "wrong_claim",
        "untrusted_key",
        "cannot_decrypt",
        "malformed_signature",
    ];
    let mut missing = Vec::new();
    if !results.iter().any(|result| result.status == "event") {
        missing.push("no vector is an event");
    }
    if verifies && !refused(&wrong) {
        missing.push("no vector has a wrong signature");
    }
    if verifies && !refused(&["missing_signature", "cannot_decrypt"]) {
        missing.push("no vector has no signature at all");
    }
    if adapter.judges_time() && !refused(&["stale"]) {
        missing.push("no vector is stale, and the adapter has a `tolerance`");
    }
    missing
}
