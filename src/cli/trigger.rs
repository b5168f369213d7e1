//! `cerca trigger`: a sample event, sent exactly as that provider would sign and send it.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::bail;
use clap::{Args, ValueEnum};
use comfy_table::Color;
use serde_json::json;

use super::{
    context::Context,
    output::code,
    sealed::unseal,
    sender::{Reply, Sender, sample, sign},
};
use crate::{
    adapters::Provider,
    app::{self, Plan},
    config::{self, Config},
    ingest::{Bad, OwnedRequest},
};

#[derive(Debug, Args)]
pub(super) struct Trigger {
    /// The registered provider
    provider: String,
    /// The sample, by its event type [default: the adapter's first]
    #[arg(value_name = "TYPE")]
    event_type: Option<String>,
    /// Do something wrong, which must be refused; or send the same twice
    #[arg(long, value_enum)]
    bad: Option<Fault>,
    /// The server [default: where the configuration listens]
    #[arg(long)]
    url: Option<String>,
    /// How many events
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// Signed rightly, too long ago
    Stale,
    /// Changed after it was signed
    Tampered,
    /// Signed with another secret
    WrongKey,
    /// A text that is no signature where it belongs
    Malformed,
    /// Not signed
    Missing,
    /// The same event twice: both are acknowledged, one is stored
    Duplicate,
}

impl Trigger {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config_with_secrets()?;
        let mut plan = app::plan(&config, context.global.adapters.as_deref())?;
        unseal(context, &config, &mut plan, &self.provider).await;
        let provider = self.provider(context, &config, &plan)?;
        let Some(adapter) = plan.registry.get(&provider.adapter) else {
            bail!("there is no adapter {}", provider.adapter);
        };
        let (name, sample) = sample(adapter, &provider, self.event_type.as_deref())?;
        let base = self
            .url
            .clone()
            .unwrap_or_else(|| format!("http://{}", reachable(config.server.listen)));
        let sender = Sender::new(&base)?;
        let bad = match self.bad {
            None | Some(Fault::Duplicate) => Bad::None,
            Some(Fault::Stale) => Bad::Stale,
            Some(Fault::Tampered) => Bad::Tampered,
            Some(Fault::WrongKey) => Bad::WrongKey,
            Some(Fault::Malformed) => Bad::Malformed,
            Some(Fault::Missing) => Bad::Missing,
        };
        let mut right = true;
        for _ in 0..self.count {
            let request = sign(&provider, &sample, bad)?;
            let times = if self.bad == Some(Fault::Duplicate) { 2 } else { 1 };
            for _ in 0..times {
                let reply = sender.send(&request).await?;
                right &= self.report(context, &base, &name, &request, &reply)?;
            }
        }
        Ok(code(right))
    }

    fn provider(&self, context: &Context, config: &Config, plan: &Plan) -> anyhow::Result<Arc<Provider>> {
        if let Some(provider) = plan.providers.iter().find(|provider| *provider.name == self.provider) {
            return Ok(Arc::clone(provider));
        }
        let file = match (&config.path, &context.global.config) {
            (Some(path), _) | (None, Some(path)) => path.display().to_string(),
            (None, None) => format!("{} (`cerca init` writes one)", config::DEFAULT_FILE),
        };
        let names: Vec<&str> = plan.providers.iter().map(|provider| &*provider.name).collect();
        if let Some(near) = config::near(&self.provider, &names) {
            bail!(
                "no provider is called {} in {file}; did you mean {near}?",
                self.provider
            );
        }
        let adapters: Vec<&str> = plan.registry.names().collect();
        match config::near(&self.provider, &adapters) {
            Some(adapter) => bail!(
                "no provider is called {} in {file}; add one, such as\n\n    [[provider]]\n    name = \"{adapter}\"\n    …\n\n`cerca providers show {adapter}` prints all of it",
                self.provider
            ),
            None => bail!(
                "no provider is called {} in {file}; there are: {}",
                self.provider,
                names.join(", ")
            ),
        }
    }

    /// Prints one exchange; whether the answer is what it should be.
    fn report(
        &self,
        context: &Context,
        base: &str,
        sample: &str,
        request: &OwnedRequest,
        reply: &Reply,
    ) -> anyhow::Result<bool> {
        let out = context.out;
        let refused = !matches!(self.bad, None | Some(Fault::Duplicate));
        let right = if refused {
            reply.status == 401
        } else {
            (200..300).contains(&reply.status)
        };
        if out.json {
            out.object(&json!({
                "provider": self.provider,
                "sample": sample,
                "bad": self.bad.and_then(|bad| Some(bad.to_possible_value()?.get_name().to_owned())),
                "url": format!("{base}{}", request.path_and_query()),
                "status": reply.status,
                "body": reply.body,
                "as_it_should_be": right,
                "duration_ms": reply.took.as_secs_f64() * 1000.0,
            }))?;
            return Ok(right);
        }
        out.line(format!(
            "{} {base}{}  {sample}  {} bytes",
            request.method,
            request.path_and_query(),
            request.body.len()
        ))?;
        let color = if right { Color::Green } else { Color::Red };
        out.line(format!(
            "{}  {}  {:.1} ms",
            out.paint(color, reply.status.to_string()),
            reply.body.trim(),
            reply.took.as_secs_f64() * 1000.0
        ))?;
        match hint(base, reply, refused) {
            Some(hint) => out.line(format!("{} {hint}", out.paint(Color::Yellow, "hint:")))?,
            None if refused => out.line("Refused, as it should be.")?,
            None => {}
        }
        Ok(right)
    }
}

/// What may be the cause of an answer that should be another.
fn hint(base: &str, reply: &Reply, refused: bool) -> Option<&'static str> {
    let has_path = base
        .split_once("://")
        .is_some_and(|(_, rest)| rest.trim_end_matches('/').contains('/'));
    match (reply.status, refused) {
        (200..300, true) => Some("this had to be refused with 401: is verification switched off?"),
        (401, false) => Some(
            "the server does not know this secret, its clock is off, or its public_url is another one: \
             restart it with this configuration",
        ),
        (404, _) if has_path => Some(
            "nothing takes webhooks there: `/webhooks/PROVIDER` is added to --url, which is http://HOST:PORT as a rule; \
             or the server does not know this provider",
        ),
        (404, _) => Some("the running server does not know this provider: restart it with this configuration"),
        (503, _) if reply.body.contains("cannot be verified now") => Some(
            "the server has not got the sender's keys, or its secret, yet; a sample is signed with a key of yours: register \
             it there, so that nothing is waited for",
        ),
        (503, _) => Some("the server cannot store now; its log says why"),
        _ => None,
    }
}

/// An address that listens everywhere, as a client calls it.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let local = if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        address.set_ip(local);
    }
    address
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_that_is_not_at_hand_is_no_store_that_is_away() {
        let told = |detail: &str| {
            let reply = Reply {
                status: 503,
                body: format!("{{\"detail\":\"{detail}\"}}"),
                took: Duration::ZERO,
            };
            hint("http://h:1", &reply, false).unwrap()
        };
        assert!(told("cannot be verified now; send it again").contains("has not got the sender's keys"));
        assert!(told("not stored; send it again").contains("cannot store now"));
    }

    #[test]
    fn a_url_with_a_path_is_told_of_where_nobody_knows_it() {
        let reply = Reply {
            status: 404,
            body: String::new(),
            took: Duration::ZERO,
        };
        for (base, told) in [("http://h:1/", "restart it"), ("http://h:1/hooks", "is added to --url")] {
            assert!(hint(base, &reply, false).unwrap().contains(told), "{base}");
        }
    }
}
