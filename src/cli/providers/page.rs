//! `docs/providers.md`: one row for each adapter.

use std::{fmt::Write as _, fs, process::ExitCode};

use anyhow::Context as _;

use super::{Context, schemes};
use crate::adapters::{Adapter, Gap, Registry};

const HEAD: &str = "\
# Providers

Every adapter that comes with the binary. This page is made by `cerca providers docs --write`; a test fails when it
is not what that writes. `cerca providers show NAME` says how to register one. The columns: how requests are
proved, what the proof does not cover, where the sender's own id of an event is (a list: the first that there is), and how the
sender tries again.

What is not covered, whoever sees one request of the sender can change and send again: *everything* where the secret itself is sent
along; the *body*, or most of it, where only a part is signed; the *id*, so that a repetition is a new event; the *type*; the
*time*, so that a request stays valid for as long as the secret does. `cerca providers show NAME` says it in sentences.

| name | sender | proof | not covered | id | retries |
|---|---|---|---|---|---|
";

const PATH: &str = "docs/providers.md";

/// Prints the page, or writes it where the repository has it.
pub(super) fn run(context: &Context, write: bool) -> anyhow::Result<ExitCode> {
    let page = page(&context.registry()?);
    match write {
        true => fs::write(PATH, page).with_context(|| format!("cannot write {PATH}"))?,
        false => context.out.bytes(page.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole page.
pub(super) fn page(registry: &Registry) -> String {
    let mut page = HEAD.to_owned();
    let mut count = 0;
    for adapter in registry.iter() {
        count += 1;
        row(&mut page, adapter);
    }
    // Writing to a text does not fail.
    let _ = write!(page, "\n{count} adapters.\n");
    page
}

fn row(page: &mut String, adapter: &Adapter) {
    let title = cell(adapter.title());
    let title = match adapter.docs() {
        Some(docs) => format!("[{title}]({docs})"),
        None => title,
    };
    let ids: Vec<String> = adapter.event_ids().iter().map(|id| format!("`{}`", cell(id))).collect();
    let retries = adapter
        .sender()
        .retries
        .as_deref()
        .map_or_else(|| "not told".to_owned(), cell);
    let _ = writeln!(
        page,
        "| `{}` | {title} | {} | {} | {} | {retries} |",
        adapter.name,
        schemes(adapter).join(", "),
        not_covered(adapter),
        ids.join(", "),
    );
}

/// What the signatures leave open, in words; those of several rules apart.
fn not_covered(adapter: &Adapter) -> String {
    let mut all: Vec<(Vec<String>, String)> = Vec::new();
    for one in adapter.uncovered() {
        let mut words: Vec<&str> = one.gaps.iter().map(Gap::word).collect();
        words.dedup();
        let words = match words.is_empty() {
            true => "nothing".to_owned(),
            false => words.join(", "),
        };
        match all.iter_mut().find(|(_, known)| *known == words) {
            Some((rules, _)) => rules.extend(one.rules),
            None => all.push((one.rules, words)),
        }
    }
    match all.as_slice() {
        [] => "everything".to_owned(),
        [(_, words)] => words.clone(),
        several => {
            let named = |(rules, words): &(Vec<String>, String)| format!("`{}`: {words}", rules.join("`, `"));
            several.iter().map(named).collect::<Vec<_>>().join("; ")
        }
    }
}

/// Text that does not end its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_adapters_say() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/providers.md");
        let committed = fs::read_to_string(path).unwrap_or_default();
        let made = page(&Registry::embedded());
        let differs = made
            .lines()
            .zip(committed.lines())
            .find(|(made, committed)| made != committed);
        assert!(
            made == committed,
            "docs/providers.md is old: `cerca providers docs --write`; {differs:?}"
        );
    }
}
