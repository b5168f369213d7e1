//! Sealed secrets of providers: one at most, on disk before the answer, never changed in place.

use std::sync::Arc;

use cerca::store::{Options, open};

use crate::support::Db;

on_both!(
    a_secret_is_kept_once_and_comes_back_as_it_went_in,
    of_many_at_once_one_is_kept,
    a_removed_secret_makes_room_and_its_row_stays,
);

async fn a_secret_is_kept_once_and_comes_back_as_it_went_in(db: Db) {
    let bytes: Vec<u8> = (0..=255).collect();
    assert!(db.store.secrets().await.unwrap().is_empty());
    assert!(
        db.store
            .set_secret("asana", Some(bytes.clone()), "handshake")
            .await
            .unwrap()
    );
    assert!(!db.store.set_secret("asana", Some(vec![1]), "handshake").await.unwrap());
    assert!(db.store.set_secret("notion", Some(vec![2]), "handshake").await.unwrap());
    // Another process sees the same.
    let other = open(&db.url, Options::default()).await.unwrap();
    for store in [&db.store, &other] {
        let secrets = store.secrets().await.unwrap();
        let seen: Vec<_> = secrets
            .iter()
            .map(|one| (&*one.provider, &*one.sealed, &*one.source))
            .collect();
        assert_eq!(seen, [("asana", &*bytes, "handshake"), ("notion", &[2], "handshake")]);
        let age = jiff::Timestamp::now().duration_since(secrets[0].created_at);
        assert!(age.as_secs().abs() < 60, "{age:?}");
    }
    other.close().await;
}

async fn of_many_at_once_one_is_kept(db: Db) {
    let other = open(&db.url, Options::default()).await.unwrap();
    let stores = [Arc::clone(&db.store), Arc::clone(&other)];
    let tries = (0..16_usize).map(|n| {
        let store = Arc::clone(&stores[n % 2]);
        tokio::spawn(async move { store.set_secret("p", Some(vec![1]), "handshake").await.unwrap() })
    });
    let mut kept = 0;
    for one in tries.collect::<Vec<_>>() {
        kept += usize::from(one.await.unwrap());
    }
    assert_eq!(kept, 1);
    assert_eq!(db.number("SELECT count(*) FROM provider_secrets").await, 1);
    other.close().await;
}

async fn a_removed_secret_makes_room_and_its_row_stays(db: Db) {
    assert!(!db.store.set_secret("p", None, "cli").await.unwrap());
    assert!(db.store.set_secret("p", Some(vec![1]), "handshake").await.unwrap());
    assert!(db.store.set_secret("p", None, "cli").await.unwrap());
    assert!(!db.store.set_secret("p", None, "cli").await.unwrap());
    assert!(db.store.secrets().await.unwrap().is_empty());
    assert!(db.store.set_secret("p", Some(vec![2]), "handshake").await.unwrap());
    assert_eq!(db.store.secrets().await.unwrap()[0].sealed, [2]);
    let sources = db
        .texts("SELECT source FROM provider_secrets ORDER BY generation")
        .await;
    assert_eq!(sources, ["handshake", "cli", "handshake"]);
    let lines = db
        .texts("SELECT actor || ' ' || action || ' ' || target FROM audit ORDER BY id")
        .await;
    let expected = [
        "handshake keep_secret p",
        "cli remove_secret p",
        "handshake keep_secret p",
    ];
    assert_eq!(lines, expected);
}
