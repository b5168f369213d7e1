//! From `[[handler]]` tables to routes: which keys belong to which kind, and what they must look like.

use std::{
    collections::HashSet,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use secrecy::SecretString;

use super::{
    Action, FormFields, HandlerSpec, Kind, LogHandler, Normalizers, OnUnknown, OnUnknownSpec, Route, Shape, brokers,
    exec::Exec,
    http::{Http, Target},
    params::Params,
    router::Router,
    sql,
};
use crate::domain::RetryPolicy;

/// What handlers need to know of their surroundings.
pub struct Context<'a> {
    /// The folder of the configuration file, where commands run.
    pub base: &'a Path,
    /// Variables that commands inherit. Only `PATH`, `HOME` and `LANG` are taken from it.
    pub environment: &'a [(OsString, OsString)],
    /// Turns a reference (`env:NAME`, `file:PATH`) into the value; used for secrets and for what may hold one. The error says what
    /// is wrong without the value.
    pub resolve: &'a dyn Fn(&str) -> Result<SecretString, String>,
    /// Where the JSON of form-encoded bodies is.
    pub form_fields: Arc<FormFields>,
    /// How events are said in common words.
    pub normalizers: Arc<Normalizers>,
}

/// A `[[handler]]` that cannot work. The text names the handler, the key, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("handler `{handler}`: {problem}")]
pub struct HandlerError {
    pub handler: String,
    pub problem: String,
}

/// Checks every handler and makes it ready to run. Needs no runtime and opens no connection.
///
/// # Errors
/// The first handler that cannot work.
pub fn build(specs: &[HandlerSpec], context: &Context<'_>) -> Result<Vec<Route>, HandlerError> {
    let mut names = HashSet::new();
    // Patterns are compiled again by whoever routes; here they are only checked.
    Router::new(specs)?;
    specs
        .iter()
        .map(|spec| {
            let problem = |problem: String| HandlerError {
                handler: spec.name.clone(),
                problem,
            };
            if !names.insert(spec.name.as_str()) {
                return Err(problem("`name` is used twice; each handler needs its own".into()));
            }
            route(spec, context).map_err(problem)
        })
        .collect()
}

fn route(spec: &HandlerSpec, context: &Context<'_>) -> Result<Route, String> {
    check(spec)?;
    let on_unknown = on_unknown(spec)?;
    Ok(Route {
        name: spec.name.as_str().into(),
        action: action(spec, context, on_unknown)?,
        retry: RetryPolicy {
            attempts: spec.retry.attempts,
            base: spec.retry.base,
            cap: spec.retry.cap,
        },
        concurrency: spec.concurrency,
        rate_limit: spec.rate_limit,
        timeout: spec.timeout,
        shape: Shape::new(spec, &context.form_fields, &context.normalizers)?,
        on_unknown,
    })
}

fn on_unknown(spec: &HandlerSpec) -> Result<OnUnknown, String> {
    match (spec.on_unknown, &spec.probe) {
        (None, None) => Ok(OnUnknown::Retry),
        (None, Some(_)) => Ok(OnUnknown::Probe),
        (Some(_), Some(_)) => Err("`on_unknown` is for handlers without `probe`, which decides instead".into()),
        (Some(_), None) if matches!(spec.kind, Kind::Sql | Kind::Pull | Kind::Log) => {
            Err(format!("`on_unknown` has no use for kind = \"{}\"", spec.kind.as_str()))
        }
        (Some(OnUnknownSpec::Retry), None) => Ok(OnUnknown::Retry),
        (Some(OnUnknownSpec::Hold), None) => Ok(OnUnknown::Hold),
    }
}

