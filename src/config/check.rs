//! From the file's tables to a checked configuration: what serde cannot say. Collects every mistake before it gives up.

mod backfill;
mod gateways;

use std::{collections::BTreeMap, path::Path};

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    Admin, Config, ConfigError, Environment, ProviderConfig, Secrets, StoreUrl,
    error::Problem,
    file::{AdminTable, File, ProviderTable, Retention, Server, StoreTable, Worker},
    folder_of,
    limits::{self, MAX_BODY},
    secret::Reference,
    source::Source,
};
use crate::{
    adapters::ProviderSpec,
    domain::OUTBOX,
    handlers::HandlerSpec,
    seal::SealKey,
    units::{format_duration, format_size, parse_duration},
};

/// What one pass over the file needs and finds.
struct Pass<'a> {
    source: &'a Source,
    folder: &'a Path,
    environment: &'a Environment,
    secrets: Secrets,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

pub(super) fn resolve(
    mut file: File,
    source: Source,
    path: Option<&Path>,
    environment: &Environment,
    secrets: Secrets,
) -> Result<Config, ConfigError> {
    let folder = folder_of(path);
    let mut pass = Pass {
        source: &source,
        folder: &folder,
        environment,
        secrets,
        problems: Vec::new(),
        warnings: Vec::new(),
    };
    pass.server(&mut file.server);
    let admin = pass.admin(file.admin, &file.server);
    let store = pass.store(&file.store);
    pass.worker(&file.worker);
    pass.retention(&file.retention);
    pass.within("outbox.poll", limits::poll(file.outbox.poll));
    let providers = pass.providers(file.provider, &file.server);
    let handlers = pass.handlers(file.handler, &providers);
    pass.gateways(&file.gateway, &file.server);
    let Pass { problems, warnings, .. } = pass;
    if !problems.is_empty() {
        return Err(ConfigError(problems));
    }
    Ok(Config {
        server: file.server,
        admin,
        store,
        worker: file.worker,
        retention: file.retention,
        outbox: file.outbox,
        quarantine: file.quarantine,
        log: file.log,
        providers,
        handlers,
        gateways: file.gateway,
        warnings,
        path: path.map(Path::to_owned),
        environment: environment.clone(),
        source,
    })
}

