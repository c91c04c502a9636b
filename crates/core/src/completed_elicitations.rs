//! The URL elicitations of one upstream that it lately reported as complete, for calls that wait for
//! one.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

/// The newest ones that are remembered.
const MAX_COMPLETED: usize = 64;
/// The longest name of an elicitation that is remembered, in bytes.
const MAX_REMEMBERED: usize = 512;

/// The completed URL elicitations of one upstream, by its own names for them.
#[derive(Debug, Default)]
pub struct CompletedElicitations(watch::Sender<VecDeque<Arc<str>>>);

impl CompletedElicitations {
    /// Remembers that the upstream reported a URL elicitation as complete.
    pub fn record(&self, name: &str) {
        if name.len() > MAX_REMEMBERED {
            return;
        }
        self.0.send_modify(|names| {
            if names.len() >= MAX_COMPLETED {
                names.pop_front();
            }
            names.push_back(name.into());
        });
    }

    /// Waits until the upstream has reported a URL elicitation as complete whose name `is_awaited`;
    /// maybe it did so before. Cancel safe.
    pub async fn wait_for(&self, is_awaited: impl Fn(&str) -> bool) {
        let mut completed = self.0.subscribe();
        // The sender lives as long as `self`.
        let _seen = completed
            .wait_for(|names| names.iter().any(|name| is_awaited(name)))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn completed_elicitation_is_noticed_before_and_during_the_wait() {
        let completed = CompletedElicitations::default();
        let mut wait = Box::pin(completed.wait_for(|name| name == "sign-in"));
        assert!(futures_util::poll!(&mut wait).is_pending());
        completed.record("pay");
        assert!(futures_util::poll!(&mut wait).is_pending());
        completed.record("sign-in");
        wait.await;
        completed.wait_for(|name| name == "sign-in").await;
        for nth in 0..2 * MAX_COMPLETED {
            completed.record(&nth.to_string());
            completed.record(&"x".repeat(MAX_REMEMBERED + 1));
        }
        assert_eq!(completed.0.borrow().len(), MAX_COMPLETED);
    }
}
