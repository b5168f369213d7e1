//! The sender's key, from those that were fetched before.

use std::{borrow::Cow, sync::Arc};

use super::{
    Rejection,
    scope::{Frame, Scope},
};
use crate::adapters::{Fetched, KeySource, is_pinned, is_trusted};

/// What is at hand at the URL that the adapter or the request names.
pub(crate) fn keys(scope: &Scope<'_, '_>, frame: Frame<'_>) -> Result<Arc<Fetched>, Rejection> {
    let Some(source) = &scope.provider.rules.key_source else {
        return Err(Rejection::UntrustedKey);
    };
    let url = url(scope, source, frame)?;
    let Some(fetched) = scope.provider.fetched.get(&url) else {
        return Err(Rejection::CannotVerifyNow { url: url.into_owned() });
    };
    if !fetched.is_fresh(source, scope.now) {
        return Err(Rejection::CannotVerifyNow { url: url.into_owned() });
    }
    if !source.subjects.is_empty()
        && !is_trusted(
            &fetched.certificates,
            &scope.provider.roots,
            &source.subjects,
            scope.now,
        )
    {
        return Err(Rejection::UntrustedKey);
    }
    Ok(fetched)
}

/// The same, where the set must hold a key of this id.
pub(crate) fn keys_with(scope: &Scope<'_, '_>, frame: Frame<'_>, kid: Option<&str>) -> Result<Arc<Fetched>, Rejection> {
    let fetched = keys(scope, frame)?;
    // A key without an id is at a URL of its own.
    let fits = |known: &Option<String>| known.is_none() || known.as_deref() == kid;
    let known = fetched.keys.keys.iter().any(|key| fits(&key.kid));
    let (Some(source), false) = (&scope.provider.rules.key_source, known || kid.is_none()) else {
        return Ok(fetched);
    };
    match fetched.may_lack(scope.now) {
        // A key that was made since; asked for again at most so often.
        true => Err(Rejection::CannotVerifyNow {
            url: url(scope, source, frame)?.into_owned(),
        }),
        false => Ok(fetched),
    }
}

fn url<'s>(scope: &'s Scope<'_, '_>, source: &'s KeySource, frame: Frame<'s>) -> Result<Cow<'s, str>, Rejection> {
    if let Some(url) = &source.fixed {
        return Ok(Cow::Borrowed(url));
    }
    let url = scope.text(&source.url, frame).ok_or(Rejection::MalformedSignature)?;
    let url = String::from_utf8(url.into_owned()).map_err(|_| Rejection::UntrustedKey)?;
    match is_pinned(&url, &source.hosts) {
        true => Ok(Cow::Owned(url)),
        false => Err(Rejection::UntrustedKey),
    }
}