impl Pass<'_> {
    fn wrong(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(self.source.problem(path, message));
    }

    fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(self.source.problem(path, message));
    }

    fn server(&mut self, server: &mut Server) {
        if let Some(url) = server.public_url.take() {
            server.public_url = self.public_url("server.public_url", &url);
        }
        self.max_body("server.max_body", server.max_body);
        self.not_zero("server.body_timeout", server.body_timeout.is_zero());
        self.not_zero("server.max_wait", server.max_wait.is_zero());
        self.within("server.workers", limits::workers(server.workers));
        self.within("server.max_connections", limits::connections(server.max_connections));
    }

    fn admin(&mut self, table: AdminTable, server: &Server) -> Admin {
        self.within("admin.listen", limits::listeners(server.listen, table.listen));
        let said = table.token.is_some();
        if table.token.as_ref().is_some_and(Reference::is_literal) && self.source.is_in_file("admin.token") {
            self.warn("admin.token", "the token stands in the file; use env:NAME or file:PATH");
        }
        let token = table.token.and_then(|token| self.secret("admin.token", &token));
        if !said && !table.listen.ip().is_loopback() {
            let message = format!(
                "required, because {} can be reached from outside; set it to env:CERCA_ADMIN_TOKEN, or listen on 127.0.0.1",
                table.listen
            );
            self.wrong("admin.token", message);
        }
        Admin {
            listen: table.listen,
            token,
        }
    }

    fn store(&mut self, table: &StoreTable) -> StoreUrl {
        let url = match table.url.resolve(self.folder, self.environment) {
            Ok(url) => url,
            Err(message) => {
                self.wrong("store.url", message);
                SecretString::default()
            }
        };
        let text = url.expose_secret();
        if !text.is_empty() {
            self.within("store.url", limits::store_url(text));
        }
        if table.url.is_literal() && super::redact_url(text) != text && self.source.is_in_file("store.url") {
            self.warn(
                "store.url",
                "the password stands in the file; use env:DATABASE_URL or file:PATH",
            );
        }
        let seal_key = table.seal_key.as_ref().and_then(|reference| self.seal_key(reference));
        StoreUrl { url, seal_key }
    }

    fn seal_key(&mut self, reference: &Reference) -> Option<SealKey> {
        const KEY: &str = "store.seal_key";
        if reference.is_literal() && self.source.is_in_file(KEY) {
            self.warn(KEY, "the key stands in the file; use env:NAME or file:PATH");
        }
        // The commands that leave secrets alone use the key where it is at hand: one of them opens what is stored.
        let text = match self.secrets {
            Secrets::Leave => reference.resolve(self.folder, self.environment).ok()?,
            Secrets::Fetch => self.secret(KEY, reference)?,
        };
        match SealKey::parse(&text) {
            Ok(key) => Some(key),
            Err(error) => {
                self.wrong(KEY, error.to_string());
                None
            }
        }
    }

    fn worker(&mut self, worker: &Worker) {
        self.within("worker.concurrency", limits::concurrency(worker.concurrency));
        self.within("worker.lease", limits::lease(worker.lease));
    }

    fn retention(&mut self, retention: &Retention) {
        let dedupe = format_duration(retention.dedupe);
        let mut unsaid = None;
        for (key, age) in [("done", retention.done), ("failed", retention.failed)] {
            let path = format!("retention.{key}");
            if age <= retention.dedupe {
                continue;
            } else if self.source.origin(&path).is_none() {
                unsaid = unsaid.max(Some((age, key)));
            } else {
                let age = format_duration(age);
                let message = format!("{age} is longer than dedupe ({dedupe}): the payload would outlive its row");
                self.wrong(&path, message);
            }
        }
        // A default is no mistake of the one who wrote the file.
        if let Some((age, key)) = unsaid {
            let age = format_duration(age);
            let message = format!(
                "{dedupe} is shorter than {key} ({age} by default): the payload would outlive its row; expected at \
                 least {age}, or a shorter {key}"
            );
            self.wrong("retention.dedupe", message);
        }
    }

    fn providers(&mut self, tables: Vec<ProviderTable>, server: &Server) -> Vec<ProviderConfig> {
        let mut seen = BTreeMap::new();
        let mut providers = Vec::with_capacity(tables.len());
        for (index, table) in tables.into_iter().enumerate() {
            let path = format!("provider[{index}]");
            self.name(&path, "provider", &table.name, index, &mut seen);
            if table.name == OUTBOX {
                self.wrong(
                    &format!("{path}.name"),
                    "`outbox` is the provider of your own events; expected another name",
                );
            }
            providers.push(self.provider(&path, table, server));
        }
        providers
    }

    fn provider(&mut self, path: &str, table: ProviderTable, server: &Server) -> ProviderConfig {
        let at = |key: &str| format!("{path}.{key}");
        let secrets = self.list_of_secrets(&at("secrets"), &table.secrets);
        let decryption_keys = self.list_of_secrets(&at("decryption_keys"), &table.decryption_keys);
        if let Some(text) = table.tolerance.as_deref().filter(|text| *text != "none")
            && let Err(message) = parse_duration(text)
        {
            self.wrong(&at("tolerance"), format!("{message}, or none"));
        }
        let public_url = match &table.public_url {
            Some(url) => self.public_url(&at("public_url"), url),
            None => server.public_url.clone(),
        };
        if let Some(bytes) = table.max_body {
            self.max_body(&at("max_body"), bytes);
        }
        let max_body = table.max_body.unwrap_or(server.max_body);
        let on_conflict = table.on_conflict.unwrap_or(200);
        if ![200, 409].contains(&on_conflict) {
            self.wrong(&at("on_conflict"), format!("{on_conflict} is neither 200 nor 409"));
        }
        match table.verify.as_deref() {
            None => {}
            // The provider itself warns of it, whether it is said here or by its adapter.
            Some("none") => {}
            Some(other) => self.wrong(&at("verify"), format!("`{other}` is not `none`, its only value")),
        }
        let backfill = self.backfill(path, &table);
        ProviderConfig {
            backfill,
            spec: ProviderSpec {
                name: table.name,
                adapter: table.adapter,
                secrets,
                decryption_keys,
                tolerance: table.tolerance,
                public_url: public_url.unwrap_or_else(|| format!("http://{}", server.listen)),
                max_body,
                on_conflict,
                accept: table.accept,
                confirm: table.confirm,
                verify: table.verify,
                options: table.options,
                signature: table.signature,
                event: table.event,
                rate_limit: table.rate_limit,
                revive: table.revive,
            },
        }
    }

    fn handlers(&mut self, handlers: Vec<HandlerSpec>, providers: &[ProviderConfig]) -> Vec<HandlerSpec> {
        let mut seen = BTreeMap::new();
        for (index, handler) in handlers.iter().enumerate() {
            let path = format!("handler[{index}]");
            self.name(&path, "handler", &handler.name, index, &mut seen);
            for (number, pattern) in handler.events.iter().enumerate() {
                self.pattern(&format!("{path}.events[{number}]"), pattern, providers);
            }
            self.within(&format!("{path}.concurrency"), limits::concurrency(handler.concurrency));
            self.within(&format!("{path}.retry.base"), limits::retry(&handler.retry));
            if let Some(message) = limits::writes_to_its_own_source(handler) {
                self.warn(&format!("{path}.statement"), message);
            }
            for (key, message) in limits::passwords(handler) {
                self.warn(&format!("{path}.{key}"), message);
            }
            if let Some(message) = limits::program(&handler.command, self.folder, self.environment) {
                self.warn(&format!("{path}.command[0]"), message);
            }
        }
        handlers
    }

    /// Warns of a pattern that no registered provider can ever match.
    fn pattern(&mut self, path: &str, pattern: &str, providers: &[ProviderConfig]) {
        let sender = pattern.split_once(':').map_or(pattern, |(sender, _)| sender);
        let glob = match globset::Glob::new(sender) {
            Ok(glob) => glob.compile_matcher(),
            Err(error) => return self.wrong(path, format!("`{pattern}` is not a pattern: {}", error.kind())),
        };
        let matches = |spec: &ProviderSpec| {
            glob.is_match(&spec.name) || spec.adapter.as_deref().is_some_and(|name| glob.is_match(name))
        };
        if providers.is_empty() || sender == "*" || glob.is_match(OUTBOX) || providers.iter().any(|p| matches(&p.spec))
        {
            return;
        }
        let names: Vec<&str> = providers.iter().map(|p| p.spec.name.as_str()).collect();
        let guess = super::near(sender, &names).map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
        self.warn(path, format!("`{pattern}` matches no provider{guess}"));
    }

    fn name(&mut self, path: &str, what: &str, name: &str, index: usize, seen: &mut BTreeMap<String, usize>) {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
            let message = format!("\"{name}\" is not a name: 1 to 64 of a-z, 0-9, _ and -");
            self.wrong(&format!("{path}.name"), message);
        }
        if let Some(first) = seen.insert(name.to_owned(), index) {
            self.wrong(
                &format!("{path}.name"),
                format!("\"{name}\" is the name of {what}[{first}] already"),
            );
        }
    }

    fn list_of_secrets(&mut self, path: &str, references: &[Reference]) -> Vec<SecretString> {
        let mut secrets = Vec::with_capacity(references.len());
        for (index, reference) in references.iter().enumerate() {
            let key = format!("{path}[{index}]");
            if reference.is_literal() {
                self.warn(&key, "the secret stands in the file; use env:NAME or file:PATH");
            }
            secrets.extend(self.secret(&key, reference));
        }
        secrets
    }

    fn secret(&mut self, path: &str, reference: &Reference) -> Option<SecretString> {
        if self.secrets == Secrets::Leave {
            return None;
        }
        match reference.resolve(self.folder, self.environment) {
            Ok(secret) => Some(secret),
            Err(message) => {
                self.wrong(path, message);
                None
            }
        }
    }

    /// Scheme, host and port only: the path is ours.
    fn public_url(&mut self, path: &str, text: &str) -> Option<String> {
        let expected = "expected scheme and host, such as https://hooks.example.com";
        let url = match reqwest::Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
            Ok(_) => {
                self.wrong(path, format!("`{text}` is not an http or https URL; {expected}"));
                return None;
            }
            Err(error) => {
                self.wrong(path, format!("`{text}` is not a URL ({error}); {expected}"));
                return None;
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            self.wrong(path, format!("holds a user or a password; {expected}"));
            return None;
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            self.wrong(
                path,
                format!("`{text}` has a path; {expected} (senders call /webhooks/… there)"),
            );
            return None;
        }
        let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if url.scheme() == "http" && !local {
            self.warn(path, "senders would call this without encryption; https is the rule");
        }
        Some(text.trim_end_matches('/').to_owned())
    }

    fn max_body(&mut self, path: &str, bytes: usize) {
        if bytes == 0 || bytes > MAX_BODY {
            let message = format!("{} is not between 1B and {}", format_size(bytes), format_size(MAX_BODY));
            self.wrong(path, message);
        }
    }

    fn within(&mut self, path: &str, judged: Result<(), String>) {
        if let Err(message) = judged {
            self.wrong(path, message);
        }
    }

    fn not_zero(&mut self, path: &str, zero: bool) {
        if zero {
            self.wrong(path, "must be more than zero");
        }
    }
}
