//! One request under evaluation: what expressions read, each document parsed at most once and only when asked for.

use std::{borrow::Cow, cell::OnceCell, rc::Rc};

use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use subtle::ConstantTimeEq as _;

use super::{canonical, form};
use crate::{
    adapters::{Condition, Digester, Doc, Expr, Hash, Operand, Part, Provider, Selector, Template, Test},
    domain::RawRequest,
    json::{self, Found, JsonError, Wanted},
};

/// Most numbered headers that are looked at.
const MOST_NUMBERED: usize = 100;

/// A request and the provider it is read for.
pub(crate) struct Scope<'p, 'a> {
    pub(crate) provider: &'p Provider,
    pub(crate) request: RawRequest<'a>,
    pub(crate) now: Timestamp,
    body: OnceCell<Document<'a>>,
    /// Of the token that proved the request; empty before.
    claims: OnceCell<Document<'a>>,
    forms: Vec<OnceCell<Option<Document<'a>>>>,
    /// The secret that proved the request, where it was one; not set before.
    pub(super) proved_by: OnceCell<Option<usize>>,
    /// What is decrypted before the request is proved, and what a sample says open; see [`super::envelope`].
    pub(super) opened: OnceCell<Option<Vec<u8>>>,
}

/// A JSON text and where the wanted values lie in it.
pub(crate) struct Document<'a> {
    pub(crate) text: Cow<'a, [u8]>,
    pub(crate) found: Result<Found, JsonError>,
}

/// What stands beside the request while one expression is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frame<'f> {
    pub(crate) captures: &'f [(&'f str, Cow<'f, [u8]>)],
    pub(crate) secret: Option<&'f [u8]>,
    /// What stands before the colon in a secret that is a pair.
    pub(crate) secret_id: Option<&'f [u8]>,
    /// The secret that decrypts before the request is proved, by its index.
    pub(crate) opens: Option<usize>,
    /// Of the token under examination.
    pub(crate) claims: Option<&'f Document<'f>>,
    pub(crate) item: Option<&'f Document<'f>>,
    /// What an expression is taken to be, whatever the request says.
    pub(crate) assumed: Option<(&'f Expr, &'f [u8])>,
    /// The elements that the item lies in.
    pub(crate) around: &'f [Around<'f>],
}

/// An element that items lie in.
pub(crate) struct Around<'a> {
    /// Which of `Documents::around`.
    pub(crate) index: usize,
    pub(crate) document: Rc<Document<'a>>,
}

/// A value: borrowed from the request wherever it can be.
pub(crate) type Value<'s> = Option<Cow<'s, [u8]>>;

impl<'p, 'a> Scope<'p, 'a> {
    pub(crate) fn new(provider: &'p Provider, request: RawRequest<'a>, now: Timestamp) -> Self {
        Self {
            provider,
            request,
            now,
            body: OnceCell::new(),
            claims: OnceCell::new(),
            proved_by: OnceCell::new(),
            opened: OnceCell::new(),
            forms: provider.rules.documents.forms.iter().map(|_| OnceCell::new()).collect(),
        }
    }

