//! How a provider is made anew when its secret has arrived.

use std::sync::Arc;

use crate::{
    adapters::{Provider, ProviderSpec, Registry},
    http::Remake,
};

/// For each provider that waits for its secret, how to make it.
pub(super) fn remakes(registry: &Arc<Registry>, waiting: Vec<ProviderSpec>) -> Vec<(Arc<str>, Remake)> {
    let remake = |spec: ProviderSpec| {
        let registry = Arc::clone(registry);
        let name = Arc::from(spec.name.as_str());
        let make: Remake = Box::new(move |secret| {
            let spec = ProviderSpec {
                secrets: secret.into_iter().collect(),
                ..spec.clone()
            };
            Provider::new(spec, &registry)
        });
        (name, make)
    };
    waiting.into_iter().map(remake).collect()
}
