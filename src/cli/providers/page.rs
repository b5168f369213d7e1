//! `docs/providers.md`: one row for each adapter.

use std::fmt::Write as _;

use super::schemes;
use crate::adapters::{Adapter, Registry};

const HEAD: &str = "\
# Providers

Every adapter that comes with the binary. This page is made by `cerca providers docs > docs/providers.md`; a test fails
when it is not what that prints. `cerca providers show NAME` says how to register one. The columns: how requests are
proved, where the sender's own id of an event is (a list: the first that there is), and how the sender tries again.

| name | sender | proof | id | retries |
|---|---|---|---|---|
";

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
        "| `{}` | {title} | {} | {} | {retries} |",
        adapter.name,
        schemes(adapter).join(", "),
        ids.join(", "),
    );
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
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let made = page(&Registry::embedded());
        let differs = made
            .lines()
            .zip(committed.lines())
            .find(|(made, committed)| made != committed);
        assert!(
            made == committed,
            "docs/providers.md is old: `cerca providers docs > docs/providers.md`; {differs:?}"
        );
    }
}
