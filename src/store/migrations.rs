//! The migrations of each engine, compiled in. `sqlx::migrate!` does the same, but has both drivers, and with them SQLite,
//! built a second time for the compiler.

use std::{borrow::Cow, sync::LazyLock};

use sqlx::{
    SqlSafeStr as _,
    migrate::{Migration, MigrationType, Migrator},
};

/// Names and texts of the files in `migrations`; both engines have the same names.
macro_rules! files {
    ($engine:literal) => {
        files!(
            $engine,
            "0001_events",
            "0002_provider_secrets",
            "0003_ordering",
            "0004_outbox",
            "0005_steps",
            "0006_idempotency",
            "0007_jobs",
            "0008_quarantine",
            "0009_discard",
            "0010_keys_sent",
            "0011_inbox_json",
        )
    };
    ($engine:literal, $($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../migrations/", $engine, "/", $name, ".sql")))),*]
    };
}

pub(super) static POSTGRES: LazyLock<Migrator> = LazyLock::new(|| migrator(files!("postgres")));
pub(super) static SQLITE: LazyLock<Migrator> = LazyLock::new(|| migrator(files!("sqlite")));

fn migrator(files: impl IntoIterator<Item = (&'static str, &'static str)>) -> Migrator {
    Migrator::with_migrations(files.into_iter().map(|(name, sql)| migration(name, sql)).collect())
}

/// What `0001_events` holds: version 1, `events`.
fn migration(name: &'static str, sql: &'static str) -> Migration {
    let (version, description) = name.split_once('_').unwrap_or((name, ""));
    Migration::new(
        version.parse().unwrap_or_default(),
        Cow::Owned(description.replace('_', " ")),
        MigrationType::Simple,
        sql.into_sql_str(),
        false,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_missing() {
        for (engine, migrator) in [("postgres", &POSTGRES), ("sqlite", &SQLITE)] {
            let folder = format!("{}/migrations/{engine}", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(folder).unwrap().count();
            let versions: Vec<i64> = migrator.iter().map(|migration| migration.version).collect();
            let all: Vec<i64> = (1..).take(files).collect();
            assert_eq!(versions, all, "{engine}");
        }
    }

    /// A database keeps the hash of what ran, and refuses a program whose migration has another one.
    #[test]
    fn a_migration_is_told_by_its_bytes() {
        let first = POSTGRES.iter().next().unwrap();
        assert_eq!(first.description, "events");
        assert_eq!(
            hex::encode(&first.checksum),
            "b9154ceb13d248c3c0edaa4b19e26b37e68d15fc6163050c2c35a9f6a181ef16fb567affbf64697b4838d79fca45cb02"
        );
    }
}
