//! Vectors from samples, for `providers vectors`: each signed as the adapter says, and spoiled in every usual way. They show
//! what the rules do and keep it so; whether the sender signs so, only a request of the sender's shows.

use std::collections::BTreeMap;

use base64::Engine as _;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    Bad, HttpTextError, Ingested, OwnedRequest, Rejection, SignError, VectorEvent, ingest, sign::Draft, spoil::tamper,
};
use crate::adapters::{Adapter, Provider, ProviderError, ProviderSpec, Registry, SecretNeed};

/// When these requests come: 2026-01-05T10:00:00Z, the same each time.
const NOW: i64 = 1_767_607_200;
/// How many seconds before that they were signed.
const AGE: i64 = 2;
const HOST: &str = "https://hooks.example.com";

/// Why no vectors can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    #[error("there are no samples to sign")]
    NoSamples,
    #[error(
        "the sender signs with a private key: give one of your own, for tests only, as --secret (PEM, as env:NAME or file:PATH)"
    )]
    NoKey,
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error("samples/{sample}.http: {error}")]
    Sample { sample: String, error: HttpTextError },
    #[error("samples/{sample}.http: {error}")]
    Sign { sample: String, error: SignError },
    #[error("{case}: it is refused: {reason}")]
    Refused { case: String, reason: &'static str },
    #[error("{case}: it is a handshake, and no event")]
    NoEvent { case: String },
    #[error("{case}: it is taken, and must be refused")]
    Taken { case: String },
}

/// One line of `vectors.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeVector {
    pub case: String,
    /// Without the end of the line.
    pub line: String,
}

/// Requests that must verify, and forged ones that must not: for each sample a valid, a wrongly keyed and a changed one,
/// for the first also a stale one (where a time is judged), a malformed signature and none. The same each time, except where
/// the cipher or the signature itself takes chance.
///
/// `secret` takes the place of one that is made up.
///
/// # Errors
/// What is wrong with the samples or the rules, such as a forged request that is taken.
pub fn make_vectors(
    adapter: &Adapter,
    registry: &Registry,
    secret: Option<&str>,
) -> Result<Vec<MadeVector>, MakeError> {
    let mut maker = Maker::new(adapter, registry, secret)?;
    for (index, (name, text)) in adapter.samples().iter().enumerate() {
        let sample = OwnedRequest::parse_sample(text, HOST).map_err(|error| MakeError::Sample {
            sample: name.clone(),
            error,
        })?;
        maker.sample(name, &sample, index == 0)?;
    }
    match maker.made.is_empty() {
        true => Err(MakeError::NoSamples),
        false => Ok(maker.made),
    }
}

struct Maker {
    provider: Provider,
    secrets: Vec<String>,
    now: Timestamp,
    made: Vec<MadeVector>,
}

impl Maker {
    fn new(adapter: &Adapter, registry: &Registry, secret: Option<&str>) -> Result<Self, MakeError> {
        let secrets = match (secret, adapter.needs().secret) {
            (Some(secret), _) => vec![vec![secret.to_owned()]],
            (None, SecretNeed::PublicKey | SecretNeed::Fetched) => return Err(MakeError::NoKey),
            (None, SecretNeed::Nothing) => vec![Vec::new()],
            (None, _) => made_up(adapter).into_iter().map(|secret| vec![secret]).collect(),
        };
        let mut found: Option<(Provider, Vec<String>)> = None;
        let mut failed = MakeError::NoKey;
        for secrets in secrets {
            match Provider::new(spec(adapter, &secrets), registry) {
                Ok(provider) => {
                    // The first that looks right, or the first that can be used.
                    let is_right = provider.warnings().is_empty();
                    if is_right || found.is_none() {
                        found = Some((provider, secrets));
                    }
                    if is_right {
                        break;
                    }
                }
                Err(error) => failed = error.into(),
            }
        }
        let (provider, secrets) = found.ok_or(failed)?;
        Ok(Self {
            provider,
            secrets,
            now: Timestamp::from_second(NOW).unwrap_or_default(),
            made: Vec::new(),
        })
    }

