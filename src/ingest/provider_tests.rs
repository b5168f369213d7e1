//! Which adapters and providers are refused before any request comes.

use super::{
    tests::{BODY, NOW, STRIPE, events, registry, run, spec, stripe_header},
    *,
};
use crate::{
    adapters::{Adapter, ProviderError},
    domain::HeaderList,
};

#[test]
fn providers_that_could_not_tell_true_from_false_are_refused() {
    let error = |manifest: &str, secrets: &[&str]| Provider::new(spec(secrets), &registry(manifest)).unwrap_err();
    assert!(matches!(error(STRIPE, &[]), ProviderError::NoSecret { .. }));
    assert!(matches!(
        error(STRIPE, &["whsec_a", " \n"]),
        ProviderError::Secret { number: 2, .. }
    ));
    let whsec = STRIPE.replace("tolerance = \"5m\"", "key = \"whsec\"");
    let shown = error(&whsec, &["whsec_!secret!"]).to_string();
    assert!(shown.contains("not base64") && !shown.contains("!secret!"), "{shown}");
    assert!(error(&whsec, &["whsec_"]).to_string().contains("decodes to nothing"));
    let mut none = spec(&[]);
    none.verify = Some("none".into());
    let provider = Provider::new(none, &registry(STRIPE)).unwrap();
    assert!(provider.warnings()[0].contains("anyone"));
    assert!(provider.warnings().len() == 1 && !provider.verifies());
}

#[test]
fn overrides_change_the_rules_and_mistakes_are_named() {
    let mut spec = spec(&["s"]);
    spec.tolerance = Some("none".into());
    spec.event = toml::from_str("id = 'body:/type'").unwrap();
    spec.signature = toml::from_str("source = 'header:X-Sig'").unwrap();
    let provider = Provider::new(spec.clone(), &registry(STRIPE)).unwrap();
    let header = stripe_header("s", "1", BODY);
    let headers = HeaderList::new(vec![("x-sig", header.as_bytes())]);
    assert_eq!(events(run(&provider, &headers, BODY))[0].id, "a.b");

    spec.event = toml::from_str("id = 'nope:/type'").unwrap();
    let error = Provider::new(spec.clone(), &registry(STRIPE)).unwrap_err().to_string();
    assert!(error.contains("event.id") && error.contains("nope:/type"), "{error}");
    spec.event = toml::from_str("idd = 'body:/type'").unwrap();
    let error = Provider::new(spec.clone(), &registry(STRIPE)).unwrap_err().to_string();
    assert!(error.contains("idd"), "{error}");
    spec.event.clear();
    spec.accept = Some(vec!["other".into()]);
    assert!(Provider::new(spec, &registry(STRIPE)).is_err());
}

#[test]
fn the_short_forms_mean_the_long_ones() {
    const SHORT: &str = r#"
        title = "Short"
        docs = "https://example.com"
        [[signature]]
        scheme = "hmac-sha256"
        header = "Stripe-Signature"
        format = "t={timestamp},v1={signature}"
        message = "{timestamp}.{body}"
        tolerance = "5m"
        [event]
        id = "body:/id"
        type = "body:/type"
    "#;
    let mut spec = spec(&["s"]);
    let provider = Provider::new(spec.clone(), &registry(SHORT)).unwrap();
    let header = format!("v0=00, {}", stripe_header("s", &NOW.to_string(), BODY));
    let headers = HeaderList::new(vec![("stripe-signature", header.as_bytes())]);
    assert_eq!(events(run(&provider, &headers, BODY)).len(), 1);

    spec.signature = toml::from_str("header = 'X-Sig'").unwrap();
    let provider = Provider::new(spec, &registry(SHORT)).unwrap();
    let headers = HeaderList::new(vec![("x-sig", header.as_bytes())]);
    assert_eq!(events(run(&provider, &headers, BODY)).len(), 1);
}

#[test]
fn manifest_mistakes_name_file_line_and_key() {
    let error = Adapter::parse("p", &STRIPE.replace("{timestamp}.{body}", "{nonce}")).unwrap_err();
    assert_eq!(
        (error.file.as_str(), error.line, error.key.as_str()),
        ("p/adapter.toml", 9, "signature[0].message")
    );
    let error = Adapter::parse("p", &STRIPE.replace("tolerance", "tolerence")).unwrap_err();
    assert!(error.to_string().starts_with("p/adapter.toml:10: "), "{error}");
    let error = Adapter::parse("p", "title = \"x\"").unwrap_err();
    assert_eq!(error.key, "signature");
}

