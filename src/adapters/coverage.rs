//! What a signature leaves open, as its rule says it: what whoever sees one genuine request can change, or send again.

use std::collections::BTreeSet;

use super::{
    expr::{Doc, Expr, Function},
    gap::{Gap, Place, Uncovered},
    rules::{Rules, Scheme, Selector, Signature},
    template::{Condition, Operand, Template, Test},
};

/// How much of the body is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Proved {
    #[default]
    Nothing,
    Checksum,
    Fields,
    Whole,
}

/// What a rule covers.
#[derive(Debug, Default)]
struct Cover {
    body: Proved,
    /// In lower case.
    headers: BTreeSet<String>,
    queries: BTreeSet<String>,
    /// The whole query with the rest of the URL.
    url: bool,
    time: bool,
    /// Whether a request says itself which of its headers it signs.
    listed: bool,
    /// Headers and parameters that every request of the rule has, because it has no message without them.
    certain: BTreeSet<String>,
    /// Those that no request of the rule has, because it is not considered with them.
    absent: BTreeSet<String>,
}

/// What the rules leave open, rules that leave open the same together. Empty where nothing is verified.
pub(crate) fn uncovered(rules: &Rules, messages: &[Option<&str>]) -> Vec<Uncovered> {
    let mut found: Vec<Uncovered> = Vec::new();
    let carrier = rules.body_from.as_ref();
    for (rule, message) in rules.signatures.iter().zip(messages) {
        // What only asks is no event.
        if rule.when.iter().any(|condition| condition.text == "method == GET") {
            continue;
        }
        let cover = Cover::of(rule, carrier);
        let gaps = gaps(rules, rule, &cover);
        let one = Uncovered {
            rules: vec![rule.name.clone()],
            message: message.unwrap_or_default().to_owned(),
            bound: match cover.body {
                Proved::Whole => Vec::new(),
                _ => bound(rules, &cover),
            },
            gaps,
        };
        let same = |known: &&mut Uncovered| {
            known.gaps == one.gaps && known.bound == one.bound && (known.message == one.message || !one.names_fields())
        };
        match found.iter_mut().find(same) {
            Some(known) if known.rules.contains(&rule.name) => {}
            Some(known) => known.rules.push(rule.name.clone()),
            None => found.push(one),
        }
    }
    found
}

fn gaps(rules: &Rules, rule: &Signature, cover: &Cover) -> Vec<Gap> {
    if matches!(rule.scheme, Scheme::Token | Scheme::Basic) {
        return vec![Gap::Everything];
    }
    let mut gaps = Vec::new();
    gaps.extend(match cover.body {
        Proved::Nothing => Some(Gap::Body),
        Proved::Checksum => Some(Gap::Checksum),
        Proved::Fields => Some(Gap::Fields),
        Proved::Whole => None,
    });
    let event = &rules.event;
    // Where each key has a condition, the id may count.
    let id = if event.key.iter().any(|key| key.when.is_empty()) {
        &[][..]
    } else {
        &event.id[..]
    };
    let ids: Vec<&Selector> = event.key.iter().chain(id).collect();
    let place = |expr| Place {
        expr,
        listed: cover.listed,
    };
    // Of a body that is signed in part, another part may be what makes the id. What is decrypted stood in the part.
    let signed = rule.message.exprs();
    let is_free = |expr: &Expr| is_body(expr) && !signed.contains(&expr);
    let mut read = ids.iter().flat_map(|id| id.value.exprs());
    let is_part = cover.body == Proved::Fields && rules.decrypt.is_none();
    let body = (is_part && read.any(|expr| expr.any(&is_free))).then(|| "body:".to_owned());
    gaps.extend(cover.misses(ids).or(body).map(place).map(Gap::Id));
    gaps.extend(cover.misses(event.kind.iter()).map(place).map(Gap::Type));
    gaps.extend(time(rule, cover));
    gaps
}

fn time(rule: &Signature, cover: &Cover) -> Option<Gap> {
    // A token that must say when it ends.
    let ends = |condition: &Condition| condition.text.trim() == "claim:/exp" && condition.test == Test::Present;
    if rule.claims.iter().any(ends) {
        return None;
    }
    match (&rule.timestamp, rule.captures_time()) {
        (None, false) => Some(Gap::NoTime),
        _ if rule.tolerance.is_none() => Some(Gap::AnyTime),
        (None, true) => (!cover.time).then_some(Gap::FreeTime),
        (Some(expr), _) => (!cover.time && cover.outside(expr).is_some()).then_some(Gap::FreeTime),
    }
}

/// The conditions that compare what is not signed with what the request says elsewhere.
fn bound(rules: &Rules, cover: &Cover) -> Vec<String> {
    let ties = |condition: &&Condition| match &condition.test {
        Test::Equals(Operand::Template(text)) => cover.is_signed(&text.exprs()),
        _ => false,
    };
    let conditions = rules.bind.iter().map(|bind| &bind.condition);
    conditions
        .filter(ties)
        .map(|condition| condition.text.clone())
        .collect()
}

