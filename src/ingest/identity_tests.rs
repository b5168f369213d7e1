//! What counts as one event, where the sender makes it hard: ids that are shared, absent, or beside bytes that change.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};

use super::{Ingested, ingest, tests::now};
use crate::{
    adapters::{Provider, ProviderSpec, Registry},
    domain::{HeaderList, RawRequest},
};

const JSON: (&str, &[u8]) = ("content-type", b"application/json");
const FORM: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::embedded);

/// The unique ids that an unverified request gives.
fn ids(adapter: &str, content_type: (&str, &[u8]), body: &str) -> Vec<String> {
    ids_at(now(), adapter, &[content_type], body)
}

fn ids_at(now: Timestamp, adapter: &str, headers: &[(&str, &[u8])], body: &str) -> Vec<String> {
    let spec = ProviderSpec {
        name: adapter.into(),
        verify: Some("none".into()),
        public_url: "https://hooks.example.com".into(),
        ..ProviderSpec::default()
    };
    let provider = Provider::new(spec, &REGISTRY).unwrap();
    let headers = HeaderList::new(headers.to_vec());
    let request = RawRequest {
        method: "POST",
        url: "https://hooks.example.com/webhooks/p",
        headers: &headers,
        body: body.as_bytes(),
    };
    match ingest(&provider, &request, now).unwrap() {
        Ingested::Events { events, .. } => events.into_iter().map(|event| event.id).collect(),
        Ingested::Handshake { answer, .. } => panic!("a handshake: {answer:?}"),
    }
}

/// All events of these requests are different ones, and each request sent again gives the same.
fn apart(adapter: &str, content_type: (&str, &[u8]), bodies: &[&str]) {
    let all: Vec<_> = bodies
        .iter()
        .flat_map(|body| {
            let first = ids(adapter, content_type, body);
            assert_eq!(first, ids(adapter, content_type, body), "{adapter}: {body}");
            first
        })
        .collect();
    let mut distinct = all.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), all.len(), "{adapter}: {all:?}");
    assert!(all.len() > 1, "{adapter}: {all:?}");
}

/// All requests are the same event.
fn same(adapter: &str, bodies: &[&str]) {
    let first = ids(adapter, JSON, bodies[0]);
    for body in bodies {
        assert_eq!(first, ids(adapter, JSON, body), "{adapter}: {body}");
    }
}

#[test]
fn states_of_one_object_are_different_events() {
    apart(
        "twilio",
        FORM,
        &[
            "MessageSid=SM1&MessageStatus=sent",
            "MessageSid=SM1&MessageStatus=delivered",
            "CallSid=CA1&CallStatus=in-progress&Digits=1",
            "CallSid=CA1&CallStatus=in-progress&Digits=2",
        ],
    );
    apart(
        "mandrill",
        FORM,
        &[
            "mandrill_events=[{\"event\":\"open\",\"_id\":\"1\",\"ts\":5},{\"event\":\"open\",\"_id\":\"1\",\"ts\":6},{\"event\":\"click\",\"_id\":\"1\",\"ts\":5}]",
        ],
    );
    let adyen = |code: &str| {
        format!(
            r#"{{"notificationItems":[{{"NotificationRequestItem":{{"pspReference":"A","eventCode":"{code}","success":"true"}}}}]}}"#
        )
    };
    apart("adyen", JSON, &[&adyen("AUTHORISATION"), &adyen("CHARGEBACK")]);
    apart(
        "adyen",
        JSON,
        &[
            r#"{"type":"balancePlatform.transfer.updated","data":{"id":"E"},"timestamp":"2026-01-05T10:00:00Z"}"#,
            r#"{"type":"balancePlatform.transfer.updated","data":{"id":"E"},"timestamp":"2026-01-05T10:00:01Z"}"#,
        ],
    );
    apart(
        "paystack",
        JSON,
        &[
            r#"{"event":"charge.dispute.remind","data":{"id":1,"status":"awaiting","updatedAt":"a"}}"#,
            r#"{"event":"charge.dispute.remind","data":{"id":1,"status":"awaiting","updatedAt":"b"}}"#,
            r#"{"event":"subscription.disable","data":{"subscription_code":"S1"}}"#,
            r#"{"event":"subscription.disable","data":{"subscription_code":"S2"}}"#,
        ],
    );
}

