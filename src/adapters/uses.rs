//! What the rules of an adapter read beside the request: the options of the registered provider, and its URL.

use std::collections::BTreeSet;

use super::{
    expr::Expr,
    rules::Rules,
    template::{Operand, Test},
};

/// Whether the URL that the sender calls is signed.
pub(super) fn signs_url(rules: &Rules) -> bool {
    rules.signatures.iter().any(|rule| {
        rule.message.exprs().into_iter().any(|expr| {
            expr.any(&|expr| {
                matches!(
                    expr,
                    Expr::Url | Expr::UrlWithPort | Expr::UrlBase | Expr::Host | Expr::PlivoUrl
                )
            })
        })
    })
}

/// The options that signatures and answers read as values.
pub(super) fn options(rules: &Rules) -> BTreeSet<&str> {
    let sources = rules.signatures.iter().flat_map(|rule| &rule.sources);
    let messages = rules.signatures.iter().flat_map(|rule| rule.message.exprs());
    let answers = rules.handshakes.iter().flat_map(|handshake| {
        let headers = handshake.headers.iter().flat_map(|(_, text)| text.exprs());
        handshake.body.exprs().into_iter().chain(headers)
    });
    let keys = rules.key_source.iter().flat_map(|source| source.url.required());
    let mut names = BTreeSet::new();
    for expr in sources.chain(messages).chain(answers).chain(keys) {
        gather(expr, &mut names);
    }
    names
}

/// Those, and the ones that conditions compare with.
pub(crate) fn all_options(rules: &Rules) -> BTreeSet<&str> {
    let claims = rules
        .signatures
        .iter()
        .flat_map(|rule| rule.claims.iter().chain(&rule.when));
    let handshakes = rules.handshakes.iter();
    let conditions = handshakes.flat_map(|handshake| handshake.when.iter().chain(&handshake.require));
    let mut names = options(rules);
    let keys = rules.key_source.iter().flat_map(|source| source.url.exprs());
    keys.for_each(|expr| gather(expr, &mut names));
    let event = &rules.event;
    let selectors = [&event.id, &event.key, &event.kind, &event.time, &event.ordering];
    let selected = selectors.into_iter().flatten().map(|selector| &selector.value);
    let batched = rules
        .batch
        .iter()
        .flat_map(|batch| batch.headers.iter().map(|(_, text)| text));
    for expr in selected.chain(batched).flat_map(|text| text.exprs()) {
        gather(expr, &mut names);
    }
    let bound = rules
        .bind
        .iter()
        .flat_map(|bind| bind.when.iter().chain([&bind.condition]));
    for condition in bound.chain(claims).chain(conditions) {
        gather(&condition.expr, &mut names);
        if let Test::Equals(Operand::Config(name)) | Test::Differs(Operand::Config(name)) = &condition.test {
            names.insert(name);
        }
        if let Test::Equals(Operand::Template(text)) | Test::Differs(Operand::Template(text)) = &condition.test {
            text.exprs().into_iter().for_each(|expr| gather(expr, &mut names));
        }
    }
    names
}

fn gather<'r>(expr: &'r Expr, names: &mut BTreeSet<&'r str>) {
    if let Expr::Config(name) = expr {
        names.insert(name);
    }
    expr.inner().iter().for_each(|inner| gather(inner, names));
}
