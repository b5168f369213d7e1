//! How values of an event arrive in the columns of a sql handler.

use cerca::store::{Applied, SqlValue};

use crate::{
    effects::{effect, prepared},
    support::Db,
};

#[tokio::test]
async fn postgres_converts_by_the_type_of_the_parameter() {
    let Some(db) = Db::postgres().await else { return };
    let number = |text: &str| SqlValue::Number(text.to_owned());
    let text = |text: &str| SqlValue::Text(text.to_owned());
    db.sql("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN cents AS numeric CHECK (VALUE >= 0)")
        .await;
    let cases = [
        ("numeric", SqlValue::Int(12), "12"),
        ("numeric", number("1.0"), "1.0"),
        ("numeric", number("1e3"), "1000"),
        (
            "numeric",
            number("-0.00012345678901234567890123"),
            "-0.00012345678901234567890123",
        ),
        ("numeric", text("99999999999999999999.99"), "99999999999999999999.99"),
        ("numeric", number("0"), "0"),
        ("cents", text("3.50"), "3.50"),
        ("text", number("1.0"), "1.0"),
        ("text", number("1e3"), "1e3"),
        ("text", SqlValue::Bool(true), "true"),
        ("smallint", text("7"), "7"),
        ("integer", number("1e3"), "1000"),
        ("bigint", text("-9"), "-9"),
        ("real", text("1.5"), "1.5"),
        ("double precision", number("2.25"), "2.25"),
        ("boolean", text("true"), "true"),
        (
            "uuid",
            text("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        (
            "timestamptz",
            text("2026-01-02T03:04:05.5+01:00"),
            "2026-01-02 02:04:05.5+00",
        ),
        ("timestamp", text("2026-01-02T03:04:05Z"), "2026-01-02 03:04:05"),
        ("timestamp", text("2026-01-02 03:04:05"), "2026-01-02 03:04:05"),
        ("date", text("2026-01-02"), "2026-01-02"),
        ("date", text("1969-01-02T03:04:05Z"), "1969-01-02"),
        ("jsonb", text(r#"{"a": 1}"#), r#"{"a": 1}"#),
        ("json", number("1.0"), "1.0"),
        ("mood", text("good"), "good"),
    ];
    let claims = prepared((0..=cases.len()).map(|n| format!("e{n:02}")).collect(), &db).await;
    for (n, ((ty, value, expected), claim)) in cases.into_iter().zip(&claims).enumerate() {
        db.sql(&format!("CREATE TABLE t{n} (v {ty})")).await;
        let applied = db
            .store
            .apply(effect(
                claim,
                &format!("INSERT INTO t{n} VALUES ($1)"),
                vec![value.clone()],
            ))
            .await;
        assert_eq!(applied.unwrap(), Applied::Done, "{ty} {value:?}");
        let read = format!("SET timezone = 'UTC'; CREATE TABLE r{n} AS SELECT v::text FROM t{n}");
        db.sql(&read).await;
        assert_eq!(
            db.texts(&format!("SELECT v FROM r{n}")).await,
            [expected],
            "{ty} {value:?}"
        );
    }
    let bad = effect(claims.last().unwrap(), "INSERT INTO t0 VALUES ($1)", vec![text("1,5")]);
    let Applied::Failed(why) = db.store.apply(bad).await.unwrap() else {
        panic!()
    };
    assert_eq!(
        why,
        "parameter $1 is of type numeric and cannot take this text; a cast can help: $1::text::numeric"
    );
}

#[tokio::test]
async fn sqlite_keeps_the_kind_of_the_value() {
    let db = Db::sqlite().await;
    let claim = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    db.sql("CREATE TABLE t (a, b, c)").await;
    let params = vec![SqlValue::Int(1), SqlValue::Number("1.0".into()), SqlValue::Bool(true)];
    let insert = effect(&claim, "INSERT INTO t VALUES ($1, $2, $3)", params);
    assert_eq!(db.store.apply(insert).await.unwrap(), Applied::Done);
    let types = db.texts("SELECT typeof(a) || typeof(b) || typeof(c) FROM t").await;
    assert_eq!(types, ["integerrealinteger"]);
}

/// What a double cannot say stays a text, so that no digit is lost where the column keeps texts.
#[tokio::test]
async fn sqlite_keeps_the_digits_that_a_double_would_lose() {
    let db = Db::sqlite().await;
    let claim = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    db.sql("CREATE TABLE t (v)").await;
    let number = |text: &str| SqlValue::Number(text.to_owned());
    let long = [
        "123456789012345678901234567890",
        "-18446744073709551616",
        "0.1234567890123456789",
        "1e400",
    ];
    let params = long
        .iter()
        .map(|text| number(text))
        .chain([number("19.90"), number("1e3")]);
    let insert = effect(
        &claim,
        "INSERT INTO t VALUES ($1), ($2), ($3), ($4), ($5), ($6)",
        params.collect(),
    );
    assert_eq!(db.store.apply(insert).await.unwrap(), Applied::Done);
    assert_eq!(db.texts("SELECT v FROM t WHERE typeof(v) = 'text'").await, long);
    assert_eq!(
        db.texts("SELECT cast(v AS text) FROM t WHERE typeof(v) = 'real'").await,
        ["19.9", "1000.0"]
    );
}
