//! `/jobs`: reprocessing by filter, as far as it is.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{Frame, Page, access::Viewer, form, notice, parameters, see, shown, text::filters};
use crate::http::{
    State,
    admin::failed,
    error::Problem,
    jobs::{JobJson, LISTED, set_running},
};

#[derive(Template)]
#[template(path = "jobs.html")]
struct List<'a> {
    frame: Frame,
    jobs: Vec<JobJson<'a>>,
}

/// `GET /jobs`
pub(super) async fn list(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = parameters(request.query_string(), &["done", "count"])?;
    let jobs = state.store.jobs(LISTED).await.map_err(failed)?;
    shown(&List {
        frame: Frame::new(viewer, "/jobs", "Jobs").notice(notice(&asked)),
        jobs: jobs.iter().map(JobJson::from).collect(),
    })
}

/// `POST /jobs/stop`
pub(super) async fn stop(request: HttpRequest, body: web::Payload, viewer: Viewer, state: web::Data<State>) -> Page {
    set(&request, body, &viewer, &state, false).await
}

/// `POST /jobs/resume`
pub(super) async fn resume(request: HttpRequest, body: web::Payload, viewer: Viewer, state: web::Data<State>) -> Page {
    set(&request, body, &viewer, &state, true).await
}

async fn set(
    request: &HttpRequest,
    body: web::Payload,
    viewer: &Viewer,
    state: &web::Data<State>,
    running: bool,
) -> Page {
    let mut sent = form::sent(request, body, viewer, state).await?;
    if !sent.is_first() {
        return see("/jobs?done=again");
    }
    let id = sent.fields.need("id")?.parse();
    let id = id.map_err(|_| Problem::not_found("there is no such job"))?;
    set_running(state, id, running).await?;
    sent.done();
    see(if running {
        "/jobs?done=resumed"
    } else {
        "/jobs?done=stopped"
    })
}
