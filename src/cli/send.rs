//! `cerca send`: calls somebody's API so that every operation has its effect once, whatever fails in between.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use comfy_table::Color;
use indicatif::{ProgressBar, ProgressStyle};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{
    context::Context,
    output::{self, code, complain, counted, status_cell},
};
use crate::{
    client::{self, NewOperation, Operation, Progress, Settings, Spool, SpoolError},
    config::{Environment, Reference},
    domain::RetryPolicy,
    units::{format_duration, parse_duration},
};

/// Largest body of one operation.
const MAX_BODY: u64 = 32 << 20;

#[derive(Debug, Args)]
pub(super) struct Send {
    /// What to send; - reads standard input. A file .ndjson or .jsonl is one operation a line
    #[arg(required_unless_present_any = ["resume", "list"], value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where to send it
    #[arg(long, required_unless_present_any = ["resume", "list"])]
    url: Option<String>,
    /// The Idempotency-Key, where it has one already; with one operation a line, KEY-1, KEY-2, ...
    #[arg(long)]
    key: Option<String>,
    /// One operation a line, whatever the file is called
    #[arg(long)]
    lines: bool,
    #[arg(long, default_value = "POST")]
    method: String,
    /// A header "Name: value"; a value `env:NAME` or `file:PATH` is read at each try and never stored
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// The file that keeps what is not done
    #[arg(long, default_value = "cerca-send.db", value_name = "FILE")]
    spool: PathBuf,
    /// Go on with what the spool holds
    #[arg(long, conflicts_with_all = ["file", "list"])]
    resume: bool,
    /// With --resume: also those that failed, under the keys that they have
    #[arg(long, requires = "resume")]
    retry_failed: bool,
    /// Show what the spool holds
    #[arg(long, conflicts_with = "file")]
    list: bool,
    /// Tries of one operation in this run
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Pause after the first try; it doubles, and is always a random 0.5 to 1.0 of itself
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    base: Duration,
    /// Longest pause
    #[arg(long, default_value = "1m", value_parser = parse_duration)]
    cap: Duration,
    /// How long one try may take
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

impl Send {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        if (self.list || self.resume) && !self.spool.exists() {
            bail!("there is no spool at {}; --spool names another", self.spool.display());
        }
        let mut spool = Spool::open(&self.spool)?;
        if self.list {
            return list(context, &spool);
        }
        if self.resume {
            if self.retry_failed {
                spool.retry_failed()?;
            }
        } else {
            self.put(&mut spool)?;
        }
        let settings = Settings {
            timeout: self.timeout,
            retry: RetryPolicy {
                attempts: self.attempts,
                base: self.base,
                cap: self.cap,
            },
        };
        let bar = bar(&spool)?;
        let environment = Environment::of_process();
        let folder = PathBuf::from(".");
        let resolve = |reference: &str| {
            let value = Reference::from(reference).resolve(&folder, &environment)?;
            Ok(value.expose_secret().to_owned())
        };
        let summary = client::send(&spool, settings, &resolve, |progress| {
            report(context, bar.as_ref(), &progress)
        })
        .await?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        if context.out.json {
            context.out.object(&json!({
                "done": summary.done, "failed": summary.failed, "waiting": summary.waiting,
            }))?;
        } else {
            context.out.line(format!(
                "Sent {}; {} failed, {} still in {}.",
                counted(summary.done, "operation", "operations"),
                output::grouped(summary.failed),
                output::grouped(summary.waiting),
                self.spool.display(),
            ))?;
            if summary.waiting > 0 {
                complain(&format!(
                    "`cerca send --resume --spool {}` goes on.",
                    self.spool.display()
                ));
            }
        }
        Ok(code(summary.failed == 0 && summary.waiting == 0))
    }

    /// Puts the input into the spool, before anything is sent.
    fn put(&self, spool: &mut Spool) -> anyhow::Result<()> {
        let (Some(file), Some(url)) = (&self.file, &self.url) else {
            bail!("a file and --url are required");
        };
        let parsed = reqwest::Url::parse(url).with_context(|| format!("--url {url}"))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            bail!("--url must be http://… or https://…");
        }
        let headers = self
            .headers
            .iter()
            .map(|text| header(text))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let is_stdin = file.as_os_str() == "-";
        let input: Box<dyn BufRead> = if is_stdin {
            Box::new(io::stdin().lock())
        } else {
            let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            Box::new(BufReader::new(opened))
        };
        let template = NewOperation {
            key: self.key.clone(),
            method: self.method.to_ascii_uppercase(),
            url: url.clone(),
            headers,
            body: Vec::new(),
        };
        let added = if self.lines || has_lines(file) {
            spool.add(Lines::new(input, template))?
        } else {
            spool.add([whole(input, template)])?
        };
        if added.is_resumed {
            complain("This input is in the spool already and not finished; it goes on under its keys.");
        }
        Ok(())
    }
}

fn has_lines(file: &Path) -> bool {
    file.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| matches!(extension.to_ascii_lowercase().as_str(), "ndjson" | "jsonl"))
}

