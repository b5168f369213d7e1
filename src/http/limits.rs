//! How many connections the process can afford.

/// `wanted`, or a third of the files that this process may open: each takes two, and a sender that opens
/// connections must not keep the store or a handler from opening theirs.
pub(super) fn connections(wanted: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match open_files(&limits) {
        Some(files) if wanted > files / 3 => {
            let affordable = (files / 3).max(1);
            if matters(wanted, affordable) {
                tracing::warn!(
                    wanted,
                    affordable,
                    files,
                    "few connections at once: the limit of open files is low (ulimit -n)"
                );
            }
            affordable
        }
        _ => wanted,
    }
}

/// Nobody asks for thousands of connections by leaving the setting alone, so a few less are no news.
fn matters(wanted: usize, affordable: usize) -> bool {
    const ENOUGH: usize = 1024;
    affordable < ENOUGH.min(wanted)
}

/// The soft limit in the text of `/proc/self/limits`; none where it is unlimited or not to be read.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_open_files_counts() {
        let limits = "Limit           Soft Limit   Hard Limit   Units\nMax open files            1024                 524288               files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(open_files(&limits.replace("1024  ", "unlimited")), None);
        assert_eq!(open_files(""), None);
    }

    #[test]
    fn a_limit_that_leaves_enough_is_no_news() {
        assert!(!matters(8192, 4096));
        assert!(matters(8192, 341));
        assert!(!matters(100, 100));
    }
}
