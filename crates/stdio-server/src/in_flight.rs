//! The host's unanswered requests, by their ids.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_wire::RequestId;

/// The most unanswered requests at once, including subscriptions.
const MAX_REQUESTS: usize = 1024;

/// The requests in flight. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlightRequests(Arc<Mutex<HashMap<Box<[u8]>, InFlightEntry>>>);

#[derive(Debug)]
struct InFlightEntry {
    /// Cancelled by the host's `notifications/cancelled`.
    withdrawn: CancellationToken,
    is_modern: bool,
}

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    all: InFlightRequests,
    id: Box<[u8]>,
    pub(super) withdrawn: CancellationToken,
}

/// The reason why a request is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BeginRequestError {
    /// [`MAX_REQUESTS`] are in flight.
    #[error(
        "{MAX_REQUESTS} requests wait for their answers already: send this one again after one of them"
    )]
    TooMany,
    /// The id is in use.
    #[error(
        "A request with this id waits for its answer already: give each request an id of its own"
    )]
    SameId,
}

impl InFlightRequests {
    /// Begins a request.
    pub(super) fn begin(
        &self,
        id: &RequestId,
        is_modern: bool,
    ) -> Result<InFlightRequest, BeginRequestError> {
        let (id, withdrawn): (Box<[u8]>, _) = (id.as_json().into(), CancellationToken::new());
        let mut all = self.0.lock();
        if all.contains_key(&id) {
            return Err(BeginRequestError::SameId);
        }
        if all.len() >= MAX_REQUESTS {
            return Err(BeginRequestError::TooMany);
        }
        all.insert(
            id.clone(),
            InFlightEntry {
                withdrawn: withdrawn.clone(),
                is_modern,
            },
        );
        Ok(InFlightRequest {
            all: self.clone(),
            id,
            withdrawn,
        })
    }

    /// Cancels a request. Returns true for a modern one, because dropping its response is its whole
    /// cancellation.
    pub(super) fn withdraw(&self, id: &RequestId) -> bool {
        let all = self.0.lock();
        let Some(entry) = all.get(id.as_json()) else {
            return false;
        };
        entry.withdrawn.cancel();
        entry.is_modern
    }
}

impl InFlightRequest {
    /// Runs work until the host cancels the request. The cancellation comes first: work whose task
    /// runs late does not end in an answer that came after it.
    pub(super) async fn run_until_withdrawn(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.withdrawn.cancelled() => {}
            () = work => {}
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::pin::pin;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn requests_are_bounded_and_an_id_is_taken_until_its_answer() {
        let all = InFlightRequests::default();
        let begun: Vec<_> = (0..MAX_REQUESTS as u64)
            .map(|n| all.begin(&RequestId::from(n), false).unwrap())
            .collect();
        let [old, new] = [3, 5000].map(|n: u64| RequestId::from(n));
        assert_eq!(
            all.begin(&old, false).unwrap_err(),
            BeginRequestError::SameId
        );
        assert_eq!(
            all.begin(&new, false).unwrap_err(),
            BeginRequestError::TooMany
        );
        drop(begun);
        assert!(all.begin(&new, true).is_ok());
    }

    #[test]
    fn withdrawal_cancels_any_request_and_is_final_only_for_modern_ones() {
        let all = InFlightRequests::default();
        let [legacy, modern] = [1, 2].map(|n: u64| RequestId::from(n));
        let (one, two) = (
            all.begin(&legacy, false).unwrap(),
            all.begin(&modern, true).unwrap(),
        );
        assert!(!all.withdraw(&legacy) && all.withdraw(&modern));
        assert!(one.withdrawn.is_cancelled() && two.withdrawn.is_cancelled());
        assert!(!all.withdraw(&RequestId::from(3_u64)));
    }

    #[tokio::test]
    async fn answer_that_is_ready_with_the_cancellation_is_not_given() {
        let all = InFlightRequests::default();
        let id = RequestId::from(1_u64);
        let request = all.begin(&id, true).unwrap();
        let (answer, answered) = oneshot::channel::<()>();
        let mut is_given = false;
        {
            let mut running = pin!(request.run_until_withdrawn(async {
                answered.await.unwrap();
                is_given = true;
            }));
            assert!(poll!(&mut running).is_pending());
            assert!(all.withdraw(&id));
            answer.send(()).unwrap();
            running.await;
        }
        assert!(!is_given);
    }
}
