//! What a registered provider of an adapter must be given, as its rules say it.

use super::{
    adapter::Adapter,
    expr::Expr,
    lint,
    provider::ProviderSpec,
    rules::{Rules, Scheme},
    template::{Operand, Test},
    uses,
};

/// What `secrets` is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretNeed {
    /// A text that both sides know.
    Shared,
    /// `user:password`.
    UserPassword,
    /// The sender's public key.
    PublicKey,
    /// Nothing: the sender's keys are fetched.
    Fetched,
    /// Nothing: the sender hands its secret over in a handshake.
    HandedOver,
    /// Nothing: nothing is verified.
    Nothing,
}

/// What the configuration of a provider needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    pub secret: SecretNeed,
    /// A private key that the sender encrypts to.
    pub decryption_key: bool,
    /// The URL that the sender calls, because it is signed.
    pub public_url: bool,
    /// Options without which no request, or no challenge, is taken; sorted.
    pub options: Vec<String>,
    /// Those that may be set; sorted.
    pub optional: Vec<String>,
}

pub(crate) fn needs(adapter: &Adapter) -> Needs {
    let none = ProviderSpec::default();
    let all = uses::all_options(&adapter.rules);
    let rules = &adapter.rules.with_options(&none.options);
    let mut options = lint::unset_options(&none, rules);
    options.extend(uses::options(rules));
    let handshakes = rules.handshakes.iter();
    for condition in handshakes.flat_map(|handshake| handshake.when.iter().chain(&handshake.require)) {
        if let Test::Equals(Operand::Config(name)) = &condition.test {
            options.insert(name);
        }
    }
    // Where a rule does without, it may be left out.
    let spared = |name: &str| {
        let without = |condition: &super::template::Condition| {
            condition.test == Test::Absent && condition.expr == Expr::Config(name.to_owned())
        };
        rules.signatures.iter().any(|rule| rule.when.iter().any(without))
    };
    options.retain(|name| !spared(name));
    Needs {
        secret: secret(rules),
        decryption_key: adapter.decrypts_first(),
        public_url: uses::signs_url(rules),
        optional: all.difference(&options).map(|name| (*name).to_owned()).collect(),
        options: options.into_iter().map(str::to_owned).collect(),
    }
}

fn secret(rules: &Rules) -> SecretNeed {
    let all = |is: &dyn Fn(Scheme) -> bool| rules.signatures.iter().all(|rule| is(rule.scheme));
    if !rules.verify {
        return SecretNeed::Nothing;
    }
    if rules.handshakes.iter().any(|handshake| handshake.keep.is_some()) {
        return SecretNeed::HandedOver;
    }
    if rules.signatures.iter().any(|rule| rule.fetched) {
        return SecretNeed::Fetched;
    }
    match () {
        () if all(&|scheme| scheme == Scheme::Basic) => SecretNeed::UserPassword,
        () if all(&|scheme| matches!(scheme, Scheme::Public(_))) => SecretNeed::PublicKey,
        () => SecretNeed::Shared,
    }
}