#[test]
fn parts_of_one_payment_are_different_events() {
    let order = |charges: &str| format!(r#"{{"id":"ORDE_1","charges":[{charges}]}}"#);
    let refunded =
        |cents: u32| format!(r#"{{"id":"CHAR_1","status":"PAID","amount":{{"summary":{{"refunded":{cents}}}}}}}"#);
    let second = r#"{"id":"CHAR_1","status":"DECLINED"},{"id":"CHAR_2","status":"PAID"}"#;
    let first = r#"{"id":"CHAR_1","status":"DECLINED"}"#;
    apart(
        "pagbank",
        JSON,
        &[
            &order(&refunded(0)),
            &order(&refunded(100)),
            &order(&refunded(200)),
            &order(first),
            &order(second),
        ],
    );
    apart(
        "iugu",
        FORM,
        &[
            "event=invoice.status_changed&data[id]=A&data[status]=partially_paid&data[paid_cents]=1",
            "event=invoice.status_changed&data[id]=A&data[status]=partially_paid&data[paid_cents]=2",
        ],
    );
    let merchant_order = |version: u32| {
        format!(
            r#"{{"id":7,"type":"topic_merchant_order_wh","action":"update","status":"opened","version":{version}}}"#
        )
    };
    apart("mercadopago", JSON, &[&merchant_order(1), &merchant_order(2)]);
    let dispute = |status: &str| {
        format!(
            r#"{{"notificationItems":[{{"NotificationRequestItem":{{"pspReference":"A","eventCode":"CHARGEBACK","success":"true","additionalData":{{"disputeStatus":"{status}"}}}}}}]}}"#
        )
    };
    apart("adyen", JSON, &[&dispute("Undefended"), &dispute("Won")]);
    let statuses = |ids: &str| {
        format!(r#"{{"entry":[{{"id":"1","changes":[{{"field":"messages","value":{{"statuses":[{ids}]}}}}]}}]}}"#)
    };
    let status = |id: u32| format!(r#"{{"id":"wamid.{id}","status":"sent"}}"#);
    apart(
        "meta",
        JSON,
        &[
            &statuses(&[status(1), status(2)].join(",")),
            &statuses(&[status(1), status(3)].join(",")),
        ],
    );
}

#[test]
fn equal_items_of_different_accounts_are_different_events() {
    apart(
        "meta",
        JSON,
        &[
            r#"{"entry":[{"id":"1","time":5,"changes":[{"field":"feed","value":{"item":"status"}}]},{"id":"2","time":5,"changes":[{"field":"feed","value":{"item":"status"}}]}]}"#,
            r#"{"entry":[{"id":"1","time":6,"changes":[{"field":"feed","value":{"item":"status"}}]}]}"#,
        ],
    );
    let entity = r#"{"name":"Customer","id":"5","operation":"Create","lastUpdated":"2026-01-05T10:00:00.000Z"}"#;
    apart(
        "quickbooks",
        JSON,
        &[&format!(
            r#"{{"eventNotifications":[{{"realmId":"1","dataChangeEvent":{{"entities":[{entity}]}}}},{{"realmId":"2","dataChangeEvent":{{"entities":[{entity}]}}}}]}}"#
        )],
    );
}

#[test]
fn a_retry_with_other_bytes_is_the_same_event() {
    same(
        "hubspot",
        &[
            r#"[{"eventId":1,"subscriptionId":2,"objectId":3,"occurredAt":4,"attemptNumber":0}]"#,
            r#"[{"eventId":1,"subscriptionId":2,"objectId":3,"occurredAt":4,"attemptNumber":1}]"#,
        ],
    );
    same(
        "figma",
        &[
            r#"{"event_type":"FILE_UPDATE","file_key":"f","retries":0,"timestamp":"t","webhook_id":"1"}"#,
            r#"{"event_type":"FILE_UPDATE","file_key":"f","retries":1,"timestamp":"t","webhook_id":"1"}"#,
        ],
    );
    same(
        "docusign",
        &[
            r#"{"event":"envelope-sent","retryCount":0,"generatedDateTime":"t","data":{"envelopeId":"e"}}"#,
            r#"{"event":"envelope-sent","retryCount":1,"generatedDateTime":"t","data":{"envelopeId":"e"}}"#,
        ],
    );
    same(
        "notion",
        &[r#"{"id":"1","attempt_number":1}"#, r#"{"id":"1","attempt_number":2}"#],
    );
}

#[test]
fn a_ping_that_says_nothing_is_never_a_duplicate() {
    let body = r#"{"list_folder":{"accounts":["dbid:1"]}}"#;
    let later = now() + SignedDuration::from_micros(1);
    assert_ne!(ids("dropbox", JSON, body), ids_at(later, "dropbox", &[JSON], body));
}

#[test]
fn one_action_may_be_several_events() {
    let shopify = |topic: &[u8], body: &str| {
        let headers: [(&str, &[u8]); 3] = [JSON, ("x-shopify-event-id", b"e"), ("x-shopify-topic", topic)];
        ids_at(now(), "shopify", &headers, body)
    };
    let created = shopify(b"orders/create", r#"{"id":1}"#);
    assert_eq!(created, shopify(b"orders/create", r#"{"id":1}"#));
    assert_ne!(created, shopify(b"orders/paid", r#"{"id":1}"#));
    assert_ne!(created, shopify(b"orders/create", r#"{"id":2}"#));
    let gitlab = |body: &str| {
        let uuid: (&str, &[u8]) = ("x-gitlab-event-uuid", b"u");
        ids_at(now(), "gitlab", &[JSON, uuid], body)
    };
    assert_ne!(gitlab(r#"{"a":1}"#), gitlab(r#"{"a":2}"#));
}
