//! What `cerca check` finds of the store: whether it is there, its schema, and what it says of the statements that run
//! in it. A database that is away is only warned of, because a configuration is also checked where it cannot be reached.

use std::path::Path;

use secrecy::ExposeSecret as _;

use super::super::context::{Context, sqlite_path};
use crate::{
    app::{self, Plan},
    config::{Config, ConfigError},
    handlers::Action,
    store::{self, Schema, StoreError},
};

pub(super) enum Looked {
    /// It was reached, or its file is not there and can be made.
    At(Schema),
    /// Why not.
    Not(String),
}

impl Looked {
    pub(super) fn is_looked_at(&self) -> bool {
        matches!(self, Self::At(_))
    }

    /// For programs.
    pub(super) fn state(&self) -> &'static str {
        match self {
            Self::At(Schema::Absent) => "absent",
            Self::At(Schema::Older) => "older",
            Self::At(Schema::Current) => "current",
            Self::At(Schema::Newer) => "newer",
            Self::Not(_) => "unreachable",
        }
    }

    /// For people, after the name of the store.
    pub(super) fn text(&self) -> String {
        match self {
            Self::At(Schema::Absent) => {
                "is not there yet, or has no tables of ours; `cerca serve` or `cerca migrate` makes it".to_owned()
            }
            Self::At(Schema::Older) => {
                "was opened; its schema is older than this program, and `cerca serve` or `cerca migrate` brings it up to \
                 date"
                    .to_owned()
            }
            Self::At(Schema::Current) => "was opened; its schema is up to date".to_owned(),
            Self::At(Schema::Newer) => "was opened; its schema is newer than this program".to_owned(),
            Self::Not(why) => format!("cannot be opened: {why}"),
        }
    }
}

/// Looks at the store, and adds to the warnings.
///
/// # Errors
/// A file that is no database, and statements that can never work.
pub(super) async fn look(context: &Context, config: &Config, plan: &mut Plan) -> Result<Looked, ConfigError> {
    let url = config.store.url.expose_secret();
    let problem = |why: String| config.problem("store.url", why);
    let looked = match store::schema(url).await {
        Ok(Schema::Absent) => homeless(url).map_or(Looked::At(Schema::Absent), Looked::Not),
        Ok(schema) => Looked::At(schema),
        Err(StoreError::Refused(why)) => return Err(problem(why).into()),
        Err(StoreError::Unavailable(why)) => Looked::Not(why),
        Err(error) => Looked::Not(error.to_string()),
    };
    let runs_in_it = |plan: &Plan| plan.routes.iter().any(|r| matches!(r.action, Action::InStore(_)));
    match &looked {
        Looked::Not(why) => plan
            .warnings
            .push(problem(format!("the store cannot be opened: {why}"))),
        Looked::At(Schema::Newer) => {
            let why = "a newer program made the schema; `cerca serve` starts only with --no-migrate";
            plan.warnings.push(problem(why.to_owned()));
        }
        Looked::At(Schema::Older) if runs_in_it(plan) => {
            let why = "the statements of handlers were not looked at, because the schema is older than this program";
            plan.warnings.push(problem(why.to_owned()));
        }
        Looked::At(_) => {}
    }
    if matches!(looked, Looked::At(Schema::Current | Schema::Newer)) && runs_in_it(plan) {
        statements(context, config, plan).await?;
    }
    Ok(looked)
}

/// Why the file of a store could not be made; `None` where it could, and for stores that are no file.
fn homeless(url: &str) -> Option<String> {
    let folder = Path::new(sqlite_path(url)?).parent()?;
    // The file beside us has an empty one.
    let is_there = folder.as_os_str().is_empty() || folder.is_dir();
    (!is_there).then(|| format!("there is no folder {}", folder.display()))
}

/// Adds what the store says of the statements that run in it.
async fn statements(context: &Context, config: &Config, plan: &mut Plan) -> Result<(), ConfigError> {
    let looked = async {
        let store = context.store(config).await?;
        let findings = app::look(config, &*store, &plan.routes).await;
        store.close().await;
        anyhow::Ok(findings?)
    };
    match looked.await {
        Ok(findings) if findings.problems.is_empty() => plan.warnings.extend(findings.warnings),
        Ok(findings) => return Err(ConfigError(findings.problems)),
        Err(error) => {
            let why = format!("the statements of handlers were not looked at: {error:#}");
            plan.warnings.push(config.problem("store.url", why));
        }
    }
    Ok(())
}
