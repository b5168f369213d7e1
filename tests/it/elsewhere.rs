//! Sql handlers that write to a database which is not the store's.

use crate::support::{Engine, Setup, TestStore, run};

/// The types are those of the statement's parameters, whatever comes first.
#[test]
fn another_postgresql_takes_each_value_as_its_column_does() {
    run(Engine::Postgres, async |other: TestStore| {
        other
            .execute(
                "create table booked (id text primary key, cents numeric, ratio double precision, day timestamptz)",
            )
            .await;
        let store = TestStore::create(Engine::Sqlite).await.unwrap();
        let handler = format!(
            "[[handler]]\nname = \"book\"\nevents = [\"*\"]\nkind = \"sql\"\ndatabase = \"{}\"\n\
             statement = \"insert into booked values ($1, $2, $3, $4) on conflict do nothing\"\n\
             params = [\"event:provider_event_id\", \"body:/n\", \"body:/n\", \"event:created_at\"]\n",
            other.url
        );
        let server = Setup::new(&store).with(&handler).start().await;
        for (id, body) in [
            ("a", "{\"n\":7}"),
            ("b", "{\"n\":1.5}"),
            ("c", "{\"n\":\"12345678\"}"),
            ("d", "{\"n\":null}"),
            ("e", "{\"n\":1200}"),
        ] {
            server.github(id, body.as_bytes()).await;
            server.wait_for("github", id, "done").await;
        }
        let exact = "select count(*) from booked where (id, cents::text, ratio) in
                     (('a', '7', 7), ('b', '1.5', 1.5), ('c', '12345678', 12345678), ('e', '1200', 1200))
                     and day > now() - interval '1 hour'";
        assert_eq!(other.number(exact).await, 4);
        assert_eq!(other.number("select count(*) from booked where cents is null").await, 1);
        drop(server);
        store.remove().await;
    });
}
