//! What is acknowledged is on disk, whatever the server was told.

use cerca::{
    domain::Outcome,
    store::{Applied, Options, SqlValue, open},
};

use crate::{
    effects::effect,
    support::{Db, event, request, settle},
};

/// Whatever the database was told: a trigger writes down what each kind of commit asks for.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_waits_for_the_disk() {
    let Some(db) = Db::postgres().await else { return };
    db.sql(
        "CREATE TABLE asked (what text, setting text);
         CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO asked VALUES (TG_TABLE_NAME || ' ' || TG_OP, current_setting('synchronous_commit'));
             RETURN NULL;
         END $$;
         CREATE TABLE payments (id text NOT NULL, cents bigint);
         CREATE TRIGGER ask AFTER INSERT ON webhook_events FOR EACH STATEMENT EXECUTE FUNCTION ask();
         CREATE TRIGGER ask AFTER INSERT ON payments FOR EACH STATEMENT EXECUTE FUNCTION ask();
         CREATE TRIGGER ask AFTER INSERT ON attempts FOR EACH STATEMENT EXECUTE FUNCTION ask();
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$",
    )
    .await;
    let store = open(&db.url, Options::default()).await.unwrap();
    store.accept(vec![event("e1", "sql,other")]).await.unwrap();
    let claims = store.claim(request(&[("sql", 1), ("other", 1)])).await.unwrap();
    let (sql, other) = claims.iter().partition::<Vec<_>, _>(|claim| &*claim.handler == "sql");
    let pay = effect(
        sql[0],
        "INSERT INTO payments (id) VALUES ($1)",
        vec![SqlValue::Text("e1".to_owned())],
    );
    assert_eq!(store.apply(pay).await.unwrap(), Applied::Done);
    store.settle(settle(other[0], Outcome::Done)).await;
    store.flush().await.unwrap();
    let asked = db
        .texts("SELECT DISTINCT what || ' ' || setting FROM asked ORDER BY 1")
        .await;
    assert_eq!(
        asked,
        ["attempts INSERT on", "payments INSERT on", "webhook_events INSERT on",]
    );
}
