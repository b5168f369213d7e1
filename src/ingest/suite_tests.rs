//! Every embedded folder, and every file of vectors, at once.

use std::path::{Path, PathBuf};

use super::run_vectors;
use crate::adapters::Registry;

#[test]
fn every_folder_is_understood() {
    let (_, errors) = Registry::read_all(None).unwrap();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// The folder of shared vectors, where there is one beside the crate (or where `CERCA_VECTORS` says).
fn shared_vectors() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors");
    let folder = std::env::var_os("CERCA_VECTORS").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

#[test]
fn shared_vectors_are_met() {
    let Some(folder) = shared_vectors() else {
        return;
    };
    let registry = Registry::embedded().unwrap();
    let mut wrong = Vec::new();
    let mut lines = 0;
    for name in registry.names() {
        let Ok(text) = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))) else {
            continue;
        };
        for result in run_vectors(&text, &registry).unwrap() {
            lines += 1;
            if !result.ok() {
                wrong.push(format!(
                    "{} {}: {:?} {:?}",
                    result.provider, result.case, result.differences, result.reason
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {lines}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
