//! Signs as the providers do, from their public pages: <https://docs.stripe.com/webhooks#verify-manually> and
//! <https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries> (read 2026-11-30).

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

pub const STRIPE_SECRET: &str = "whsec_end_to_end_stripe_secret";
pub const GITHUB_SECRET: &str = "end-to-end-github-secret";

pub type Headers = Vec<(String, String)>;

/// The headers of a Stripe request signed now.
pub fn stripe(body: &[u8]) -> Headers {
    stripe_at(body, now())
}

/// The headers of a Stripe request signed at a time in Unix seconds.
pub fn stripe_at(body: &[u8], time: i64) -> Headers {
    vec![
        ("Content-Type".into(), "application/json; charset=utf-8".into()),
        ("Stripe-Signature".into(), stripe_signature(STRIPE_SECRET, body, time)),
    ]
}

pub fn stripe_signature(secret: &str, body: &[u8], time: i64) -> String {
    let message = [time.to_string().as_bytes(), b".", body].concat();
    format!("t={time},v1={}", hmac_hex(secret, &message))
}

/// The headers of a GitHub request.
pub fn github(delivery: &str, event: &str, body: &[u8]) -> Headers {
    vec![
        ("Content-Type".into(), "application/json".into()),
        ("X-GitHub-Delivery".into(), delivery.into()),
        ("X-GitHub-Event".into(), event.into()),
        (
            "X-Hub-Signature-256".into(),
            format!("sha256={}", hmac_hex(GITHUB_SECRET, body)),
        ),
    ]
}

pub fn hmac_hex(secret: &str, message: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(message);
    hex::encode(mac.finalize().into_bytes())
}

/// Unix seconds.
#[allow(clippy::disallowed_methods, reason = "a sender signs with the clock on its wall")]
pub fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(elapsed.as_secs()).unwrap()
}
