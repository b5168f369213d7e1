//! The secrets that senders handed over, for commands that verify or sign as a server would.

use std::sync::Arc;

use super::{context::Context, output::complain};
use crate::{
    adapters::{Provider, ProviderSpec},
    app::Plan,
    config::Config,
};

/// Puts the stored secret of this provider to use, where its sender hands one over and the configuration names none. A store
/// that cannot be read is said and no reason to stop.
pub(super) async fn unseal(context: &Context, config: &Config, plan: &mut Plan, name: &str) {
    let Some(spec) = plan.waiting.iter().find(|spec| spec.name == name) else {
        return;
    };
    match provider(context, config, plan, spec).await {
        Ok(Some(made)) => {
            let known = plan.providers.iter_mut().find(|known| *known.name == *name);
            if let Some(known) = known {
                *known = Arc::new(made);
            }
        }
        Ok(None) => complain(&format!("the sender of {name} has not handed over its secret yet")),
        Err(error) => complain(&format!("the stored secret of {name} cannot be used: {error:#}")),
    }
}

async fn provider(
    context: &Context,
    config: &Config,
    plan: &Plan,
    spec: &ProviderSpec,
) -> anyhow::Result<Option<Provider>> {
    let store = context.store(config).await?;
    let stored = store.secrets().await;
    store.close().await;
    let Some(stored) = stored?.into_iter().find(|one| one.provider == spec.name) else {
        return Ok(None);
    };
    let Some(key) = &config.store.seal_key else {
        anyhow::bail!("`seal_key` in [store] is not set");
    };
    let spec = ProviderSpec {
        secrets: vec![key.open(&stored.provider, &stored.sealed)?],
        ..spec.clone()
    };
    Ok(Some(Provider::new(spec, &plan.registry)?))
}
