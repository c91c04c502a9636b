//! A claim on a value that a task owns. The task gives the value away between two steps, or keeps
//! it if the claimant has left.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// The claimant's side.
#[derive(Debug)]
pub(super) struct ValueClaim<T>(mpsc::Sender<oneshot::Sender<T>>);

/// The task's side.
#[derive(Debug)]
pub(super) struct ValueClaims<T>(mpsc::Receiver<oneshot::Sender<T>>);

/// Makes both sides of a claim.
pub(super) fn claim_pair<T>() -> (ValueClaim<T>, ValueClaims<T>) {
    let (sender, receiver) = mpsc::channel(1);
    (ValueClaim(sender), ValueClaims(receiver))
}

impl<T> ValueClaim<T> {
    /// Takes the value from the task. Absent if the task has ended or does not reach the end of its
    /// step in time; a task that is late keeps the value.
    pub(super) async fn take(self, within: Duration) -> Option<T> {
        let (sender, given) = oneshot::channel();
        self.0.send(sender).await.ok()?;
        tokio::time::timeout(within, given).await.ok()?.ok()
    }
}

impl<T> ValueClaims<T> {
    /// Makes the side of a task that is never claimed from.
    pub(super) fn unclaimed() -> Self {
        claim_pair().1
    }

    /// Waits for a claim. Cancel safe.
    pub(super) async fn next(&mut self) -> oneshot::Sender<T> {
        match self.0.recv().await {
            Some(claim) => claim,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn abandoned_claim_leaves_the_value_with_its_task() {
        let (early, mut claims) = claim_pair::<u8>();
        assert_eq!(early.take(Duration::ZERO).await, None);
        assert_eq!(claims.next().await.send(7), Err(7));
        let (timely, mut claims) = claim_pair::<u8>();
        let task = tokio::spawn(async move { claims.next().await.send(7) });
        assert_eq!(timely.take(Duration::from_secs(5)).await, Some(7));
        assert_eq!(task.await.ok(), Some(Ok(())));
        let (late, claims) = claim_pair::<u8>();
        drop(claims);
        assert_eq!(late.take(Duration::from_secs(5)).await, None);
    }
}