fn http(spec: &HandlerSpec, context: &Context<'_>, on_unknown: OnUnknown) -> Result<Action, String> {
    let url = spec
        .url
        .as_deref()
        .ok_or("`url` is required: where to send, https://…")?;
    let secret = spec
        .secret
        .as_deref()
        .map(|s| resolve(context, "secret", s))
        .transpose()?;
    let trusted = spec.ca_file.as_deref().map(|file| {
        let path = context.base.join(file);
        std::fs::read(&path).map_err(|e| format!("`ca_file`: {} cannot be read: {e}", path.display()))
    });
    let target = Target {
        name: &spec.name,
        url,
        secret: secret.as_ref(),
        timeout: spec.timeout,
        concurrency: spec.concurrency,
        allow_private: spec.allow_private.as_ref(),
        trusted: trusted.transpose()?,
        probe: spec.probe.as_deref(),
        breaker: spec.breaker.unwrap_or_default(),
        reuse: on_unknown != OnUnknown::Hold,
    };
    Ok(Action::Outside(Arc::new(Http::new(target)?)))
}

fn resolve(context: &Context<'_>, key: &str, reference: &str) -> Result<SecretString, String> {
    (context.resolve)(reference).map_err(|e| format!("`{key}`: {e}"))
}

fn action(spec: &HandlerSpec, context: &Context<'_>, on_unknown: OnUnknown) -> Result<Action, String> {
    Ok(match spec.kind {
        Kind::Log => Action::Outside(Arc::new(LogHandler::stdout())),
        Kind::Pull => Action::Pull,
        Kind::Http => http(spec, context, on_unknown)?,
        Kind::Native => Action::Native(spec.native.clone().ok_or(
            "`kind`: this program has no native handler of that name; it is one that a Rust program with Cerca as a \
             library registers",
        )?),
        Kind::Nats | Kind::Amqp | Kind::Kafka | Kind::Sqs | Kind::Redis => {
            Action::Outside(brokers::build(spec, &|key, reference| {
                resolve(context, key, reference)
            })?)
        }
        Kind::Exec => {
            if spec.command.first().is_none_or(String::is_empty) {
                return Err("`command` is required: a list of the program and its arguments".into());
            }
            let base: PathBuf = context.base.into();
            Action::Outside(Arc::new(Exec::new(
                &spec.command,
                base,
                context.environment,
                context.normalizers.clone(),
            )?))
        }
        Kind::Sql => {
            let statement = spec.statement.as_deref().filter(|s| !s.trim().is_empty());
            let statement = statement.ok_or("`statement` is required: one SQL statement")?;
            let params = Params::parse(&spec.params, context.form_fields.clone(), context.normalizers.clone())?;
            match spec.database.as_deref() {
                None => Action::InStore(sql::in_store(statement, params)),
                Some(reference) => {
                    let url = resolve(context, "database", reference)?;
                    Action::Outside(sql::elsewhere(&url, statement, params, spec.concurrency)?)
                }
            }
        }
    })
}

