//! Checks of the Redis or Valkey that replicas share.

use weir_config::{Config, StorePlan};
use weir_redis_store::examine_server;

use crate::doctor::machine_finding::{FindingGrade, MachineFinding, finding};

/// Connects to the store of the config, if replicas share one. The first finding is its reachability,
/// further ones are settings that may lose sessions.
pub(crate) async fn examine(config: &Config) -> Vec<MachineFinding> {
    let StorePlan::Redis(settings) = &config.store else {
        return Vec::new();
    };
    match examine_server(settings).await {
        Err(reason) => vec![finding(
            FindingGrade::Error,
            format!("the shared store is of no use: {reason}"),
        )],
        Ok(report) => {
            let version = report
                .version
                .as_deref()
                .unwrap_or("its version is unknown");
            let reached = format!("the shared store takes writes ({version})");
            let risks = report.warnings.into_iter();
            [finding(FindingGrade::Good, reached)]
                .into_iter()
                .chain(risks.map(|risk| {
                    finding(FindingGrade::Warning, format!("the shared store: {risk}"))
                }))
                .collect()
        }
    }
}
