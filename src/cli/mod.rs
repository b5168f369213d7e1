//! The command line: one file a subcommand. Results go to standard output, everything else to standard error. Exit codes:
//! 0 success, 1 failure, 2 wrong usage.

mod audit;
mod backfill;
mod bench;
mod check;
mod context;
mod demo;
mod events;
mod idempotency;
mod init;
mod migrate;
mod output;
mod providers;
mod purge;
mod quarantine;
mod sealed;
mod secrets;
mod send;
mod sender;
mod serve;
mod stats;
mod trigger;
mod verify;

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use context::Context;

use crate::handlers::Native;

/// The fence between webhook providers and business code: verifies each event, stores it before it says 200, and runs
/// the handlers until each event has had its effect once.
#[derive(Debug, Parser)]
#[command(name = "cerca", version, about, long_about = None, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
struct Global {
    /// The configuration file [default: cerca.toml, where it exists]
    #[arg(long, short, global = true, env = "CERCA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A folder of adapters that adds to the built-in ones, or overrides them
    #[arg(long = "providers", global = true, value_name = "DIR")]
    adapters: Option<PathBuf>,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive webhooks and run their handlers
    Serve(serve::Serve),
    /// Show a whole life of webhooks on a scratch database
    Demo(demo::Demo),
    /// Write a commented cerca.toml
    Init(init::Init),
    /// Validate the configuration and print what is in force
    Check,
    /// Bring the database's schema up to date
    Migrate,
    /// Look at the adapters
    #[command(subcommand)]
    Providers(providers::Providers),
    /// Send a sample event, signed as that provider would sign it
    Trigger(trigger::Trigger),
    /// Call an API so that each operation has its effect once, however often it is tried
    Send(send::Send),
    /// Explain why a request does or does not verify
    Verify(verify::Verify),
    /// Look at events, and give them a new life
    #[command(subcommand)]
    Events(events::Events),
    /// Look at refused requests, and take them in
    #[command(subcommand)]
    Quarantine(quarantine::Quarantine),
    /// Fetch from the sender's own API what never arrived
    Backfill(backfill::Backfill),
    /// Look at idempotency keys
    #[command(subcommand)]
    Idempotency(idempotency::Idempotency),
    /// Show who did what by hand, and why
    Audit(audit::Audit),
    /// Count events and deliveries
    Stats,
    /// Remove what is older than `[retention]` says
    Purge(purge::Purge),
    /// Measure how many webhooks a second this machine stores durably
    Bench(bench::Bench),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    main_with(Vec::new())
}

/// The same, for a program with handlers of its own.
pub fn main_with(natives: Vec<Native>) -> ExitCode {
    let cli = Cli::parse();
    let json = cli.global.json;
    // Clients of TLS ask for the process's choice; a second choice would be refused, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure(&error.into(), json),
    };
    let result = runtime.block_on(Box::pin(run(cli, natives)));
    // A tail or a sweep may still be running; the store is closed already.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failure(&error, json),
    }
}

async fn run(cli: Cli, natives: Vec<Native>) -> anyhow::Result<ExitCode> {
    let context = Context::new(cli.global, natives);
    match cli.command {
        Command::Serve(command) => command.run(&context).await,
        Command::Demo(command) => command.run(&context).await,
        Command::Init(command) => command.run(&context),
        Command::Check => check::run(&context).await,
        Command::Migrate => migrate::run(&context).await,
        Command::Providers(command) => command.run(&context).await,
        Command::Trigger(command) => command.run(&context).await,
        Command::Send(command) => command.run(&context).await,
        Command::Verify(command) => command.run(&context).await,
        Command::Events(command) => command.run(&context).await,
        Command::Quarantine(command) => command.run(&context).await,
        Command::Backfill(command) => Box::pin(command.run(&context)).await,
        Command::Idempotency(command) => command.run(&context).await,
        Command::Audit(command) => command.run(&context).await,
        Command::Stats => stats::run(&context).await,
        Command::Purge(command) => command.run(&context).await,
        Command::Bench(command) => command.run(&context).await,
    }
}

/// The reader went away, as `head` does: not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn failure(error: &anyhow::Error, json: bool) -> ExitCode {
    let text = if json {
        serde_json::json!({ "error": format!("{error:#}") }).to_string()
    } else {
        format!("error: {error:#}")
    };
    output::complain(&text);
    ExitCode::FAILURE
}
