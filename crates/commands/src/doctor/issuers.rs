//! Checks of the issuers of tokens: whether their keys can be fetched, or whether they answer
//! introspection.

use std::sync::Arc;

use weir_config::Config;
use weir_core::port::DocumentFetcher;
use weir_policy::{AnsweringIssuer, VerifierPorts, examine_issuer};
use weir_system::{SystemClock, SystemRandom};
use weir_text::count;

use crate::doctor::machine_finding::{FindingGrade, MachineFinding, finding};

/// Examines all issuers concurrently: fetches their keys, or asks them about a made-up token.
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
        match examine_issuer(issuer, &ports).await {
            Ok(AnsweringIssuer::Keys(keys)) => {
                let keys = count(keys, "key");
                finding(FindingGrade::Good, format!("the issuer {name} has {keys}"))
            }
            Ok(AnsweringIssuer::Introspection) => {
                let text = format!("the issuer {name} answers introspection");
                finding(FindingGrade::Good, text)
            }
            Err(why) => finding(FindingGrade::Error, why),
        }
    });
    futures_util::future::join_all(each).await
}
