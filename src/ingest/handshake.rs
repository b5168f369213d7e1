//! Ownership challenges: answered, and not stored.

use super::{
    Answer, Rejection,
    scope::{Frame, Scope},
};
use crate::adapters::Handshake;

/// The answer to a handshake, where the request is one. Those that must be signed are looked at after verification,
/// the others before it.
pub(crate) fn answer(scope: &Scope<'_, '_>, signed: bool) -> Result<Option<Answer>, Rejection> {
    let frame = Frame {
        secret: scope.secret(),
        ..Frame::default()
    };
    for handshake in &scope.provider.rules.handshakes {
        let is = handshake.signed == signed
            && handshake.method == scope.request.method
            && scope.holds(&handshake.when, frame);
        if is {
            return give(scope, handshake, frame).map(Some);
        }
    }
    Ok(None)
}

fn give(
    scope: &Scope<'_, '_>,
    handshake: &Handshake,
    frame: Frame<'_>,
) -> Result<Answer, Rejection> {
    let refused = Rejection::Handshake {
        status: handshake.refuse,
    };
    if !scope.holds(&handshake.require, frame) {
        return Err(refused);
    }
    let Some(body) = scope.text(&handshake.body, frame) else {
        return Err(refused);
    };
    let mut headers = vec![("X-Content-Type-Options".to_owned(), "nosniff".to_owned())];
    for (name, template) in &handshake.headers {
        match scope
            .text(template, frame)
            .as_deref()
            .and_then(header_value)
        {
            Some(value) => headers.push((name.clone(), value)),
            None => return Err(refused),
        }
    }
    Ok(Answer {
        status: handshake.status,
        content_type: handshake.content_type.clone(),
        headers,
        body: body.into_owned(),
    })
}

/// A value that may stand in a header: visible ASCII, so that nothing the caller chose can begin a new line.
fn header_value(value: &[u8]) -> Option<String> {
    let visible = value.iter().all(|byte| (b' '..=b'~').contains(byte));
    visible.then(|| String::from_utf8_lossy(value).into_owned())
}
