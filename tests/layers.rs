//! The direction of dependencies, as ARCHITECTURE.md draws it: a module uses only what stands before it.

use std::{collections::BTreeMap, fs, path::Path};

/// Modules by level; those of one level do not use each other.
const LEVELS: &[&[&str]] = &[
    &["domain", "json", "units", "seal"],
    &["adapters", "client", "store"],
    &["ingest", "idempotency"],
    &["handlers", "backfill"],
    &["config", "worker", "http", "schedule"],
    &["telemetry"],
    &["app"],
    &["cli"],
];

#[test]
fn modules_use_only_what_stands_before_them() {
    let level: BTreeMap<&str, usize> = LEVELS
        .iter()
        .enumerate()
        .flat_map(|(level, modules)| modules.iter().map(move |module| (*module, level)))
        .collect();
    let mut wrong = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |path, text| {
        let within = path
            .strip_prefix(concat!(env!("CARGO_MANIFEST_DIR"), "/src/"))
            .unwrap_or(path);
        let module = within.split(['/', '.']).next().unwrap_or_default();
        let Some(own) = level.get(module) else { return };
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| [line, "\n"])
            .collect();
        for used in used(&code) {
            match level.get(used) {
                Some(other) if other < own || used == module => {}
                _ => wrong.push(format!("{within} uses crate::{used}")),
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The modules that a file names as `crate::module` or in `use crate::{…}`, its tests left out.
fn used(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.extend(name(rest)),
            Some(list) => {
                let mut depth = 1;
                let mut begins = true;
                for (at, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => begins = true,
                        c if begins && depth == 1 && c.is_ascii_lowercase() => {
                            found.extend(name(&list[at..]));
                            begins = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    found
}

/// The module at the head of a path; `None` for a type, a function or a macro of the crate's root.
fn name(path: &str) -> Option<&str> {
    let end = path.find(|c: char| !(c.is_ascii_lowercase() || c == '_'))?;
    (end > 0 && !path[end..].starts_with('!')).then(|| &path[..end])
}

fn visit(folder: &Path, each: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).expect("src can be read") {
        let path = entry.expect("src can be read").path();
        let shown = path.to_string_lossy();
        if path.is_dir() {
            if !shown.ends_with("/tests") {
                visit(&path, each);
            }
        } else if shown.ends_with(".rs") && !shown.contains("tests") {
            each(&shown, &fs::read_to_string(&path).expect("a source is text"));
        }
    }
}