    fn sample(&mut self, name: &str, sample: &OwnedRequest, is_first: bool) -> Result<(), MakeError> {
        let signed = self.sign(name, sample, Bad::None)?;
        self.taken(format!("sample {name}"), &signed)?;
        if !self.provider.rules.verify {
            return Ok(());
        }
        let forged = self.sign(name, sample, Bad::WrongKey)?;
        self.refused(format!("wrong key {name}"), &forged)?;
        let mut changed = signed;
        tamper(&mut changed.body);
        match self.read(&changed) {
            Err(rejection) if !rejection.is_authentic() => self.refused(format!("tampered {name}"), &changed)?,
            read => {
                if read.is_ok() {
                    self.taken(format!("changed body {name}, taken: the body is not signed"), &changed)?;
                }
                let altered = self.sign(name, sample, Bad::Tampered)?;
                self.refused(format!("tampered proof {name}"), &altered)?;
            }
        }
        if !is_first {
            return Ok(());
        }
        if self
            .provider
            .rules
            .signatures
            .iter()
            .any(|rule| rule.tolerance.is_some())
        {
            match self.sign(name, sample, Bad::Stale) {
                Ok(stale) => self.refused("stale".to_owned(), &stale)?,
                // Another rule judges a time; the one for this sample does not.
                Err(MakeError::Sign {
                    error: SignError::NotTimed,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        let malformed = self.sign(name, sample, Bad::Malformed)?;
        self.refused("malformed signature".to_owned(), &malformed)?;
        let missing = self.sign(name, sample, Bad::Missing)?;
        self.refused("missing signature".to_owned(), &missing)
    }

    fn sign(&self, name: &str, sample: &OwnedRequest, bad: Bad) -> Result<OwnedRequest, MakeError> {
        let seed = format!("{}/{name}/", self.provider.name);
        let draft = Draft {
            provider: &self.provider,
            sample,
            seed: Some(&seed),
        };
        let then = Timestamp::from_second(NOW - AGE).unwrap_or_default();
        draft.sign(then, bad).map_err(|error| match error {
            SignError::NoPrivateKey => MakeError::NoKey,
            error => MakeError::Sign {
                sample: name.to_owned(),
                error,
            },
        })
    }

    /// The events of a request; `None` for a handshake.
    fn read(&self, request: &OwnedRequest) -> Result<Option<Vec<VectorEvent>>, Rejection> {
        let headers = request.header_list();
        let raw = request.raw(&headers);
        let read = || match ingest(&self.provider, &raw, self.now)? {
            Ingested::Events { events, .. } => Ok(Some(events.into_iter().map(VectorEvent::of).collect::<Vec<_>>())),
            Ingested::Handshake { .. } => Ok(None),
        };
        let (Some(first), Some(again)) = (read()?, read()?) else {
            return Ok(None);
        };
        // An id that no two requests share is not compared.
        let compared = first.into_iter().zip(again).map(|(first, again)| VectorEvent {
            id: first.id.filter(|id| again.id.as_ref() == Some(id)),
            event_type: first.event_type,
        });
        Ok(Some(compared.collect()))
    }

    fn taken(&mut self, case: String, request: &OwnedRequest) -> Result<(), MakeError> {
        match self.read(request) {
            Ok(Some(events)) => {
                let expect = Expect {
                    verified: true,
                    status: "event",
                    events: Some(events),
                };
                self.add(case, request, expect);
                Ok(())
            }
            Ok(None) => Err(MakeError::NoEvent { case }),
            Err(rejection) => Err(MakeError::Refused {
                case,
                reason: rejection.reason(),
            }),
        }
    }

    fn refused(&mut self, case: String, request: &OwnedRequest) -> Result<(), MakeError> {
        let Err(rejection) = self.read(request) else {
            return Err(MakeError::Taken { case });
        };
        let expect = Expect {
            verified: rejection.is_authentic(),
            status: "rejected",
            events: None,
        };
        self.add(case, request, expect);
        Ok(())
    }

    fn add(&mut self, case: String, request: &OwnedRequest, expect: Expect) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = Line {
            provider: &self.provider.name,
            case: &case,
            method: &request.method,
            url: &request.url,
            headers: request
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), text(value)))
                .collect(),
            body_base64: base64::engine::general_purpose::STANDARD.encode(&request.body),
            secrets: &self.secrets,
            config: &self.provider.options,
            basis: BASIS,
            now: NOW,
            expect,
        };
        // Texts, numbers and lists of them: nothing that cannot be written.
        let line = serde_json::to_string(&line).unwrap_or_default();
        self.made.push(MadeVector { case, line });
    }
}

/// Marks the lines that were made here, beside those that were not.
pub const BASIS: &str = "sample";

#[derive(Serialize)]
struct Line<'a> {
    provider: &'a str,
    case: &'a str,
    method: &'a str,
    url: &'a str,
    headers: Vec<(&'a str, String)>,
    body_base64: String,
    secrets: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    config: &'a BTreeMap<String, String>,
    basis: &'static str,
    now: i64,
    expect: Expect,
}

#[derive(Serialize)]
struct Expect {
    verified: bool,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<VectorEvent>>,
}

fn spec(adapter: &Adapter, secrets: &[String]) -> ProviderSpec {
    let options = adapter.options().into_iter();
    ProviderSpec {
        name: adapter.name.to_string(),
        secrets: secrets.iter().map(|secret| secret.as_str().into()).collect(),
        public_url: HOST.to_owned(),
        options: options
            .map(|name| (name.to_owned(), format!("sample-{name}")))
            .collect(),
        ..ProviderSpec::default()
    }
}

/// Secrets that are plainly not real, in every shape that one may need.
fn made_up(adapter: &Adapter) -> Vec<String> {
    const WORDS: &str = "1 not a real secret 1 not a real";
    let base64 = base64::engine::general_purpose::STANDARD.encode(WORDS);
    let plain = format!("not-a-real-secret-{}-1", adapter.name);
    let shapes = adapter.secret_pattern().iter();
    let prefixes = shapes.filter(|shape| !matches!(shape.as_str(), "hex" | "base64"));
    let prefixed =
        prefixes.flat_map(|prefix| [format!("{prefix}notARealSecret0000000001"), format!("{prefix}{base64}")]);
    let others = [
        plain,
        base64.clone(),
        hex::encode(WORDS),
        "hook-user:not-a-real-password-1".to_owned(),
        format!("token:{base64}"),
        format!("whsec_{base64}"),
    ];
    prefixed.chain(others).collect()
}
