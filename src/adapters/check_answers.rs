//! Challenges that are answered though nobody need sign them: what strangers may have signed or decrypted.

use super::{
    compile::{Compiled, RuleError},
    expr::{Expr, Function},
    jwt::JwtAlgorithm,
    manifest::Manifest,
    rules::{Handshake, Hash, Scheme, Signature},
    template::{Condition, Operand, Part, Template, Test},
};

/// What an answer holds the MAC of.
pub(crate) fn macs<'t>(answer: impl Iterator<Item = &'t Template>) -> Vec<(Hash, Expr)> {
    fn gather(expr: &Expr, into: &mut Vec<(Hash, Expr)>) {
        let hash = match expr {
            Expr::Call(Function::HmacSha1, _) => Some(Hash::Sha1),
            Expr::Call(Function::HmacSha256, _) => Some(Hash::Sha256),
            _ => None,
        };
        for inner in expr.inner() {
            into.extend(hash.map(|hash| (hash, inner.clone())));
            gather(inner, into);
        }
    }
    let mut macs = Vec::new();
    for expr in answer.flat_map(Template::exprs) {
        gather(expr, &mut macs);
    }
    macs
}

/// Where events are signed alike, a challenge must not be able to be any text: then none could be taken for an event.
/// And what is decrypted unsigned must hold a secret.
pub(crate) fn check_answers(manifest: &Manifest, rules: &[Signature], handshakes: &[Handshake]) -> Compiled<()> {
    let signs = |hash: &Hash| {
        rules.iter().any(|rule| match rule.scheme {
            Scheme::Hmac(used) => used == *hash,
            Scheme::Jwt => rule.algorithms.contains(&JwtAlgorithm::Hmac(*hash)),
            _ => false,
        })
    };
    for (index, handshake) in handshakes.iter().enumerate() {
        let free = |(hash, asked): &(Hash, Expr)| {
            let mut narrowing = handshake.narrowing(asked);
            signs(hash) && !narrowing.any(|condition| condition.expr != *asked || condition.test != Test::Present)
        };
        let body = manifest.handshake.get(index).and_then(|table| table.body.as_ref());
        let fail = |key: &str, message: &str| {
            Err(RuleError {
                span: body.map_or(0..0, toml::Spanned::span),
                key: format!("handshake[{index}].{key}"),
                message: message.to_owned(),
            })
        };
        if handshake.macs.iter().any(free) {
            let expected = "whoever asks could have an event signed: expected a condition on what stands in `hmac_…(…)` \
                            that narrows it, such as `unhex(query:challenge)`";
            return fail("body", expected);
        }
        if !handshake.signed && handshake.decrypts() && !handshake.require.iter().any(holds_secret) {
            let expected = "whoever asks could have a body decrypted: expected a condition that what is decrypted holds a \
                            secret, such as `at(/token, decrypted) == {secret_id}`";
            return fail("require", expected);
        }
    }
    Ok(())
}

/// Whether an expression reads what is asked for and, at most, what the operator chose.
fn is_only(expr: &Expr, asked: &Expr) -> bool {
    let inner = expr.inner();
    expr == asked
        || matches!(expr, Expr::Config(_) | Expr::Secret | Expr::SecretId)
        || (!inner.is_empty() && inner.iter().all(|inner| is_only(inner, asked)))
}

fn is_decrypted(expr: &Expr) -> bool {
    matches!(expr, Expr::Decrypted | Expr::Decrypt(_))
}

/// Whether a condition compares what is decrypted with a part of the secret.
fn holds_secret(condition: &Condition) -> bool {
    let secret = |text: &Template| text.0 == [Part::Value(Expr::SecretId)] || text.0 == [Part::Value(Expr::Secret)];
    condition.expr.any(&is_decrypted)
        && matches!(&condition.test, Test::Equals(Operand::Template(text)) if secret(text))
}

impl Handshake {
    /// Whether a condition or the answer reads what is decrypted.
    fn decrypts(&self) -> bool {
        let conditions = self.when.iter().chain(&self.require).flat_map(|condition| {
            let operand = match &condition.test {
                Test::Equals(Operand::Template(text)) | Test::Differs(Operand::Template(text)) => text.exprs(),
                _ => Vec::new(),
            };
            std::iter::once(&condition.expr).chain(operand)
        });
        let answer = std::iter::once(&self.body).chain(self.headers.iter().map(|(_, text)| text));
        let answer = answer.chain(&self.keep).chain(self.confirm.iter().map(|(url, _)| url));
        conditions
            .chain(answer.flat_map(Template::exprs))
            .any(|expr| expr.any(&is_decrypted))
    }

    /// The conditions that say what may be asked for, and read nothing else that whoever asks can choose.
    pub(crate) fn narrowing<'h>(&'h self, asked: &'h Expr) -> impl Iterator<Item = &'h Condition> {
        let conditions = self.when.iter().chain(&self.require);
        conditions.filter(move |condition| {
            let mut read = vec![&condition.expr];
            if let Test::Equals(Operand::Template(text)) | Test::Differs(Operand::Template(text)) = &condition.test {
                read.extend(text.exprs());
            }
            let is_asked = |expr: &&Expr| expr.any(&|expr| expr == asked);
            read.iter().any(is_asked) && read.iter().all(|expr| is_only(expr, asked))
        })
    }
}