    /// Reads one expression.
    pub(crate) fn eval<'s>(&'s self, expr: &'s Expr, frame: Frame<'s>) -> Value<'s> {
        let request = &self.request;
        if let Some((_, value)) = frame.assumed.filter(|(assumed, _)| *assumed == expr) {
            return Some(Cow::Borrowed(value));
        }
        match expr {
            Expr::Body => Some(Cow::Borrowed(request.body)),
            Expr::Json { doc, slot } => json::text::value(self.slice(*doc, *slot, frame)?),
            Expr::KeyOf { doc, names } => {
                let (name, _) = names
                    .iter()
                    .find(|(_, slot)| self.slice(*doc, *slot, frame).is_some())?;
                Some(Cow::Borrowed(name.as_bytes()))
            }
            Expr::Header(name) => self.header(name),
            Expr::Query(name) => form::first(self.query()?.as_bytes(), name),
            Expr::Form(name) => self.form_field(name),
            Expr::FormPairs(except) => Some(Cow::Owned(form::joined(self.form_body()?, except))),
            Expr::FormSorted if request.body.is_empty() => Some(Cow::Borrowed(b"")),
            Expr::FormSorted => Some(Cow::Owned(form::sorted(self.form_body()?))),
            Expr::FormPhp(except) => Some(Cow::Owned(canonical::php(self.form_body()?, except))),
            // As one value, where it is not a source.
            Expr::Numbered(prefix) => self.header(&format!("{prefix}1")),
            Expr::Item => Some(Cow::Borrowed(&*frame.item?.text)),
            Expr::RequestId => Some(Cow::Owned(self.request_id())),
            Expr::Headers(name) => self.headers(name),
            Expr::Url => Some(Cow::Borrowed(request.url.as_bytes())),
            Expr::UrlBase => Some(Cow::Borrowed(request.url.split(['?', '#']).next()?.as_bytes())),
            Expr::HeaderLines(names) => self.header_lines(&self.eval(names, frame)?),
            Expr::HeaderValues(names) => self.header_values(&self.eval(names, frame)?),
            Expr::Join(parts) => Some(Cow::Owned(self.all(parts, frame)?.concat())),
            Expr::First(parts) => {
                let mut values = parts.iter().filter_map(|part| self.eval(part, frame));
                values.find(|value| !value.is_empty())
            }
            Expr::Sorted(parts) => {
                let mut values = self.all(parts, frame)?;
                values.sort();
                Some(Cow::Owned(values.concat()))
            }
            Expr::Xml(lists, text) => Some(Cow::Owned(super::xml::to_json(&self.eval(text, frame)?, lists)?)),
            Expr::Decrypted => self.decrypted(frame),
            Expr::Decrypt(ciphertext) => self.decrypt(ciphertext, frame),
            Expr::UrlWithPort => Some(super::url::with_port(request.url)),
            Expr::Path => Some(Cow::Borrowed(super::url::parts(request.url).path.as_bytes())),
            Expr::Host => Some(Cow::Borrowed(super::url::parts(request.url).host.as_bytes())),
            Expr::QueryString => Some(Cow::Borrowed(self.query()?.as_bytes())),
            Expr::Method => Some(Cow::Borrowed(request.method.as_bytes())),
            Expr::Capture(name) => {
                let (_, value) = frame.captures.iter().find(|(known, _)| known == name)?;
                Some(Cow::Borrowed(value))
            }
            Expr::Secret => frame.secret.map(Cow::Borrowed),
            Expr::SecretId => frame.secret_id.map(Cow::Borrowed),
            Expr::Qsh => Some(Cow::Owned(canonical::qsh(
                request.method,
                request.url,
                self.config("base_url"),
            ))),
            Expr::PlivoUrl => Some(Cow::Owned(canonical::plivo(request.url, self.form_body()))),
            Expr::At(wanted, inner) => {
                let text = self.eval(inner, frame)?;
                let found = json::scan(&text, wanted).ok()?;
                let value = json::text::value(found.slice(&text, 0)?)?;
                Some(Cow::Owned(value.into_owned()))
            }
            Expr::Config(name) => self.config(name).map(Cow::Borrowed),
            Expr::Call(function, inner) => {
                super::functions::call(*function, self.eval(inner, frame)?, self.provider.answer_macs.as_ref())
            }
        }
    }

    /// Writes a template piece by piece. `None` where an expression outside brackets has no value.
    pub(crate) fn write<'s>(
        &'s self,
        template: &'s Template,
        frame: Frame<'s>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Option<()> {
        for part in &template.0 {
            match part {
                Part::Literal(text) => sink(text.as_bytes()),
                Part::Value(expr) => sink(&self.eval(expr, frame)?),
                Part::Optional(inner) => {
                    let mut text = Vec::new();
                    let inner = inner.iter().try_for_each(|part| self.append(part, frame, &mut text));
                    if inner.is_some() {
                        sink(&text);
                    }
                }
            }
        }
        Some(())
    }

    fn append<'s>(&'s self, part: &'s Part, frame: Frame<'s>, text: &mut Vec<u8>) -> Option<()> {
        match part {
            Part::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
            Part::Value(expr) => text.extend_from_slice(&self.eval(expr, frame)?),
            Part::Optional(_) => {}
        }
        Some(())
    }

    /// The whole of a template; borrowed where it is one expression.
    pub(crate) fn text<'s>(&'s self, template: &'s Template, frame: Frame<'s>) -> Value<'s> {
        if let [Part::Value(expr)] = template.0.as_slice() {
            return self.eval(expr, frame);
        }
        let mut text = Vec::new();
        self.write(template, frame, &mut |piece| text.extend_from_slice(piece))?;
        Some(Cow::Owned(text))
    }

    /// The first of several selectors that counts and has a value which is not empty.
    pub(crate) fn first<'s>(&'s self, selectors: &'s [Selector], frame: Frame<'s>) -> Value<'s> {
        selectors
            .iter()
            .filter(|selector| self.holds(&selector.when, frame))
            .filter_map(|selector| self.text(&selector.value, frame))
            .find(|value| !value.is_empty())
    }

    /// Whether all conditions hold. An empty value is none.
    pub(crate) fn holds(&self, conditions: &[Condition], frame: Frame<'_>) -> bool {
        conditions.iter().all(|condition| {
            let value = self.eval(&condition.expr, frame).filter(|value| !value.is_empty());
            match &condition.test {
                Test::Present => value.is_some(),
                Test::Absent => value.is_none(),
                Test::Equals(operand) => self.equals(value.as_deref(), operand, frame),
                Test::Differs(operand) => !self.equals(value.as_deref(), operand, frame),
            }
        })
    }

    fn equals(&self, value: Option<&[u8]>, operand: &Operand, frame: Frame<'_>) -> bool {
        let same = |other: Option<&[u8]>| match (value, other) {
            (Some(value), Some(other)) => value.ct_eq(other).into(),
            _ => false,
        };
        match operand {
            Operand::Text(text) => value.unwrap_or_default() == text.as_bytes(),
            Operand::Config(name) => same(self.config(name)),
            Operand::Template(template) => same(self.text(template, frame).as_deref()),
        }
    }

    fn config(&self, name: &str) -> Option<&[u8]> {
        let value = self.provider.options.get(name)?;
        (!value.is_empty()).then_some(value.as_bytes())
    }

    /// The newest secret, for answers.
    pub(crate) fn secret(&self) -> Option<&[u8]> {
        Some(self.provider.secrets.first()?.expose_secret().as_bytes())
    }

    pub(super) fn header(&self, name: &str) -> Value<'_> {
        let mut values = self.request.headers.get_all(name);
        let first = values.next()?;
        let Some(second) = values.next() else {
            return Some(Cow::Borrowed(first));
        };
        let mut joined = first.to_vec();
        for value in std::iter::once(second).chain(values) {
            joined.extend_from_slice(b", ");
            joined.extend_from_slice(value);
        }
        Some(Cow::Owned(joined))
    }

    fn all<'s>(&'s self, parts: &'s [Expr], frame: Frame<'s>) -> Option<Vec<Cow<'s, [u8]>>> {
        parts.iter().map(|part| self.eval(part, frame)).collect()
    }

    /// A digest of all that arrived and when, to the nanosecond.
    fn request_id(&self) -> Vec<u8> {
        let mut digester = Digester::plain(Hash::Sha256);
        digester.update(&self.now.as_nanosecond().to_le_bytes());
        digester.update(self.request.url.as_bytes());
        for (name, value) in self.request.headers.iter() {
            digester.update(name.as_bytes());
            digester.update(value);
        }
        digester.update(self.request.body);
        hex::encode(&digester.finish().bytes()[..16]).into_bytes()
    }

    fn query(&self) -> Option<&'a str> {
        super::url::parts(self.request.url).query
    }

    /// The body, where it is form-encoded.
    pub(crate) fn form_body(&self) -> Option<&'a [u8]> {
        let content_type = self.request.headers.get("content-type")?;
        form::is_form(content_type).then_some(self.request.body)
    }

    fn form_field(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let content_type = self.request.headers.get("content-type")?;
        form::field(content_type, self.request.body, name)
    }

    /// The exact text of a wanted value.
    pub(crate) fn slice<'s>(&'s self, doc: Doc, slot: usize, frame: Frame<'s>) -> Option<&'s [u8]> {
        self.document(doc, frame)?.slice(slot)
    }

    /// A JSON document of the request, read when first asked for.
    pub(crate) fn document<'s>(&'s self, doc: Doc, frame: Frame<'s>) -> Option<&'s Document<'s>> {
        match doc {
            Doc::Body => self.body_document(),
            Doc::Item => frame.item,
            Doc::Claims => frame.claims.or_else(|| self.claims.get()),
            Doc::Form(index) => self.form_document(index),
            Doc::Around(index) => {
                let found = frame.around.iter().find(|around| around.index == index)?;
                Some(&found.document)
            }
        }
    }

    /// The JSON body: the bytes received, or what carries them. `None` as long as that is a token not yet verified.
    pub(crate) fn body_document(&self) -> Option<&Document<'a>> {
        let from = self.provider.rules.body_from.as_ref();
        let too_soon = |expr: &Expr| match expr {
            Expr::Json { doc: Doc::Claims, .. } => self.claims.get().is_none(),
            Expr::Decrypted | Expr::Decrypt(_) => self.proved_by.get().is_none(),
            _ => false,
        };
        if from.is_some_and(|from| from.any(&too_soon)) {
            return None;
        }
        Some(self.body.get_or_init(|| {
            let carried = from.and_then(|expr| match expr {
                Expr::Form(name) => self.form_field(name),
                other => Some(Cow::Owned(self.eval(other, Frame::default())?.into_owned())),
            });
            let text = carried.unwrap_or(Cow::Borrowed(self.request.body));
            Document::read(text, &self.provider.rules.documents.body)
        }))
    }

    /// Keeps the claims that proved the request, for all that is read after.
    pub(crate) fn keep_claims(&self, claims: Document<'a>) {
        // Set once: a request is proved once.
        let _ = self.claims.set(claims);
    }

    /// Adds all values that a source has.
    pub(crate) fn candidates<'s>(&'s self, source: &'s Expr, frame: Frame<'s>, into: &mut Vec<Cow<'s, [u8]>>) {
        match source {
            Expr::Numbered(prefix) => {
                let numbered = (1..=MOST_NUMBERED).map(|number| format!("{prefix}{number}"));
                into.extend(numbered.filter_map(|name| self.header(&name)));
            }
            source => into.extend(self.eval(source, frame)),
        }
    }

    /// The JSON text in a form field.
    pub(crate) fn form_document(&self, index: usize) -> Option<&Document<'a>> {
        let (name, wanted) = self.provider.rules.documents.forms.get(index)?;
        let read = || Some(Document::read(self.form_field(name)?, wanted));
        self.forms.get(index)?.get_or_init(read).as_ref()
    }

    /// Why a document that was asked for could not be read.
    pub(crate) fn json_error(&self) -> Option<&JsonError> {
        let forms = self.forms.iter().filter_map(|form| form.get()?.as_ref());
        self.body
            .get()
            .into_iter()
            .chain(forms)
            .find_map(|document| document.found.as_ref().err())
    }
}

impl<'a> Document<'a> {
    pub(crate) fn read(text: Cow<'a, [u8]>, wanted: &Wanted) -> Self {
        let found = json::scan(&text, wanted);
        Self { text, found }
    }

    /// The exact text of a wanted value.
    pub(crate) fn slice(&self, slot: usize) -> Option<&[u8]> {
        self.found.as_ref().ok()?.slice(&self.text, slot)
    }
}
