//! What the rules of adapters leave open.

use super::{Adapter, Gap, Registry, Uncovered};

fn words(adapter: &Adapter) -> String {
    let all = adapter.uncovered();
    let one = |one: &Uncovered| {
        let words: Vec<_> = one.gaps.iter().map(Gap::word).collect();
        format!("{}: {}", one.rules.join(" "), words.join(", "))
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_is_not_signed_follows_from_the_rules() {
    let registry = Registry::embedded();
    for (name, expected) in [
        ("stripe", "hmac-sha256: "),
        ("svix", "svix standard: "),
        ("github", "hmac-sha256: id, type, time"),
        ("asaas", "token: everything"),
        ("mercadopago", "v1: body, time; v1-id-as-sent: body, time"),
        ("paypal", "rsa-sha256: body (a checksum only), time"),
        (
            "amazon_sns",
            "notification-v2 notification-v1: most of the body, time; confirmation-v2 confirmation-v1: most of the body, time",
        ),
        ("google_pubsub", "jwt: body"),
        ("truelayer", "jwt: time"),
        ("stone", "pinned fetched: id, time"),
        ("travis", "rsa-sha1: time"),
        (
            "twilio",
            "form form-with-port form-requery form-requery-with-port body-hash body-hash-with-port shared-key-form shared-key-form-with-port shared-key-body-hash shared-key-body-hash-with-port: id, time",
        ),
        ("wecom", "message: most of the body, time"),
        ("twitch", "hmac-sha256: "),
        ("lemonsqueezy", "hmac-sha256: time"),
        ("adyen", "payments: most of the body, id, time; platform: time"),
    ] {
        let adapter = registry.get(name).unwrap();
        assert_eq!(words(adapter), expected, "{name}");
    }
}

#[test]
fn a_body_that_is_tied_to_what_is_signed_says_so() {
    let registry = Registry::embedded();
    let open = registry.get("mercadopago").unwrap().uncovered();
    assert!(open[0].bound[0].contains("data/id"), "{open:?}");
    assert!(open[0].message.contains("query:data.id") && open[0].names_fields());
}

#[test]
fn a_time_that_is_judged_and_not_signed_is_told() {
    let manifest = |message: &str| {
        format!(
            "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='header:s'\ntimestamp='header:t'\n\
             message='{message}'\ntolerance='5m'\n[event]\nid='body:/id'"
        )
    };
    let gaps = |message: &str| words(&Adapter::parse("mine", &manifest(message)).unwrap());
    assert_eq!(gaps("{timestamp}.{body}"), "hmac-sha256: ");
    assert_eq!(gaps("{body}"), "hmac-sha256: time");
    assert_eq!(gaps("{timestamp}.{body:/id}"), "hmac-sha256: most of the body");
    assert_eq!(gaps("{timestamp}.{crc32(body)}"), "hmac-sha256: body (a checksum only)");
}
