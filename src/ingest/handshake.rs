//! Ownership challenges: answered, and not stored.

use secrecy::SecretString;

use super::{
    Answer, Confirm, Ingested, Rejection,
    scope::{Frame, Scope},
};
use crate::adapters::{Handshake, is_pinned};

/// The answer to a handshake, where the request is one. Those that must be signed are looked at after verification,
/// the others before it.
pub(crate) fn answer<'a>(scope: &Scope<'_, 'a>, signed: bool) -> Result<Option<Ingested<'a>>, Rejection> {
    let frame = Frame {
        secret: scope.secret(),
        // Unsigned, only the newest secret decrypts, and `require` asks for a part of it in the text.
        opens: (!signed).then_some(0),
        secret_id: scope.secret().and_then(|secret| {
            let colon = secret.iter().position(|byte| *byte == b':')?;
            Some(&secret[..colon])
        }),
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

fn give<'a>(scope: &Scope<'_, 'a>, handshake: &Handshake, frame: Frame<'_>) -> Result<Ingested<'a>, Rejection> {
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
        match scope.text(template, frame).as_deref().and_then(header_value) {
            Some(value) => headers.push((name.clone(), value)),
            None => return Err(refused),
        }
    }
    let text = |template| {
        let value = scope.text(template, frame).filter(|value| !value.is_empty())?;
        String::from_utf8(value.into_owned()).ok()
    };
    let keep = match &handshake.keep {
        None => None,
        // To answer without it would be to lose it.
        Some(template) => Some(SecretString::from(text(template).ok_or_else(|| refused.clone())?)),
    };
    let confirm = match &handshake.confirm {
        None => None,
        Some((template, hosts)) => {
            let url = text(template).filter(|url| is_pinned(url, hosts));
            Some(Confirm {
                url: url.ok_or(refused)?,
                // What proves nothing makes us call nothing.
                call: handshake.call && scope.provider.rules.verify,
            })
        }
    };
    let answer = Answer {
        status: handshake.status,
        content_type: handshake.content_type.clone(),
        headers,
        body: body.into_owned(),
    };
    Ok(Ingested::Handshake {
        answer,
        keep,
        refuse: handshake.refuse,
        confirm,
    })
}

/// A value that may stand in a header: visible ASCII, so that nothing the caller chose can begin a new line.
fn header_value(value: &[u8]) -> Option<String> {
    let visible = value.iter().all(|byte| (b' '..=b'~').contains(byte));
    visible.then(|| String::from_utf8_lossy(value).into_owned())
}
