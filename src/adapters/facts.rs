//! What an adapter says of itself and of its sender, for commands and pages.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    adapter::Adapter,
    backfill::Backfill,
    choices::{Choice, Choices},
    coverage::uncovered,
    decrypt::Decrypt,
    gap::{Gap, Uncovered},
    lint,
    needs::{Needs, needs},
    normalize::Normalize,
    rules::KeyStep,
    sender::Sender,
    uses,
};

impl Adapter {
    /// The sender's name, for people.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.manifest.title
    }

    /// The sender's own page about its webhooks.
    #[must_use]
    pub fn docs(&self) -> Option<&str> {
        self.manifest.docs.as_deref()
    }

    /// Where the secret is found.
    #[must_use]
    pub fn secret_hint(&self) -> Option<&str> {
        self.manifest.secret.hint.as_deref()
    }

    /// The shape of a right secret: prefixes, or one of `hex` and `base64`. Empty where nothing is known.
    #[must_use]
    pub fn secret_pattern(&self) -> &[String] {
        let pattern = self.manifest.secret.pattern.as_ref();
        pattern.map_or(&[], |texts| &texts.get_ref().0)
    }

    /// Prefixes of what is often registered in place of the secret, each with what it is.
    pub(crate) fn mistaken_secrets(&self) -> &BTreeMap<String, String> {
        &self.manifest.secret.mistaken
    }

    /// Whether it stands for no one sender, so that the registered provider says how it signs.
    pub(crate) fn is_generic(&self) -> bool {
        self.name.starts_with("generic_")
    }

    /// Whether one of its own rules decodes what follows `whsec_`.
    pub(crate) fn decodes_whsec(&self) -> bool {
        self.rules
            .signatures
            .iter()
            .any(|rule| rule.key.contains(&KeyStep::Whsec))
    }

    /// Where the sender's own id of an event is read from, as it is written.
    #[must_use]
    pub fn event_ids(&self) -> Vec<&str> {
        let choices = self.manifest.event.id.as_ref();
        written(choices)
    }

    /// What tells events apart where the id alone does not, as it is written.
    pub(crate) fn event_keys(&self) -> Vec<&str> {
        written(self.manifest.event.key.as_ref())
    }

    /// Where the type is read from, as it is written.
    pub(crate) fn event_types(&self) -> Vec<&str> {
        written(self.manifest.event.kind.as_ref())
    }

    /// What a signature rule signs, as it is written; empty where it is not.
    pub(crate) fn message(&self, index: usize) -> &str {
        let message = self
            .manifest
            .signature
            .get(index)
            .and_then(|table| table.message.as_ref());
        message.map_or("", |text| text.get_ref())
    }

    /// The names of the options that the registered provider sets, sorted.
    #[must_use]
    pub fn options(&self) -> Vec<&str> {
        uses::all_options(&self.rules).into_iter().collect()
    }

    /// Whether the sender encrypts to a key of the registered provider (`decryption_keys`).
    #[must_use]
    pub fn decrypts_first(&self) -> bool {
        self.rules.decrypt.as_ref().is_some_and(Decrypt::goes_first)
    }

    /// The form field that may carry the JSON body.
    #[must_use]
    pub fn form_field(&self) -> Option<&str> {
        self.manifest.body.form_field.as_deref()
    }

    /// What is known of how the sender delivers.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.manifest.sender
    }

    /// What a person does at the sender, step by step.
    #[must_use]
    pub fn setup(&self) -> &[String] {
        &self.manifest.setup.steps
    }

    /// What the sender wants to read after an event.
    #[must_use]
    pub fn response(&self) -> &crate::domain::Answer {
        &self.rules.response
    }

    /// The names of its signature rules, in order, each with its scheme.
    pub fn signatures(&self) -> impl Iterator<Item = (&str, &str)> {
        let tables = self.manifest.signature.iter();
        self.rules
            .signatures
            .iter()
            .zip(tables)
            .map(|(rule, table)| (rule.name.as_str(), table.scheme.get_ref().as_str()))
    }

    /// What its signatures leave open, rules that leave open the same together. Empty where nothing is verified.
    #[must_use]
    pub fn uncovered(&self) -> Vec<Uncovered> {
        let messages: Vec<_> = self
            .manifest
            .signature
            .iter()
            .map(|table| table.message.as_ref().map(|text| text.get_ref().as_str()))
            .collect();
        uncovered(&self.rules, &messages)
    }

    /// Whether requests are verified, and every rule leaves the whole body open, with nothing that ties it to what is signed.
    pub(crate) fn signs_no_body(&self) -> bool {
        let open = self.uncovered();
        let is_open = |one: &Uncovered| one.gaps.iter().any(|gap| matches!(gap, Gap::Everything | Gap::Body));
        !open.is_empty() && open.iter().all(|one| one.bound.is_empty() && is_open(one))
    }

    /// How its events are said in common words.
    #[must_use]
    pub fn normalize(&self) -> Option<&Arc<Normalize>> {
        self.normalize.as_ref()
    }

    /// How past events are listed at the sender's API; empty where that is not known.
    #[must_use]
    pub fn backfills(&self) -> &Arc<[Backfill]> {
        &self.backfills
    }

    /// Sample requests by name.
    #[must_use]
    pub fn samples(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.samples
    }

    /// The names of samples that have their normalised form beside them.
    pub(crate) fn expectations(&self) -> &[String] {
        &self.expectations
    }

    /// Files of the folder that nothing reads, relative to it.
    pub(crate) fn strays(&self) -> &[String] {
        &self.strays
    }

    /// The text of `vectors.jsonl`.
    #[must_use]
    pub fn vectors(&self) -> Option<&str> {
        self.vectors.as_deref()
    }

    /// The text of `adapter.toml`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Where its files are; `providers/NAME` for one of the binary.
    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }

    /// Whether requests are verified at all.
    pub(crate) fn verifies(&self) -> bool {
        self.rules.verify
    }

    /// Whether one of its rules judges a time.
    pub(crate) fn judges_time(&self) -> bool {
        self.rules.signatures.iter().any(|rule| rule.tolerance.is_some())
    }

    /// Whether one of its rules signs a time, judged or not.
    pub(crate) fn signs_time(&self) -> bool {
        let mut rules = self.rules.signatures.iter();
        rules.any(|rule| rule.timestamp.is_some() || rule.captures_time())
    }

    /// Whether the sender can send JSON in the place of a form, and should.
    pub(crate) fn prefers_json(&self) -> bool {
        self.manifest.body.json_instead
    }

    /// What a registered provider must be given.
    #[must_use]
    pub fn needs(&self) -> Needs {
        needs(self)
    }

    /// What is wrong though it can be read: the key, and why.
    pub(crate) fn faults(&self) -> Vec<(&'static str, &'static str)> {
        lint::faults(self)
    }

    /// What is allowed but deserves a look.
    #[must_use]
    pub fn lint(&self) -> Vec<String> {
        lint::adapter(self)
    }
}

fn written(choices: Option<&Choices>) -> Vec<&str> {
    choices.map_or_else(Vec::new, |choices| {
        choices.get_ref().0.iter().map(Choice::written).collect()
    })
}
