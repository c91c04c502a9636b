//! Operators' blocks of principals while faults happen: each one is in force on every replica in time,
//! or the replica reports that it lacks the store, and stays in force.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::super::operator_changes::IN_FORCE;
use crate::admin::OperatorClient;
use crate::harness::{Replicas, SplitMixRandom, Weir, wait_until_async};

/// The issuer of the principals.
const ISSUER: &str = "https://issuer.test";

/// The pause between looks at a replica.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The principals that are blocked. None of them makes a call.
#[derive(Debug, Default)]
pub(super) struct ChaosBlocks {
    subjects: Vec<String>,
}

impl ChaosBlocks {
    /// Blocks another principal at one of the replicas, and expects the block on all of them.
    pub(super) async fn block_another(&mut self, replicas: &Replicas, random: &mut SplitMixRandom) {
        let subject = format!("principal-{}", self.subjects.len());
        let number = *random.pick(&replicas.running_numbers());
        let ops = OperatorClient::of(replicas.replica(number));
        let principal = json!({ "issuer": ISSUER, "subject": subject });
        let done = ops.change("/admin/principals/block", principal).await;
        let is_notified = done["replicas"] == "notified";
        assert!(is_notified || done["replicas"] == "pending", "{done}");
        let begun = Instant::now();
        for weir in replicas.running() {
            let mut has_store = true;
            while !has_blocks(weir, std::slice::from_ref(&subject)).await {
                has_store &= weir.metric("weir_store_up", &[]) > 0.5;
                let is_late = begun.elapsed() > IN_FORCE;
                assert!(
                    !(is_late && is_notified && has_store),
                    "{subject} is not blocked after {IN_FORCE:?} by {}",
                    weir.admin_url()
                );
                if is_late {
                    break;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        }
        self.subjects.push(subject);
        self.expect_all(replicas).await;
    }

    /// Waits until all blocks are in force on every replica.
    pub(super) async fn expect_all(&self, replicas: &Replicas) {
        for weir in replicas.running() {
            wait_until_async("all blocks", async || {
                has_blocks(weir, &self.subjects).await.then_some(())
            })
            .await;
        }
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> usize {
        self.subjects.len()
    }
}

/// True if the blocks of all these principals are in force on a replica.
async fn has_blocks(weir: &Weir, subjects: &[String]) -> bool {
    let config = OperatorClient::of(weir).get_json("/admin/config").await;
    let changes = config["changes"].as_array().unwrap();
    subjects.iter().all(|subject| {
        let name = format!("{subject} of {ISSUER}");
        changes.iter().any(|change| change["name"] == name)
    })
}
