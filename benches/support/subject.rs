//! A provider with a signed request of any size: what measurements of the pure parts work on.

use std::hint::black_box;

use cerca::{
    adapters::{Provider, ProviderSpec, Registry},
    ingest::{Bad, OwnedRequest, ingest, sign},
};
use jiff::Timestamp;

pub(crate) struct Subject {
    provider: Provider,
    request: OwnedRequest,
    now: Timestamp,
}

impl Subject {
    /// The adapter's first sample, grown to about `size` bytes, signed with `secret`.
    pub(crate) fn new(adapter: &str, secret: &str, size: usize) -> Self {
        Self::with(adapter, size, |spec| spec.secrets = vec![secret.into()])
    }

    /// The same, without a signature.
    pub(crate) fn unsigned(adapter: &str, size: usize) -> Self {
        Self::with(adapter, size, |spec| spec.verify = Some("none".into()))
    }

    fn with(adapter: &str, size: usize, options: impl FnOnce(&mut ProviderSpec)) -> Self {
        let registry = Registry::embedded();
        let public_url = "https://hooks.example.com";
        let sample = registry.get(adapter).unwrap().samples().values().next().unwrap();
        let mut sample = OwnedRequest::parse_sample(sample, public_url).unwrap();
        grow(&mut sample.body, size);
        let mut spec = ProviderSpec {
            name: adapter.into(),
            public_url: public_url.into(),
            max_body: 1 << 20,
            on_conflict: 200,
            ..ProviderSpec::default()
        };
        options(&mut spec);
        let provider = Provider::new(spec, &registry).unwrap();
        let now = Timestamp::now();
        let request = sign(&provider, &sample, now, Bad::None).unwrap();
        let subject = Self { provider, request, now };
        subject.run();
        subject
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.request.body
    }

    /// Verifies the request and reads its event, as the server does.
    pub(crate) fn run(&self) {
        let headers = self.request.header_list();
        let events = ingest(&self.provider, &self.request.raw(&headers), self.now);
        black_box(events.unwrap());
    }
}

/// Adds members to a JSON object until it has about this many bytes.
fn grow(body: &mut Vec<u8>, size: usize) {
    assert_eq!(body.pop(), Some(b'}'), "the sample is a JSON object");
    let mut n = 0_u32;
    while body.len() < size {
        body.extend_from_slice(format!(",\"field_{n}\":\"some value {:x}\"", n.wrapping_mul(2_654_435_761)).as_bytes());
        n += 1;
    }
    body.push(b'}');
}
