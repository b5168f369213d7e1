//! What is said of a database before it is opened for work.

use cerca::store::{Options, Schema, StoreError, open, schema};

use crate::support::Db;

on_both!(a_schema_is_told_by_its_age, no_tables_are_no_schema);

async fn a_schema_is_told_by_its_age(db: Db) {
    let told = async || schema(&db.url).await.unwrap();
    let as_it_is = Options {
        migrate: false,
        ..Options::default()
    };
    assert_eq!(told().await, Schema::Current);
    let newest = db.number("SELECT max(version) FROM _sqlx_migrations").await;
    db.sql(&format!(
        "UPDATE _sqlx_migrations SET version = {} WHERE version = {newest}",
        newest + 1
    ))
    .await;
    assert_eq!(told().await, Schema::Newer);
    db.sql(&format!("DELETE FROM _sqlx_migrations WHERE version > {newest}"))
        .await;
    assert_eq!(told().await, Schema::Older);
    let refused = open(&db.url, as_it_is).await.err().unwrap().to_string();
    assert!(
        refused.contains("older than this program; run `cerca migrate`"),
        "{refused}"
    );
}

async fn no_tables_are_no_schema(db: Db) {
    db.sql("DROP TABLE _sqlx_migrations").await;
    assert_eq!(schema(&db.url).await.unwrap(), Schema::Absent);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_as_it_is() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("notes.txt");
    let text = "not a database, but long enough to have had a header of one\n".repeat(40);
    std::fs::write(&file, &text).unwrap();
    let url = |name: &str| format!("sqlite:{}", dir.path().join(name).display());
    assert!(matches!(schema(&url("notes.txt")).await, Err(StoreError::Refused(why)) if why.contains("not a database")));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert_eq!(schema(&url("none.db")).await.unwrap(), Schema::Absent);
    std::fs::write(dir.path().join("empty.db"), "").unwrap();
    assert_eq!(schema(&url("empty.db")).await.unwrap(), Schema::Absent);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was made");
    let away = schema("postgres://nobody:nothing@127.0.0.1:1/none").await;
    assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
}