fn header(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text
        .split_once(':')
        .with_context(|| format!("--header {text}: expected \"Name: value\""))?;
    let (name, value) = (name.trim(), value.trim());
    if name.eq_ignore_ascii_case("idempotency-key") {
        bail!("--key sets the Idempotency-Key");
    }
    if reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err()
        || reqwest::header::HeaderValue::from_str(value).is_err()
    {
        bail!("--header {name}: this is not a header");
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// The body, and a content type where none was said.
fn with_body(mut operation: NewOperation, body: Vec<u8>) -> NewOperation {
    if !operation
        .headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
    {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        let kind = if is_json {
            "application/json"
        } else {
            "application/octet-stream"
        };
        operation.headers.push(("Content-Type".to_owned(), kind.to_owned()));
    }
    operation.body = body;
    operation
}

fn whole(input: impl BufRead, template: NewOperation) -> Result<NewOperation, SpoolError> {
    let mut body = Vec::new();
    let read = input.take(MAX_BODY + 1).read_to_end(&mut body);
    read.map_err(|error| SpoolError::Input(format!("the input cannot be read: {error}")))?;
    if body.len() as u64 > MAX_BODY {
        return Err(SpoolError::Input("the input is larger than 32 MiB".to_owned()));
    }
    Ok(with_body(template, body))
}

/// One operation for each line that is not empty.
struct Lines {
    input: Box<dyn BufRead>,
    template: NewOperation,
    line: u64,
}

impl Lines {
    fn new(input: Box<dyn BufRead>, template: NewOperation) -> Self {
        Self {
            input,
            template,
            line: 0,
        }
    }

    fn read(&mut self) -> Result<Option<NewOperation>, SpoolError> {
        loop {
            let mut body = Vec::new();
            self.line += 1;
            let line = self.line;
            let wrong = |what: &dyn std::fmt::Display| SpoolError::Input(format!("line {line}: {what}"));
            let read = (&mut self.input).take(MAX_BODY + 1).read_until(b'\n', &mut body);
            if read.map_err(|error| wrong(&error))? == 0 {
                return Ok(None);
            }
            while body.last().is_some_and(u8::is_ascii_whitespace) {
                body.pop();
            }
            if body.len() as u64 > MAX_BODY {
                return Err(wrong(&"longer than 32 MiB"));
            }
            if body.is_empty() {
                continue;
            }
            if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&body) {
                return Err(wrong(&format_args!("not JSON: {error}")));
            }
            let mut operation = self.template.clone();
            operation.key = operation.key.map(|key| format!("{key}-{line}"));
            return Ok(Some(with_body(operation, body)));
        }
    }
}

impl Iterator for Lines {
    type Item = Result<NewOperation, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// A progress bar where a person looks on and there is something to wait for.
fn bar(spool: &Spool) -> anyhow::Result<Option<ProgressBar>> {
    let waiting = spool.waiting()?;
    if waiting < 2 || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let bar = ProgressBar::new(waiting);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len}  {per_sec}  {eta} left") {
        bar.set_style(style);
    }
    Ok(Some(bar))
}

fn report(context: &Context, bar: Option<&ProgressBar>, progress: &Progress<'_>) {
    let say = |text: String| match bar {
        Some(bar) => bar.suspend(|| complain(&text)),
        None => complain(&text),
    };
    match progress {
        Progress::Done(operation) => {
            tracing::debug!(key = operation.key, "sent");
        }
        Progress::Failed { operation, error } => {
            say(format!(
                "{}: {}",
                context.out.paint(Color::Red, &operation.key),
                plain(error)
            ));
        }
        Progress::Again {
            operation,
            error,
            after,
        } => {
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            let after = format_duration(Duration::from_millis(millis));
            say(format!("{}: {}; again in {after}", operation.key, plain(error)));
        }
        Progress::Left { operation, error } => {
            say(format!("{}: {}; left in the spool", operation.key, plain(error)));
        }
    }
    if let (Some(bar), false) = (bar, matches!(progress, Progress::Again { .. })) {
        bar.inc(1);
    }
}

/// What a server says must not steer a terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(500)
        .collect()
}

fn list(context: &Context, spool: &Spool) -> anyhow::Result<ExitCode> {
    let mut table = output::table(&["KEY", "STATE", "TRIES", "STATUS", "URL", "ERROR"]);
    let (mut failure, mut count) = (None, 0_u64);
    spool
        .each(|operation| {
            count += 1;
            if context.out.json {
                let shown = context.out.object(&as_json(&operation));
                return shown.map_err(|error| {
                    failure = Some(error);
                    SpoolError::Input("the list cannot be written".to_owned())
                });
            }
            table.add_row([
                operation.key.as_str().into(),
                status_cell(operation.state.as_str()),
                operation.attempts.to_string().into(),
                operation
                    .status
                    .map_or_else(String::new, |status| status.to_string())
                    .into(),
                operation.url.as_str().into(),
                plain(operation.error.as_deref().unwrap_or_default()).into(),
            ]);
            Ok(())
        })
        .map_err(|error| failure.take().unwrap_or_else(|| error.into()))?;
    if !context.out.json {
        if count == 0 {
            context.out.line("The spool is empty.")?;
        } else {
            context.out.table(&table)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(operation: &Operation) -> serde_json::Value {
    json!({
        "key": operation.key, "state": operation.state.as_str(), "attempts": operation.attempts,
        "status": operation.status, "method": operation.method, "url": operation.url, "error": operation.error,
        "created_at": operation.created_at, "finished_at": operation.finished_at,
    })
}
