//! URLs that must be called before a sender sends events, each on a host that the adapter names. They wait here, because
//! nothing is called inside a request.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};

use super::refresh::FetchError;

/// Most URLs that wait for one provider.
const MOST: usize = 8;
/// How often one is called until it answers, and the gap after the first try; each further one is four times as long.
const TRIES: i32 = 5;
const FIRST_GAP: SignedDuration = SignedDuration::from_secs(10);

/// What came of a call.
#[derive(Debug)]
pub enum Called {
    Confirmed,
    /// It is called again later.
    Failed(FetchError),
    GivenUp(FetchError),
}

/// The calls that wait.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Vec<Call>>);

#[derive(Debug)]
struct Call {
    url: String,
    tries: i32,
    due: Timestamp,
}

impl Calls {
    /// Notes a URL; one that waits already waits once. False where there is no room.
    pub(crate) fn want(&self, url: &str, now: Timestamp) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.iter().any(|call| call.url == url) {
            return true;
        }
        if waiting.len() >= MOST {
            return false;
        }
        waiting.push(Call {
            url: url.to_owned(),
            tries: 0,
            due: now,
        });
        true
    }

    /// Calls what is due.
    pub(crate) async fn turn<F, Fut>(&self, now: Timestamp, call: F) -> Vec<Called>
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, FetchError>>,
    {
        let mut outcomes = Vec::new();
        for url in self.due(now) {
            let outcome = call(url.clone()).await;
            outcomes.push(self.settle(&url, outcome, now));
        }
        outcomes
    }

    fn due(&self, now: Timestamp) -> Vec<String> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = waiting.iter().filter(|call| call.due <= now);
        due.map(|call| call.url.clone()).collect()
    }

    fn settle(&self, url: &str, outcome: Result<Vec<u8>, FetchError>, now: Timestamp) -> Called {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().position(|call| call.url == url);
        let (error, at) = match (outcome, at) {
            (Ok(_), at) => {
                at.map(|at| waiting.swap_remove(at));
                return Called::Confirmed;
            }
            (Err(error), None) => return Called::GivenUp(error),
            (Err(error), Some(at)) => (error, at),
        };
        let call = &mut waiting[at];
        call.tries += 1;
        if call.tries >= TRIES {
            waiting.swap_remove(at);
            return Called::GivenUp(error);
        }
        let gap = FIRST_GAP.saturating_mul(4_i32.saturating_pow(call.tries.unsigned_abs() - 1));
        call.due = now.checked_add(gap).unwrap_or(Timestamp::MAX);
        Called::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    fn fails(url: String) -> std::future::Ready<Result<Vec<u8>, FetchError>> {
        std::future::ready(Err(FetchError::Status { url, status: 500 }))
    }

    #[tokio::test]
    async fn a_url_is_called_until_it_answers() {
        let calls = Calls::default();
        assert!(calls.want("https://a", at(0)) && calls.want("https://a", at(0)));
        assert!(matches!(calls.turn(at(0), fails).await[..], [Called::Failed(_)]));
        assert!(calls.turn(at(9), fails).await.is_empty());
        let answers = |_| std::future::ready(Ok(Vec::new()));
        assert!(matches!(calls.turn(at(10), answers).await[..], [Called::Confirmed]));
        assert!(calls.turn(at(1000), answers).await.is_empty());
    }

    #[tokio::test]
    async fn what_never_answers_is_given_up() {
        let calls = Calls::default();
        calls.want("https://a", at(0));
        let mut last = None;
        for turn in 0..i64::from(TRIES) {
            last = calls.turn(at(turn * 100_000), fails).await.pop();
        }
        assert!(matches!(last, Some(Called::GivenUp(_))), "{last:?}");
        assert!(calls.turn(at(1_000_000), fails).await.is_empty());
    }

    #[test]
    fn there_is_room_for_a_few() {
        let calls = Calls::default();
        let taken = (0..20).filter(|n| calls.want(&format!("https://{n}"), at(0))).count();
        assert_eq!(taken, MOST);
    }
}
