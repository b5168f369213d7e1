//! Pushes keys forward that nobody runs any more, on schedule: asks the upstream where it can be asked, and else writes
//! down that nobody knows.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use super::{PUSHED, gateway::Gateways, upstream::Probed};
use crate::store::{HeldKey, KeyRow, KeyStep, Store, StoreError};

/// Keys in one look, and how many upstreams are asked at once.
const BATCH: u32 = 200;
const AT_ONCE: usize = 8;
/// Looks in one turn, so that keys that stay undecided do not make it endless.
const LOOKS: u32 = 50;

/// What became of abandoned keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The upstream gave the answer.
    pub answered: u64,
    /// The upstream never heard of the request.
    pub released: u64,
    /// Nobody can be asked.
    pub given_up: u64,
    /// The upstream did not say; asked again in the next turn.
    pub undecided: u64,
}

pub struct Completer {
    store: Arc<dyn Store>,
    gateways: Arc<Gateways>,
}

enum End {
    Answered,
    Released,
    GivenUp,
    Undecided,
    /// Another was quicker.
    Passed,
}

impl Completer {
    #[must_use]
    pub fn new(store: Arc<dyn Store>, gateways: Arc<Gateways>) -> Self {
        Self { store, gateways }
    }

    /// One turn.
    ///
    /// # Errors
    /// The store cannot answer.
    pub async fn push(&self) -> Result<Pushed, StoreError> {
        let mut pushed = Pushed::default();
        for _ in 0..LOOKS {
            let rows = self.store.abandoned(BATCH).await?;
            let is_last = rows.len() < BATCH as usize;
            let mut ends = stream::iter(rows).map(|row| self.end(row)).buffer_unordered(AT_ONCE);
            let undecided = pushed.undecided;
            while let Some(end) = ends.next().await {
                let (counter, outcome) = match end? {
                    End::Answered => (&mut pushed.answered, "answered"),
                    End::Released => (&mut pushed.released, "released"),
                    End::GivenUp => (&mut pushed.given_up, "given_up"),
                    End::Undecided => (&mut pushed.undecided, "undecided"),
                    End::Passed => continue,
                };
                *counter += 1;
                metrics::counter!(PUSHED, "outcome" => outcome).increment(1);
            }
            // An upstream that cannot say now is not asked again and again.
            if is_last || pushed.undecided > undecided {
                break;
            }
        }
        Ok(pushed)
    }

    async fn end(&self, row: KeyRow) -> Result<End, StoreError> {
        let gateway = self.gateways.by_route(&row.name.route);
        let lease = gateway.map_or(std::time::Duration::from_secs(30), |gateway| gateway.lease);
        let Some(held) = self.store.take_over(row.id, lease).await? else {
            return Ok(End::Passed);
        };
        let asked = gateway.and_then(|gateway| Some((gateway, gateway.probe.as_ref()?)));
        let Some((gateway, probe)) = asked else {
            return self.step(held, KeyStep::GiveUp, End::GivenUp).await;
        };
        let keeps = |name: &str| gateway.keeps_header(name);
        match probe
            .ask(&gateway.client, &row.name.key, None, gateway.max_answer, keeps)
            .await
        {
            Probed::Happened(answer) => {
                self.step(held, KeyStep::Complete(Arc::new(answer)), End::Answered)
                    .await
            }
            Probed::Never => self.step(held, KeyStep::Release, End::Released).await,
            Probed::Undecided if row.expires_at <= jiff::Timestamp::now() => {
                self.step(held, KeyStep::GiveUp, End::GivenUp).await
            }
            Probed::Undecided => self.step(held, KeyStep::Abandon, End::Undecided).await,
        }
    }

    async fn step(&self, held: HeldKey, step: KeyStep, end: End) -> Result<End, StoreError> {
        Ok(if self.store.step(held, step).await? {
            end
        } else {
            End::Passed
        })
    }
}
