//! Reprocessing by filter as a job: at a rate, shown while it goes on, and gone on with where it ended.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{Desk, who};
use crate::{
    cli::output::{code, complain, counted},
    http::JobJson,
    store::{Job, JobState, NewJob, Runner, run_job},
};

impl Desk<'_> {
    pub(super) async fn begin_job(&self, new: NewJob, reason: Option<String>) -> anyhow::Result<ExitCode> {
        let job = self.store.begin_job(new, who(reason)).await?;
        self.go_on(job).await
    }

    pub(super) async fn resume_job(&self, id: i64) -> anyhow::Result<ExitCode> {
        let job = self.store.set_job_running(id, true, Runner::Cli).await?;
        let job = job.with_context(|| format!("there is no job {id}"))?;
        if job.state == JobState::Done {
            complain(&format!("job {id} is done already"));
        }
        self.go_on(job).await
    }

    async fn go_on(&self, job: Job) -> anyhow::Result<ExitCode> {
        let stop = CancellationToken::new();
        let ending = stop.clone();
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                ending.cancel();
            }
        });
        let bar = bar(&job);
        // Said at once, for whoever kills the process.
        if bar.is_none() && job.state == JobState::Running {
            complain(&format!(
                "job {}: `cerca events reprocess --resume {}` goes on with it",
                job.id, job.id
            ));
        }
        let ended = run_job(&*self.store, job.id, &stop, &mut |job| {
            if let Some(bar) = &bar {
                bar.set_position(job.events);
            }
        })
        .await;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let hint = || format!("`cerca events reprocess --resume {}` goes on where it ended", job.id);
        let job = ended.with_context(hint)?;
        if self.context.out.json {
            self.context.out.object(&JobJson::from(&job))?;
        } else {
            self.context.out.line(format!(
                "Made ready {} of {} (job {}).",
                counted(job.deliveries, "delivery", "deliveries"),
                counted(job.events, "event", "events"),
                job.id
            ))?;
        }
        match job.state {
            JobState::Done => Ok(code(true)),
            JobState::Stopped => bail!("job {} was stopped; {}", job.id, hint()),
            JobState::Running => bail!("interrupted; {}", hint()),
        }
    }

    pub(super) async fn list_jobs(&self) -> anyhow::Result<ExitCode> {
        let out = self.context.out;
        let jobs = self.store.jobs(100).await?;
        let mut rows = crate::cli::output::table(&["ID", "BEGUN", "STATE", "EVENTS", "OF", "DELIVERIES", "BY", "WHAT"]);
        for job in &jobs {
            if out.json {
                out.object(&JobJson::from(job))?;
                continue;
            }
            rows.add_row([
                job.id.to_string(),
                super::clock(job.created_at),
                job.state.as_str().to_owned(),
                job.events.to_string(),
                job.total.to_string(),
                job.deliveries.to_string(),
                super::printable(&job.actor),
                super::printable(&job.describe()),
            ]);
        }
        match (out.json, jobs.is_empty()) {
            (true, _) => {}
            (false, true) => out.line("There was no job yet.")?,
            (false, false) => out.table(&rows)?,
        }
        Ok(code(true))
    }
}

fn bar(job: &Job) -> Option<ProgressBar> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(job.total);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len}  {per_sec}  {eta} left") {
        bar.set_style(style);
    }
    bar.set_position(job.events);
    Some(bar)
}