#[test]
fn overrides_of_signing_keys_pass_over_tokens() {
    let manifest = "title='t'\n[[signature]]\nscheme='token'\nsource='header:X-T'\n\
        [[signature]]\nscheme='hmac-sha256'\nsource='header:X-S'\n[event]\nid='body:/id'";
    let mut spec = spec(&["s"]);
    spec.signature = toml::from_str("encoding = 'base64'").unwrap();
    let provider = Provider::new(spec.clone(), &registry(manifest)).unwrap();
    let headers = HeaderList::new(vec![("x-t", b"s")]);
    assert!(run(&provider, &headers, b"{\"id\":1}").is_ok());
    spec.tolerance = Some("5m".into());
    let error = Provider::new(spec, &registry(manifest)).unwrap_err();
    assert!(matches!(error, ProviderError::Setting { .. }), "{error}");
}

#[test]
fn a_secret_is_tried_with_the_rules_that_it_suits() {
    let manifest = "title='t'\n[[signature]]\nname='signed'\nscheme='hmac-sha256'\nkey='whsec'\nsource='header:X-S'\n\
        [[signature]]\nname='token'\nscheme='token'\nsource='header:X-T'\n[event]\nid='body:/id'";
    let mut spec = spec(&["not base64!", "whsec_c2VjcmV0"]);
    let provider = Provider::new(spec.clone(), &registry(manifest)).unwrap();
    let headers = HeaderList::new(vec![("x-t", b"not base64!")]);
    assert!(run(&provider, &headers, b"{\"id\":1}").is_ok());
    spec.accept = Some(vec!["signed".into()]);
    let error = Provider::new(spec, &registry(manifest)).unwrap_err();
    assert!(matches!(error, ProviderError::Secret { number: 1, .. }), "{error}");
}

#[test]
fn a_rule_that_an_option_brings_into_play_is_not_there_without_it() {
    let registry = crate::adapters::Registry::embedded();
    let made = |secrets: &[&str], domain: Option<&str>| {
        let mut spec = spec(secrets);
        spec.adapter = Some("saleor".into());
        spec.options = domain.map(|name| ("domain".into(), name.into())).into_iter().collect();
        Provider::new(spec, &registry)
    };
    let shared = made(&["secret"], None).unwrap();
    assert!(
        !shared.fetches_keys() && shared.warnings().is_empty(),
        "{:?}",
        shared.warnings()
    );
    let fetched = made(&[], Some("shop.example.com")).unwrap();
    assert_eq!(
        fetched.due_keys(tests::now()),
        ["https://shop.example.com/.well-known/jwks.json"]
    );
    assert!(fetched.warnings().is_empty(), "{:?}", fetched.warnings());
    let error = made(&[], None).unwrap_err().to_string();
    assert!(error.contains("the option is not set"), "{error}");
    for domain in ["shop.example.com:8443", "user@shop.example.com", "shop.example.com#"] {
        let odd = made(&[], Some(domain)).unwrap();
        assert!(odd.due_keys(tests::now()).is_empty());
        assert!(
            odd.warnings().join("").contains("no plain https URL"),
            "{:?}",
            odd.warnings()
        );
    }
}

#[test]
fn secrets_are_never_printed() {
    let provider = Provider::new(spec(&["whsec_hidden"]), &registry(STRIPE)).unwrap();
    assert!(!format!("{provider:?}").contains("hidden"));
}

#[test]
fn keys_at_a_url_that_options_decide_are_due_before_any_request() {
    let manifest = "title='t'\n[[signature]]\nname='fetched'\nscheme='rsa-sha256'\nkey='fetched'\nsource='header:X-S'\n\
        [[signature]]\nname='pinned'\nscheme='rsa-sha256'\nsource='header:X-S'\n\
        [keys]\nurl='https://[{config:environment}-]keys.example.com/set'\n\
        hosts=['keys.example.com', 'test-keys.example.com']\nformat='jwks'\n[event]\nid='body:/id'";
    let due = |environment: Option<&str>, accept: Option<&str>| {
        let secrets: &[&str] = match accept {
            None | Some("fetched") => &[],
            _ => &[suite_tests::RSA],
        };
        let mut spec = spec(secrets);
        spec.options = environment
            .map(|value| ("environment".into(), value.into()))
            .into_iter()
            .collect();
        spec.accept = accept.map(|name| vec![name.to_owned()]);
        let provider = Provider::new(spec, &registry(manifest)).unwrap();
        assert_eq!(provider.fetches_keys(), accept != Some("pinned"));
        assert!(!provider.warnings().iter().any(|text| text.contains("environment")));
        provider.due_keys(tests::now())
    };
    assert_eq!(due(None, None), ["https://keys.example.com/set"]);
    assert_eq!(due(Some("test"), None), ["https://test-keys.example.com/set"]);
    assert!(due(Some("evil.example/"), None).is_empty());
    assert!(!due(None, Some("fetched")).is_empty());
    due(None, Some("pinned"));
}
