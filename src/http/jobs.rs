//! Reprocessing that goes on behind the answer: jobs of the API, which survive a restart.

use std::num::NonZero;

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{
    State,
    admin::{API, Answer, by, failed, known_handlers, ok},
    error::Problem,
    query::{self, ReprocessMany},
};
use crate::store::{EventFilter, Job, NewJob, Runner, run_job};

/// Jobs in a list.
pub(super) const LISTED: u32 = 100;

/// A job as API and command line show it.
#[derive(Debug, Serialize)]
pub struct JobJson<'a> {
    pub id: i64,
    pub state: &'static str,
    pub created_at: Timestamp,
    /// Of its last step.
    pub updated_at: Timestamp,
    /// `cli` stays where it ended; `server` goes on by itself.
    pub runner: &'static str,
    pub actor: &'a str,
    pub reason: Option<&'a str>,
    /// In words.
    pub filter: String,
    pub handlers: Option<Vec<&'a str>>,
    /// Events a second, at most: `100/s`.
    pub rate: Option<String>,
    /// Events that matched at its start.
    pub total: u64,
    /// Events gone through.
    pub events: u64,
    /// Deliveries made ready.
    pub deliveries: u64,
}

impl<'a> From<&'a Job> for JobJson<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            id: job.id,
            state: job.state.as_str(),
            created_at: job.created_at,
            updated_at: job.updated_at,
            runner: job.runner.as_str(),
            actor: &job.actor,
            reason: job.reason.as_deref(),
            filter: job.describe(),
            handlers: job
                .handlers
                .as_ref()
                .map(|names| names.iter().map(|name| &**name).collect()),
            rate: job.rate.map(|rate| format!("{rate}/s")),
            total: job.total,
            events: job.events,
            deliveries: job.deliveries,
        }
    }
}

/// `POST /events/reprocess` with `background` or `rate`.
pub(super) async fn begin(state: &web::Data<State>, filter: EventFilter, asked: ReprocessMany) -> Answer {
    let job = begin_job(state, filter, asked, API).await?;
    Ok(accepted(&job))
}

/// Begins a job, and goes on with it.
pub(super) async fn begin_job(
    state: &web::Data<State>,
    filter: EventFilter,
    asked: ReprocessMany,
    actor: &str,
) -> Result<Job, Problem> {
    let handlers = known_handlers(state, asked.handlers)?;
    let new = NewJob {
        filter,
        handlers,
        forget_steps: asked.forget_steps,
        rate: asked.rate.map(NonZero::get),
        runner: Runner::Server,
    };
    let job = state.store.begin_job(new, by(actor, asked.reason)).await;
    let job = job.map_err(failed)?;
    go_on(state, job.id);
    Ok(job)
}

/// `GET /jobs`
pub(super) async fn list(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let jobs = state.store.jobs(LISTED).await.map_err(failed)?;
    let jobs: Vec<JobJson<'_>> = jobs.iter().map(JobJson::from).collect();
    Ok(ok(&json!({ "jobs": jobs })))
}

/// `GET /jobs/{id}`
pub(super) async fn show(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let id = query::number(request.path())?;
    let job = state.store.job(id).await.map_err(failed)?.ok_or_else(no_job)?;
    Ok(ok(&JobJson::from(&job)))
}

/// `POST /jobs/{id}/stop`
pub(super) async fn stop(request: HttpRequest, state: web::Data<State>) -> Answer {
    set(&request, &state, false).await
}

/// `POST /jobs/{id}/resume`
pub(super) async fn resume(request: HttpRequest, state: web::Data<State>) -> Answer {
    set(&request, &state, true).await
}

async fn set(request: &HttpRequest, state: &web::Data<State>, running: bool) -> Answer {
    query::none(request.query_string())?;
    let id = query::number(request.path())?;
    let job = set_running(state, id, running).await?;
    Ok(if running {
        accepted(&job)
    } else {
        ok(&JobJson::from(&job))
    })
}

/// Stops a job, or lets it go on here.
pub(super) async fn set_running(state: &web::Data<State>, id: i64, running: bool) -> Result<Job, Problem> {
    let set = state.store.set_job_running(id, running, Runner::Server);
    let job = set.await.map_err(failed)?.ok_or_else(no_job)?;
    if running {
        go_on(state, id);
    }
    Ok(job)
}

/// Steps until the job is done. Where this ends early, the timetable goes on with it.
fn go_on(state: &web::Data<State>, id: i64) {
    let (store, stop) = (state.store.clone(), state.shutdown.clone());
    tokio::spawn(async move {
        if let Err(error) = run_job(&*store, id, &stop, &mut |_| {}).await {
            tracing::warn!(job = id, %error, "a reprocessing job ended early; it goes on in a while");
        }
    });
}

fn accepted(job: &Job) -> HttpResponse {
    let mut answer = ok(&json!({ "job": JobJson::from(job) }));
    *answer.status_mut() = StatusCode::ACCEPTED;
    answer
}

fn no_job() -> Problem {
    Problem::not_found("there is no such job")
}
