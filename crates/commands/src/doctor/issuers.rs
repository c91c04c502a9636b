//! Checks of the issuers of tokens: whether their keys can be fetched.

use std::sync::Arc;

use weir_config::Config;
use weir_core::port::DocumentFetcher;
use weir_policy::{VerifierPorts, count_issuer_keys};
use weir_system::{SystemClock, SystemRandom};
use weir_text::count;

use crate::doctor::machine_finding::{FindingGrade, MachineFinding, finding};

/// Fetches the keys of all issuers concurrently. Issuers that are asked about each token are left
/// out: only a token can tell whether they answer.
pub(super) async fn examine(
    config: &Config,
    fetch: Arc<dyn DocumentFetcher>,
) -> Vec<MachineFinding> {
    let ports = VerifierPorts {
        fetch,
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
    };
    let each = config.auth.issuers.iter().map(async |issuer| {
        let name = &issuer.name;
        Some(match count_issuer_keys(issuer, &ports).await? {
            Ok(keys) => {
                let keys = count(keys, "key");
                finding(FindingGrade::Good, format!("the issuer {name} has {keys}"))
            }
            Err(why) => {
                let text = format!("the keys of the issuer {name} cannot be fetched: {why}");
                finding(FindingGrade::Error, text)
            }
        })
    });
    let found = futures_util::future::join_all(each).await;
    found.into_iter().flatten().collect()
}
