//! Asks the store what it thinks of the statements that sql handlers run in it, before the first event does.

use crate::{
    config::{Config, ConfigError, Problem},
    handlers::{Action, Route},
    store::{Prepared, Store, StoreError},
};

/// What the store said.
#[derive(Debug, Default)]
pub struct Findings {
    /// Statements that can never work.
    pub problems: Vec<Problem>,
    /// Statements that cannot work now, such as for want of a table.
    pub warnings: Vec<Problem>,
}

/// Lets the store prepare each statement that runs in it.
///
/// # Errors
/// The store cannot be asked.
pub async fn look(config: &Config, store: &dyn Store, routes: &[Route]) -> Result<Findings, StoreError> {
    let mut findings = Findings::default();
    for route in routes {
        let Action::InStore(action) = &route.action else {
            continue;
        };
        let index = config.handlers.iter().position(|spec| spec.name == *route.name);
        let problem = |key: &str, why: String| {
            let path = index.map_or_else(|| "handler".to_owned(), |index| format!("handler[{index}].{key}"));
            config.problem(&path, format!("handler `{}`: {why}", route.name))
        };
        match store.prepare(&action.statement, action.count).await? {
            Prepared::Fine => {}
            Prepared::Wrong(why) => findings.problems.push(problem("statement", why)),
            Prepared::Doubtful(why) => {
                let why = format!("{why}; events for it will be tried again by its retry policy");
                findings.warnings.push(problem("statement", why));
            }
        }
    }
    Ok(findings)
}

/// Refuses to start with a statement that can never work; warns about the others.
pub(super) async fn refuse(config: &Config, store: &dyn Store, routes: &[Route]) -> anyhow::Result<()> {
    let findings = match look(config, store, routes).await {
        Ok(findings) => findings,
        Err(error) => {
            tracing::warn!(%error, "the handlers' statements could not be looked at");
            return Ok(());
        }
    };
    for warning in &findings.warnings {
        tracing::warn!("{warning}");
    }
    if findings.problems.is_empty() {
        return Ok(());
    }
    Err(ConfigError(findings.problems).into())
}
