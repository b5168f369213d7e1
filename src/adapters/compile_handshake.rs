//! The rules of a handshake: what it is known by, and what it is answered with.

use toml::Spanned;

use super::{
    check_answers::macs,
    compile::{Compiled, RuleError, conditions, content_type, fail, is_sendable, status},
    compile_keys::hosts,
    manifest::{HandshakeTable, Text},
    parser::{Allowed, Parser},
    rules::Handshake,
    template::Template,
};

pub(super) fn handshake(
    parser: &mut Parser,
    index: usize,
    table: &HandshakeTable,
    bound: Allowed<'_>,
) -> Compiled<Handshake> {
    let key = |name: &str| format!("handshake[{index}].{name}");
    let method = table.method.as_ref().map_or("POST", |text| text.get_ref());
    let signed = table.signed.unwrap_or(method == "POST");
    let allowed = Allowed {
        secret: true,
        hmac: true,
        claims: bound.claims && signed,
        decrypted: bound.decrypted && (signed || !parser.decrypts_first),
        secret_id: true,
        ..Allowed::default()
    };
    if let Some(text) = &table.method
        && !["GET", "POST", "HEAD"].contains(&method)
    {
        return fail(text, &key("method"), "expected GET, POST or HEAD");
    }
    if table.when.is_none() && method != "HEAD" {
        return Err(RuleError {
            span: table.body.as_ref().map_or(0..0, Spanned::span),
            key: key("when"),
            message: "expected the conditions that make a request a handshake".into(),
        });
    }
    let mut template = |name: &str, text: &Spanned<String>| {
        parser
            .template(text.get_ref(), allowed)
            .or_else(|message| fail(text, &key(name), &message))
    };
    let body = match &table.body {
        Some(text) => template("body", text)?,
        None => Template::default(),
    };
    let mut optional = |name: &str, text: Option<&Text>| text.map(|text| template(name, text)).transpose();
    let keep = optional("keep", table.keep.as_ref().map(as_template).as_ref())?;
    let confirm = optional("confirm", table.confirm.as_ref().map(as_template).as_ref())?;
    let pinned = hosts(table.hosts.as_ref(), &key("hosts"))?;
    if let (Some(text), true) = (&table.confirm, pinned.is_empty()) {
        return fail(text, &key("hosts"), "expected the hosts that a URL to call may have");
    }
    let call = table.call.as_ref().is_some_and(|call| *call.get_ref());
    if let (Some(call), true) = (&table.call, call && !(signed && confirm.is_some())) {
        return fail(
            call,
            &key("call"),
            "expected `confirm` beside it, and a handshake that is signed",
        );
    }
    let headers = table
        .headers
        .iter()
        .map(|(name, text)| {
            let at = format!("headers.{name}");
            is_sendable(name, text, &key(&at))?;
            Ok((name.clone(), template(&at, text)?))
        })
        .collect::<Compiled<Vec<_>>>()?;
    let answer = std::iter::once(&body).chain(headers.iter().map(|(_, text)| text));
    let macs = if signed { Vec::new() } else { macs(answer) };
    Ok(Handshake {
        method: method.to_owned(),
        when: conditions(parser, table.when.as_ref(), &key("when"), allowed)?,
        require: conditions(parser, table.require.as_ref(), &key("require"), allowed)?,
        signed,
        macs,
        status: status(table.status.as_ref(), &key("status"), 200)?,
        content_type: content_type(table.content_type.as_ref(), &key("content_type"))?
            .unwrap_or_else(|| "text/plain".into()),
        body,
        headers,
        refuse: status(table.refuse.as_ref(), &key("refuse"), 401)?,
        keep,
        confirm: confirm.map(|url| (url, pinned)),
        call,
    })
}

/// A bare expression as the template of it alone.
fn as_template(text: &Text) -> Text {
    match text.get_ref().contains('{') {
        true => text.clone(),
        false => Spanned::new(text.span(), format!("{{{}}}", text.get_ref())),
    }
}
