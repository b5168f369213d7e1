//! What ARCHITECTURE.md says of the sources: a module uses only what stands before it, and the tests that it names exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Modules by level; those of one level do not use each other.
const LEVELS: &[&[&str]] = &[
    &["domain", "json", "units", "seal"],
    &["adapters", "client", "store"],
    &["ingest", "idempotency"],
    &["handlers", "backfill"],
    &["config", "worker", "http", "schedule", "testing"],
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

/// Promises that need a test which runs on both stores.
const ON_BOTH_STORES: &[&str] = &["G2", "G4", "G5", "G6", "G7", "G8"];

#[test]
fn every_promise_has_the_tests_that_are_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md can be read");
    let table = text.split("| | promise | tests |").nth(1).expect("the table is there");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let (mut wrong, mut promised, mut both) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let &[promises, _, tests] = &cells[..] else {
            wrong.push(format!("not three cells: {row}"));
            continue;
        };
        promised.extend(promises.split(", ").filter(|promise| !promise.is_empty()));
        for entry in tests.split("; ") {
            match named(root, entry) {
                Ok(true) => both.extend(promises.split(", ")),
                Ok(false) => {}
                Err(problem) => wrong.push(problem),
            }
        }
    }
    let all: BTreeSet<String> = (1..=12).map(|n| format!("G{n}")).collect();
    wrong.extend(
        all.iter()
            .filter(|g| !promised.contains(&***g))
            .map(|g| format!("no test for {g}")),
    );
    let missing = ON_BOTH_STORES.iter().filter(|g| !both.contains(*g));
    wrong.extend(missing.map(|g| format!("no test on both stores for {g}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Looks for the tests of one entry, "`place`" or "`place` name, name"; answers whether all of those that it names run on both stores.
fn named(root: &Path, entry: &str) -> Result<bool, String> {
    let (place, names) = entry
        .strip_prefix('`')
        .and_then(|rest| rest.split_once('`'))
        .ok_or_else(|| format!("not `place` and names: {entry}"))?;
    let sources = sources(root, place);
    if place.contains('/') {
        return root
            .join(place)
            .exists()
            .then_some(false)
            .ok_or_else(|| format!("{place} is not there"));
    }
    let holds_tests = |text: &String| {
        [
            "#[test]",
            "#[tokio::test",
            "on_both!(",
            "on_both_ordered!(",
            "on_both_stores!(",
        ]
        .iter()
        .any(|mark| text.contains(mark))
    };
    if !sources.iter().any(holds_tests) {
        return Err(format!("there are no tests in {place}"));
    }
    let names: Vec<&str> = names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    for name in &names {
        let function = format!("fn {name}(");
        if !sources.iter().any(|text| text.contains(&function)) {
            return Err(format!("{place} has no test {name}"));
        }
    }
    let lists: Vec<&str> = sources.iter().flat_map(|text| lists(text)).collect();
    let is_listed = |name: &&str| {
        lists
            .iter()
            .any(|list| list.split([',', '\n']).any(|word| word.trim() == *name))
    };
    Ok(!names.is_empty() && names.iter().all(is_listed))
}

/// The insides of `on_both!(…)` and `on_both_stores!(…)`.
fn lists(text: &str) -> impl Iterator<Item = &str> {
    let parts = ["on_both!(", "on_both_ordered!(", "on_both_stores!("]
        .into_iter()
        .flat_map(move |mark| text.split(mark).skip(1));
    parts.filter_map(|rest| rest.split(')').next())
}

/// The texts of `a::b`: a file or a folder below `tests` or `src`.
fn sources(root: &Path, place: &str) -> Vec<String> {
    let path = place.replace("::", "/");
    let mut files = Vec::new();
    for base in ["tests", "src"] {
        let file = root.join(base).join(format!("{path}.rs"));
        files.extend(file.exists().then_some(file));
        add(&root.join(base).join(&path), &mut files);
        if !files.is_empty() {
            break;
        }
    }
    let read = |file: PathBuf| fs::read_to_string(file).expect("a source is text");
    files.into_iter().map(read).collect()
}

fn add(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("a folder can be read").path();
        if path.is_dir() {
            add(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
