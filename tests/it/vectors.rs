//! Signed requests of real providers, where a collection of them lies beside the project.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::support::cerca;

/// Every line of every file whose provider has an adapter meets its expectation.
#[test]
fn the_shared_vectors_verify_or_fail_as_they_should() {
    let Some(folder) = shared_vectors() else {
        eprintln!("skipped: there is no ../shared/vectors");
        return;
    };
    let adapters = adapters();
    let mut failures = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let provider = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "jsonl") || !adapters.contains(&provider) {
            continue;
        }
        files += 1;
        let output = cerca().args(["verify", "--vectors"]).arg(&path).output().unwrap();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        let results = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || results.lines().count() != lines {
            failures.push(format!(
                "{provider}: {} of {lines} lines answered\n{results}{}",
                results.lines().count(),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {files} files:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(files > 0, "no adapter has vectors");
}

fn adapters() -> HashSet<String> {
    let output = cerca().args(["providers", "list", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let adapter: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = adapter.get("adapter").or_else(|| adapter.get("name"));
            name.and_then(|name| name.as_str())
                .unwrap_or_else(|| panic!("no name in {line}"))
                .to_owned()
        })
        .collect()
}

#[allow(clippy::disallowed_methods, reason = "lets a checkout elsewhere name the folder")]
fn shared_vectors() -> Option<PathBuf> {
    let named = std::env::var_os("CERCA_TEST_VECTORS").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors");
    named.into_iter().chain([beside]).find(|folder| folder.is_dir())
}
