//! Rate limits of providers, and events that come again.

use crate::{adapters::Provider, domain::Rate, store::StoreError};

use super::*;

/// Servers with one more provider, `extra`.
fn serve_extra(change: impl FnOnce(ProviderSpec) -> ProviderSpec) -> (Servers, Arc<Providers>) {
    let store = Arc::new(MemoryStore::default());
    let services = services(store.clone());
    let providers = services.providers.clone();
    providers.put(extra(change));
    let shutdown = CancellationToken::new();
    let running = start(settings(), services, shutdown.clone()).unwrap();
    let servers = Servers {
        store,
        public: running.public.unwrap(),
        admin: running.admin,
        running: Some(running),
        shutdown,
    };
    (servers, providers)
}

fn extra(change: impl FnOnce(ProviderSpec) -> ProviderSpec) -> Arc<Provider> {
    let mut registry = Registry::default();
    registry.insert(Adapter::parse("acme", ADAPTER).unwrap());
    let spec = ProviderSpec {
        name: "extra".into(),
        adapter: Some("acme".into()),
        secrets: vec![SecretString::from("right")],
        public_url: "https://hooks.example.com".into(),
        max_body: MAX_BODY,
        on_conflict: 200,
        options: [("verify".to_owned(), "me".to_owned())].into(),
        ..ProviderSpec::default()
    };
    Arc::new(Provider::new(change(spec), &registry).unwrap())
}

fn limited(spec: ProviderSpec) -> ProviderSpec {
    ProviderSpec {
        rate_limit: Some(Rate::parse("2/h").unwrap()),
        ..spec
    }
}

#[tokio::test]
async fn what_is_over_the_rate_limit_is_told_when_to_come_again() {
    let (servers, providers) = serve_extra(limited);
    assert_eq!(send(servers.public, webhook("extra", r#"{"id":1}"#)).await.status, 200);
    // The body is never sent: the answer does not wait for it.
    let head = "POST /webhooks/extra HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n";
    let reply = send(servers.public, head.to_owned()).await;
    assert_eq!(reply.status, 429, "{reply:?}");
    reply.problem();
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1_700..=1_800).contains(&seconds), "{seconds}");
    // Others are not held to it, and nobody is who has no limit.
    for id in 0..20 {
        assert_eq!(
            send(servers.public, webhook("acme", &format!("{{\"id\":{id}}}")))
                .await
                .status,
            200
        );
    }
    // New keys are no new limit; another limit is.
    providers.put(extra(limited));
    assert_eq!(send(servers.public, webhook("extra", r#"{"id":2}"#)).await.status, 429);
    providers.put(extra(|spec| ProviderSpec {
        rate_limit: Some(Rate::parse("100/s").unwrap()),
        ..spec
    }));
    assert_eq!(send(servers.public, webhook("extra", r#"{"id":2}"#)).await.status, 200);
}

#[tokio::test]
async fn an_event_that_comes_again_is_revived_where_that_is_wanted() {
    let (servers, _) = serve_extra(|spec| ProviderSpec {
        revive: Some(true),
        ..spec
    });
    for provider in ["extra", "acme"] {
        for body in [r#"{"id":1}"#, r#"{"id":1}"#, r#"{"id":1,"x":1}"#] {
            assert_eq!(send(servers.public, webhook(provider, body)).await.status, 200);
        }
    }
    let revived = || servers.store.revived.lock().unwrap().clone();
    assert_eq!(revived(), ["extra:1"], "once, by the repetition; not by a conflict");
    let body = r#"{"items":[{"id":"a"},{"id":"b"},{"id":1}]}"#;
    assert_eq!(send(servers.public, webhook("extra", body)).await.status, 200);
    assert_eq!(revived(), ["extra:1", "extra:1"]);
    servers.store.fail(StoreError::Unavailable("away".into()));
    let reply = send(servers.public, webhook("extra", r#"{"id":1}"#)).await;
    assert_eq!(reply.status, 503);
}
