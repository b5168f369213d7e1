//! `POST /pull/{handler}/settle`: what consumers say of the deliveries that they took.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpRequest, web};
use serde::{Deserialize, Serialize};

use super::{
    State,
    admin::{Answer, failed, ok, read_json_within},
    error::Problem,
    pull::{MOST, PullHandler, settle_of},
};
use crate::{
    domain::Settle,
    handlers::{PullToken, Said, judge},
    store::{Lease, Settled, Store, StoreError},
    units::parse_duration,
};

/// Bounds of what a lease can be extended by at once.
const EXTENSIONS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(12 * 3600));

const MAX_SETTLE_BODY: usize = 4 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettleBody {
    results: Vec<ResultBody>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultBody {
    token: String,
    outcome: String,
    after: Option<String>,
    detail: Option<String>,
}

/// What one result asks for.
enum Wish {
    Settle(Settle),
    Extend(Lease, Duration),
    /// No token of ours.
    Nothing,
}

#[derive(Serialize)]
struct SettledJson {
    results: Vec<ResultJson>,
}

#[derive(Serialize)]
struct ResultJson {
    token: String,
    ok: bool,
    /// `done`, `retry`, `dead` (a retry after the last attempt is dead too), `extended`; `stale` when the lease had ended
    /// or another outcome was written, `invalid` for what is no token.
    result: &'static str,
}

/// `POST /pull/{handler}/settle`. The same request may be sent again: what is written already is answered alike.
pub(super) async fn settle(request: HttpRequest, mut body: web::Payload, state: web::Data<State>) -> Answer {
    let (handler, _) = state.pulls.find(&request)?;
    let body: SettleBody = read_json_within(&request, &mut body, MAX_SETTLE_BODY).await?;
    if body.results.is_empty() || body.results.len() > MOST as usize {
        return Err(Problem::bad_request(format!("`results` is a list of 1 to {MOST}")));
    }
    let wishes: Vec<Wish> = body
        .results
        .iter()
        .map(|result| wish(handler, result))
        .collect::<Result<_, _>>()?;
    let answers = carry_out(&*state.store, wishes).await.map_err(failed)?;
    let results = body.results.into_iter().zip(answers);
    let results = results
        .map(|(result, answer)| {
            count(handler, answer);
            ResultJson {
                token: result.token,
                ok: !matches!(answer, "stale" | "invalid"),
                result: answer,
            }
        })
        .collect();
    Ok(ok(&SettledJson { results }))
}

fn wish(handler: &PullHandler, result: &ResultBody) -> Result<Wish, Problem> {
    let after = match result.after.as_deref().map(parse_duration) {
        None => None,
        Some(Ok(after)) => Some(after),
        Some(Err(_)) => return Err(Problem::bad_request("`after` is not a duration such as 30s")),
    };
    let said = match &*result.outcome {
        "done" => Some(Said::Done),
        "retry" => Some(Said::Retry),
        "dead" => Some(Said::Dead),
        "extend" => None,
        _ => return Err(Problem::bad_request("`outcome` is one of done, retry, dead, extend")),
    };
    if after.is_some() && matches!(said, Some(Said::Done | Said::Dead)) {
        return Err(Problem::bad_request("`after` belongs to the outcomes retry and extend"));
    }
    let extension = after.unwrap_or(handler.lease);
    if said.is_none() && after.is_some() && !(EXTENSIONS.0..=EXTENSIONS.1).contains(&extension) {
        return Err(Problem::bad_request("a lease can be extended by 1s to 12h"));
    }
    let Some(token) = PullToken::read(&result.token) else {
        return Ok(Wish::Nothing);
    };
    let name = Arc::clone(&handler.name);
    Ok(match said {
        Some(said) => {
            let detail = result.detail.as_deref();
            let outcome = judge(said, after, detail, token.attempt, &handler.retry, rand::random());
            Wish::Settle(settle_of(&token, name, outcome))
        }
        None => Wish::Extend(
            Lease {
                event_id: token.event_id,
                handler: name,
                token: token.token,
            },
            extension,
        ),
    })
}

async fn carry_out(store: &dyn Store, wishes: Vec<Wish>) -> Result<Vec<&'static str>, StoreError> {
    let mut answers = vec!["invalid"; wishes.len()];
    let (mut settles, mut at) = (Vec::new(), Vec::new());
    // One statement for each length that is asked for, which is nearly always one.
    let mut extensions: Vec<(Duration, Vec<Lease>, Vec<usize>)> = Vec::new();
    for (index, wish) in wishes.into_iter().enumerate() {
        match wish {
            Wish::Nothing => {}
            Wish::Settle(settle) => {
                answers[index] = settle.outcome.recorded().map_or("invalid", |outcome| outcome.as_str());
                settles.push(settle);
                at.push(index);
            }
            Wish::Extend(lease, by) => match extensions.iter_mut().find(|(length, ..)| *length == by) {
                Some((_, leases, at)) => {
                    leases.push(lease);
                    at.push(index);
                }
                None => extensions.push((by, vec![lease], vec![index])),
            },
        }
    }
    for (by, leases, at) in extensions {
        for (index, holds) in at.into_iter().zip(store.renew(leases, by).await?) {
            answers[index] = if holds { "extended" } else { "stale" };
        }
    }
    if !settles.is_empty() {
        for (index, settled) in at.into_iter().zip(store.settle_each(settles).await?) {
            if settled == Settled::Stale {
                answers[index] = "stale";
            }
        }
    }
    Ok(answers)
}

/// The same counters as those of the worker.
fn count(handler: &PullHandler, answer: &'static str) {
    match answer {
        "done" | "retry" | "dead" => {
            let handler = handler.name.to_string();
            ::metrics::counter!("cerca_attempts_total", "handler" => handler, "outcome" => answer).increment(1);
        }
        "stale" => ::metrics::counter!("cerca_stale_settles_total").increment(1),
        _ => {}
    }
}
