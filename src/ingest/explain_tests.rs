//! What people are told, and what they are not.

use super::{
    explain::{Mark, explain},
    tests::{STRIPE, now, provider},
    *,
};

const SAMPLE: &str = "POST /webhooks/p HTTP/1.1\nContent-Type: application/json\n\n{\"id\": \"evt_1\", \"n\": 1}\n";

fn told(manifest: &str, secret: &str, signer: &str, change: impl Fn(&mut OwnedRequest)) -> String {
    let mut request = sign(
        &provider(manifest, &[signer]),
        &OwnedRequest::parse_sample(SAMPLE.as_bytes(), "https://h").unwrap(),
        now(),
        Bad::None,
    )
    .unwrap();
    change(&mut request);
    let headers = request.header_list();
    let steps = explain(&provider(manifest, &[secret]), &request.raw(&headers), now());
    assert!(!steps.is_empty());
    let text: Vec<_> = steps.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    assert!(!text.contains(secret) && !text.contains(signer), "{text}");
    text
}

#[test]
fn causes_are_found() {
    let secret = "whsec_c2VjcmV0c2VjcmV0";
    let same = |change: fn(&mut OwnedRequest)| told(STRIPE, secret, secret, change);
    let good = same(|_| {});
    assert!(
        good.contains("+ secret 1 gives this signature") && good.contains("authentic: 1 event"),
        "{good}"
    );
    let text = same(|request| request.body.push(b'\n'));
    assert!(
        text.contains("without its trailing newline") && text.contains("wrong_signature"),
        "{text}"
    );
    let text = same(|request| request.body = b"{\"id\":\"evt_1\",\"n\":1}".to_vec());
    assert!(text.contains("re-encoded"), "{text}");
    let text = same(|request| request.headers.clear());
    assert!(text.contains("no signature where"), "{text}");
    let text = same(|request| request.set_header("Stripe-Signature", "nonsense"));
    assert!(text.contains("not written as `format` says"), "{text}");
    let text = told(STRIPE, "whsec_other", secret, |_| {});
    assert!(text.contains("another endpoint"), "{text}");
    let text = told(STRIPE, "whsec_c2VjcmV0c2VjcmV0 ", secret, |_| {});
    assert!(text.contains("white space around the secret"), "{text}");
    let decoded = STRIPE.replace("tolerance = \"5m\"", "key = \"whsec\"");
    let text = {
        let request = sign(
            &provider(&decoded, &[secret]),
            &OwnedRequest::parse_sample(SAMPLE.as_bytes(), "https://h").unwrap(),
            now(),
            Bad::None,
        )
        .unwrap();
        let headers = request.header_list();
        explain(&provider(STRIPE, &[secret]), &request.raw(&headers), now())
    };
    let hint = text.iter().find(|step| step.mark == Mark::Hint).unwrap();
    assert!(hint.text.contains("base64"), "{hint}");
}

#[test]
fn right_signatures_are_not_shown_whole() {
    let secret = "whsec_c2VjcmV0c2VjcmV0";
    let request = sign(
        &provider(STRIPE, &[secret]),
        &OwnedRequest::parse_sample(SAMPLE.as_bytes(), "https://h").unwrap(),
        now(),
        Bad::None,
    )
    .unwrap();
    let header = String::from_utf8(request.header("stripe-signature").unwrap().to_vec()).unwrap();
    let right = header.split_once("v1=").unwrap().1;
    let text = told(STRIPE, secret, "whsec_x", |_| {});
    assert!(text.contains(&right[..8]) && !text.contains(&right[..12]), "{text}");
}

#[test]
fn a_form_in_the_place_of_json_is_pointed_out() {
    let manifest = "title='t'\n[[signature]]\nscheme='token'\nsource='header:X'\n[body]\nform_field='payload'\n[event]\nid='body:/id'";
    let instead = &manifest.replace("[event]", "json_instead=true\n[event]");
    let form = |request: &mut OwnedRequest| {
        request.set_header("Content-Type", "application/x-www-form-urlencoded");
        request.body = b"payload=%7B%22id%22%3A1%7D".to_vec();
    };
    let secret = "a-secret-of-this-test";
    assert!(told(instead, secret, secret, form).contains("choose JSON (application/json) at the sender"));
    // A sender that knows forms only is not to blame.
    let only = told(manifest, secret, secret, form);
    assert!(only.contains("form-encoded") && !only.contains("choose JSON"), "{only}");
    assert!(!told(instead, secret, secret, |_| {}).contains("form-encoded"));
}