/// What holds for every kind.
fn check(spec: &HandlerSpec) -> Result<(), String> {
    let good = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
    if spec.name.is_empty() || spec.name.len() > 64 || !spec.name.bytes().all(good) {
        return Err("`name` must be 1 to 64 of a-z, 0-9, _ and -".into());
    }
    if spec.concurrency == 0 {
        return Err("`concurrency` must be at least 1".into());
    }
    if spec.timeout.is_zero() {
        return Err("`timeout` must be longer than zero, such as 30s".into());
    }
    if spec.retry.attempts == 0 {
        return Err("`retry.attempts` must be at least 1, the first included".into());
    }
    if spec.ordering_dead.is_some() && spec.ordered().is_none() {
        return Err("`ordering_dead` belongs to ordering = \"key\"".into());
    }
    if spec.format.is_some() && matches!(spec.kind, Kind::Sql | Kind::Exec | Kind::Pull | Kind::Log) {
        return Err(format!(
            "`format` is for kinds that send the payload somewhere, and this is kind = \"{}\"",
            spec.kind.as_str()
        ));
    }
    if spec.kind == Kind::Pull && (spec.when.is_some() || spec.transform.is_some()) {
        return Err("`when` and `transform` are not for kind = \"pull\": its consumers get what was received".into());
    }
    if spec.breaker.is_some_and(|breaker| breaker.pause.is_zero()) {
        return Err("`breaker.pause` must be longer than zero, such as 10s".into());
    }
    let set: [(&str, &[Kind], bool); 23] = [
        (
            "url",
            &[Kind::Http, Kind::Nats, Kind::Amqp, Kind::Redis],
            spec.url.is_some(),
        ),
        ("secret", &[Kind::Http], spec.secret.is_some()),
        ("allow_private", &[Kind::Http], spec.allow_private.is_some()),
        ("ca_file", &[Kind::Http], spec.ca_file.is_some()),
        ("probe", &[Kind::Http], spec.probe.is_some()),
        ("breaker", &[Kind::Http], spec.breaker.is_some()),
        ("statement", &[Kind::Sql], spec.statement.is_some()),
        ("params", &[Kind::Sql], !spec.params.is_empty()),
        ("database", &[Kind::Sql], spec.database.is_some()),
        ("command", &[Kind::Exec], !spec.command.is_empty()),
        ("subject", &[Kind::Nats], spec.subject.is_some()),
        ("credentials", &[Kind::Nats], spec.credentials.is_some()),
        ("exchange", &[Kind::Amqp], spec.exchange.is_some()),
        ("routing_key", &[Kind::Amqp], spec.routing_key.is_some()),
        ("brokers", &[Kind::Kafka], !spec.brokers.is_empty()),
        ("topic", &[Kind::Kafka], spec.topic.is_some()),
        ("options", &[Kind::Kafka], !spec.options.is_empty()),
        ("queue", &[Kind::Sqs], spec.queue.is_some()),
        ("region", &[Kind::Sqs], spec.region.is_some()),
        ("endpoint", &[Kind::Sqs], spec.endpoint.is_some()),
        ("stream", &[Kind::Redis], spec.stream.is_some()),
        ("max_length", &[Kind::Redis], spec.max_length.is_some()),
        ("tls", &[Kind::Nats, Kind::Amqp, Kind::Redis], spec.tls.is_some()),
    ];
    match set
        .into_iter()
        .find(|(_, kinds, set)| *set && !kinds.contains(&spec.kind))
    {
        None => Ok(()),
        Some((key, kinds, _)) => {
            let kinds: Vec<String> = kinds
                .iter()
                .map(|kind| format!("kind = \"{}\"", kind.as_str()))
                .collect();
            let kinds = kinds.join(" or ");
            Err(format!(
                "`{key}` belongs to {kinds}, and this is kind = \"{}\"",
                spec.kind.as_str()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(toml: &str) -> String {
        #[derive(serde::Deserialize)]
        struct File {
            handler: Vec<HandlerSpec>,
        }
        let file: File = toml::from_str(toml).unwrap();
        let context = Context {
            base: Path::new("/"),
            environment: &[],
            resolve: &|text| match text {
                "env:UNSET" => Err("the variable UNSET is not set".into()),
                text => Ok(text.into()),
            },
            form_fields: Arc::default(),
            normalizers: Arc::default(),
        };
        build(&file.handler, &context).map_or_else(|e| e.to_string(), |routes| format!("{} fine", routes.len()))
    }

    #[test]
    fn every_mistake_names_the_handler_and_the_key() {
        let head = |rest: &str| problem(&format!("[[handler]]\nname = \"h\"\nevents = [\"*\"]\n{rest}"));
        for (toml, expected) in [
            ("kind = \"log\"", "1 fine"),
            ("kind = \"log\"\nurl = \"http://x\"", "`url` belongs to kind = \"http\""),
            ("kind = \"http\"", "`url` is required"),
            ("kind = \"http\"\nurl = \"ftp://x\"", "`url`"),
            ("kind = \"http\"\nurl = \"http://x\"\nsecret = \"nope\"", "`secret`"),
            (
                "kind = \"http\"\nurl = \"http://x\"\nsecret = \"env:UNSET\"",
                "UNSET is not set",
            ),
            (
                "kind = \"http\"\nurl = \"http://x\"\nsecret = \"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
                "1 fine",
            ),
            ("kind = \"pull\"", "1 fine"),
            ("kind = \"pull\"\nwhen = \".a\"", "`when` and `transform` are not for"),
            ("kind = \"pull\"\nformat = \"json\"", "`format` is for kinds"),
            ("kind = \"pull\"\nurl = \"http://x\"", "`url` belongs to kind"),
            (
                "kind = \"http\"\nurl = \"http://x\"\nca_file = \"nope.pem\"",
                "`ca_file`: /nope.pem cannot be read",
            ),
            (
                "kind = \"http\"\nurl = \"http://x\"\nprobe = \"http://x/\"",
                "`probe` must hold",
            ),
            (
                "kind = \"http\"\nurl = \"http://x\"\nprobe = \"http://{idempotency_key}/\"",
                "`probe` must",
            ),
            (
                "kind = \"http\"\nurl = \"http://x\"\nprobe = \"http://x/{idempotency_key}\"",
                "1 fine",
            ),
            (
                "kind = \"http\"\nurl = \"http://x\"\nprobe = \"http://x/{idempotency_key}\"\non_unknown = \"hold\"",
                "`on_unknown` is for handlers without `probe`",
            ),
            ("kind = \"log\"\non_unknown = \"hold\"", "`on_unknown` has no use"),
            (
                "kind = \"http\"\nurl = \"http://x\"\nbreaker = { pause = \"0s\" }",
                "`breaker.pause`",
            ),
            ("kind = \"log\"\nformat = \"json\"", "`format` is for kinds"),
            ("kind = \"log\"\nwhen = \".a |\"", "`when`: line 1, column 5"),
            ("kind = \"log\"\ntransform = \"nope\"", "`transform`: line 1, column 1"),
            (
                "kind = \"http\"\nurl = \"http://x\"\nallow_private = [\"10.0.0.0/99\"]",
                "`allow_private`: \"10.0.0.0/99\" is not a network",
            ),
            (
                "kind = \"log\"\nallow_private = true",
                "`allow_private` belongs to kind = \"http\"",
            ),
            ("kind = \"exec\"", "`command` is required"),
            ("kind = \"exec\"\ncommand = [\"/bin/true\"]", "1 fine"),
            ("kind = \"sql\"", "`statement` is required"),
            (
                "kind = \"sql\"\nstatement = \"select $1\"\nparams = [\"body:id\"]",
                "`params`",
            ),
            (
                "kind = \"sql\"\nstatement = \"select $1\"\nparams = [\"body:/id\"]",
                "1 fine",
            ),
            (
                "kind = \"sql\"\nstatement = \"select 1\"\ndatabase = \"mysql://x\"",
                "`database`",
            ),
            ("kind = \"native\"", "`kind`: this program has no native handler"),
            ("kind = \"log\"\nconcurrency = 0", "`concurrency`"),
            ("kind = \"log\"\ntimeout = \"0s\"", "`timeout`"),
            ("kind = \"log\"\nordering_dead = \"skip\"", "`ordering_dead`"),
            (
                "kind = \"log\"\nordering = \"key\"\nordering_dead = \"skip\"\nrate_limit = \"5/s\"",
                "1 fine",
            ),
            ("kind = \"log\"\nretry = { attempts = 0 }", "`retry.attempts`"),
        ] {
            let text = head(toml);
            assert!(text.contains(expected), "{toml}: {text}");
            assert!(text.ends_with("fine") || text.starts_with("handler `h`: "), "{text}");
        }
    }

    #[test]
    fn names_are_plain_and_unique() {
        let one = |name: &str| format!("[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"log\"\n");
        assert!(problem(&(one("a") + &one("a"))).contains("used twice"));
        assert_eq!(problem(&(one("a") + &one("b-2_x"))), "2 fine");
        for bad in ["", "A", "a,b", "a:b", &"a".repeat(65)] {
            assert!(problem(&one(bad)).contains("`name`"), "{bad}");
        }
    }
}