impl Cover {
    fn of(rule: &Signature, carrier: Option<&Expr>) -> Self {
        let mut cover = Self::default();
        if matches!(rule.scheme, Scheme::Token | Scheme::Basic) {
            return cover;
        }
        if rule.scheme != Scheme::Jwt || rule.detached {
            cover.template(&rule.message, carrier);
        }
        if rule.scheme == Scheme::Jwt {
            // A body that is a token is signed as one.
            for source in rule.sources.iter().filter(|source| source.any(&is_body)) {
                cover.body = match source {
                    Expr::Body | Expr::Decrypted => Proved::Whole,
                    _ if carrier.is_some() => Proved::Whole,
                    _ => Proved::Fields,
                };
            }
            for condition in &rule.claims {
                if let Test::Equals(Operand::Template(text)) = &condition.test {
                    cover.template(text, carrier);
                }
            }
        }
        cover.certain.extend(rule.message.required().filter_map(place));
        let absent = rule.when.iter().filter(|condition| condition.test == Test::Absent);
        cover
            .absent
            .extend(absent.filter_map(|condition| place(&condition.expr)));
        for condition in &rule.when {
            match (&condition.expr, &condition.test) {
                // There is no body that could be another.
                (Expr::Body, Test::Absent) => cover.body = Proved::Whole,
                // What is signed says what the rest must be.
                (expr, Test::Equals(Operand::Template(text))) => {
                    if cover.is_signed(&[expr]) {
                        cover.template(text, carrier);
                    } else if cover.is_signed(&text.exprs()) {
                        cover.take(expr, carrier);
                    }
                }
                _ => {}
            }
        }
        let time = rule.timestamp.as_ref().filter(|_| cover.time);
        if let Some(Expr::Header(name)) = time {
            cover.headers.insert(name.to_ascii_lowercase());
        }
        cover
    }

    fn template(&mut self, template: &Template, carrier: Option<&Expr>) {
        for expr in template.exprs() {
            self.take(expr, carrier);
        }
    }

    fn take(&mut self, expr: &Expr, carrier: Option<&Expr>) {
        // Whatever carries the JSON, signed as it is, is all that is read.
        if is_body(expr) && carrier.is_some_and(|carrier| carrier.any(&|part| part == expr)) {
            self.proves(Proved::Whole);
        }
        match expr {
            Expr::Body | Expr::FormSorted | Expr::FormPairs(_) | Expr::FormPhp(_) | Expr::Item | Expr::Decrypted => {
                self.proves(Proved::Whole);
            }
            Expr::PlivoUrl => {
                self.proves(Proved::Whole);
                self.url = true;
            }
            Expr::Json { doc: Doc::Claims, .. } => {}
            Expr::Json { .. } | Expr::KeyOf { .. } | Expr::Form(_) => self.proves(Proved::Fields),
            Expr::At(_, inner) => {
                let mut text = Self::default();
                text.take(inner, None);
                text.body = text.body.min(Proved::Fields);
                self.join(text);
            }
            Expr::Call(Function::Crc32, inner) => {
                let mut text = Self::default();
                text.take(inner, carrier);
                text.body = text.body.min(Proved::Checksum);
                self.join(text);
            }
            Expr::Header(name) | Expr::Numbered(name) => {
                self.headers.insert(name.to_ascii_lowercase());
            }
            Expr::Query(name) => {
                self.queries.insert(name.clone());
            }
            Expr::Headers(_) | Expr::HeaderLines(_) | Expr::HeaderValues(_) => self.listed = true,
            Expr::Url | Expr::UrlWithPort | Expr::QueryString | Expr::Qsh => self.url = true,
            Expr::Capture(name) if name == "timestamp" => self.time = true,
            other => other.inner().iter().for_each(|inner| self.take(inner, carrier)),
        }
    }

    /// Whether these read headers and parameters, and only signed ones.
    fn is_signed(&self, exprs: &[&Expr]) -> bool {
        let reads = |expr: &&&Expr| expr.any(&|part| place(part).is_some());
        exprs.iter().any(|expr| reads(&expr)) && exprs.iter().all(|expr| self.outside(expr).is_none())
    }

    fn proves(&mut self, what: Proved) {
        self.body = self.body.max(what);
    }

    fn join(&mut self, other: Self) {
        self.proves(other.body);
        self.headers.extend(other.headers);
        self.queries.extend(other.queries);
        self.url |= other.url;
        self.time |= other.time;
        self.listed |= other.listed;
    }

    /// The first place outside of what is signed that one of these reads. The body is another gap.
    fn misses<'s>(&self, selectors: impl IntoIterator<Item = &'s Selector>) -> Option<String> {
        for selector in selectors {
            let exprs = selector.value.exprs();
            if let Some(place) = exprs.iter().find_map(|expr| self.outside(expr)) {
                return Some(place);
            }
            // What comes after it is not asked: nobody can take away what is signed.
            let is_certain = |expr: &&Expr| match place(expr) {
                Some(place) => self.certain.contains(&place),
                None => true,
            };
            if selector.when.is_empty() && exprs.iter().all(is_certain) {
                return None;
            }
        }
        None
    }

    /// What an expression reads that is not signed: a header, a parameter, or what the request is numbered by.
    fn outside(&self, expr: &Expr) -> Option<String> {
        if place(expr).is_some_and(|place| self.absent.contains(&place)) {
            return None;
        }
        match expr {
            Expr::Header(name) => {
                let signed = self.headers.contains(&name.to_ascii_lowercase());
                (!signed).then(|| format!("header:{name}"))
            }
            Expr::Query(name) => (!self.url && !self.queries.contains(name)).then(|| format!("query:{name}")),
            // Another one each time, whoever sends.
            Expr::RequestId => Some("request_id".to_owned()),
            other => other.inner().iter().find_map(|inner| self.outside(inner)),
        }
    }
}

/// A header or parameter, by a name that is the same in any case.
fn place(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Header(name) => Some(format!("header:{}", name.to_ascii_lowercase())),
        Expr::Query(name) => Some(format!("query:{name}")),
        _ => None,
    }
}

/// Whether an expression reads the body.
fn is_body(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Body
            | Expr::Json {
                doc: Doc::Body | Doc::Form(_) | Doc::Item | Doc::Around(_),
                ..
            }
            | Expr::Form(_)
            | Expr::Item
            | Expr::Decrypted
            | Expr::Decrypt(_)
    )
}
