//! What both servers share: the Stripe check, and reading the id and the type.

use actix_web::HttpRequest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use sha2::Sha256;

/// The two fields that the usual design reads.
#[derive(Deserialize)]
pub struct Head<'a> {
    pub id: &'a str,
    #[serde(rename = "type")]
    pub event_type: &'a str,
}

/// Whether the request carries a Stripe signature of these bytes. The time is not judged: the senders of a measurement
/// sign beforehand.
pub fn verify(request: &HttpRequest, body: &[u8], secret: &str) -> bool {
    let header = request.headers().get("Stripe-Signature");
    let Some(header) = header.and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let (mut time, mut signature) = (None, None);
    for item in header.split(',') {
        match item.split_once('=') {
            Some(("t", value)) => time = Some(value),
            Some(("v1", value)) => signature = hex::decode(value).ok(),
            _ => {}
        }
    }
    let (Some(time), Some(signature)) = (time, signature) else {
        return false;
    };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return false;
    };
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac.verify_slice(&signature).is_ok()
}

/// The value of an environment variable that the script sets.
pub fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
