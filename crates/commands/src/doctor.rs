//! Checks of a config before it is served: each upstream is started or connected to and asked for
//! its lists, and the machine is examined.
//!
//! No listener is opened meanwhile, and every started process has ended when this returns.

mod certificate;
mod issuers;
mod machine;
pub(crate) mod machine_finding;
mod servers;
pub(crate) mod shared_store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_catalog::SessionListTable;
use weir_config::{Config, UpstreamPlan};
use weir_core::instant::millis;
use weir_core::session_notifier::SessionNotifier;
use weir_core::upstream::{ListKind, ListWatch, Upstream};
use weir_core::{Budgets, CapabilityClass, Failure, FailureKind};
use weir_process::keeper::ChildKeeper;
use weir_program::OwnProgram;
use weir_system::{SystemClock, SystemRandom};
use weir_upstream::{ClientImplementation, UpstreamFactory, UpstreamPorts};

pub(crate) use machine_finding::{FindingGrade, MachineFinding};

/// The time limit of a connection, and of all lists after it. A child process has `start` in
/// addition.
const LISTS_TIMEOUT: Duration = Duration::from_secs(30);
/// The most pages of a list that are counted.
const MAX_PAGES: usize = 100;
/// The grace time of child processes at the end.
const CHILD_GRACE: Duration = Duration::from_secs(5);

/// All findings.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorFindings {
    pub upstreams: Vec<UpstreamFinding>,
    pub(crate) machine: Vec<MachineFinding>,
}

impl DoctorFindings {
    /// Reports if every upstream works and no finding of the machine is an error.
    pub(crate) fn is_good(&self) -> bool {
        self.upstreams
            .iter()
            .all(|upstream| upstream.cause.is_none())
            && self
                .machine
                .iter()
                .all(|found| found.grade != FindingGrade::Error)
    }
}

/// The state of one upstream.
#[derive(Debug, Serialize)]
pub(crate) struct UpstreamFinding {
    pub id: String,
    /// The protocol revision that it speaks.
    pub(crate) protocol: Option<&'static str>,
    /// The older revision that it was found to speak beside it.
    pub(crate) second_protocol: Option<&'static str>,
    pub tools: usize,
    pub prompts: usize,
    /// Resources and resource templates.
    pub resources: usize,
    /// The time from the start or the first connection to the end of its lists, in milliseconds.
    pub(crate) took_ms: u64,
    /// The cause of its failure, with advice; absent if it works.
    pub(crate) cause: Option<String>,
    /// The last lines of the error stream of a child process that did not start.
    pub(crate) last_lines: Vec<String>,
}

/// Examines all upstreams concurrently, then the machine.
pub(crate) async fn examine(config: &Config) -> DoctorFindings {
    let upstreams = examine_upstreams(config).await;
    let mut machine = machine::examine(config).await;
    machine.extend(issuers::examine(config, Arc::new(upstream_factory(config))).await);
    machine.extend(servers::examine(config).await);
    machine.extend(shared_store::examine(config).await);
    DoctorFindings { upstreams, machine }
}

/// Examines all upstreams concurrently.
pub(crate) async fn examine_upstreams(config: &Config) -> Vec<UpstreamFinding> {
    let factory = upstream_factory(config);
    let each = config
        .upstreams
        .iter()
        .map(|plan| examine_upstream(&factory, plan));
    futures_util::future::join_all(each).await
}

/// Returns a factory of upstreams and of a client for documents, with no part in a gateway.
fn upstream_factory(config: &Config) -> UpstreamFactory {
    let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SystemRandom));
    let notifier = Arc::<SessionNotifier>::default();
    let keeper = match OwnProgram::own() {
        Ok(program) => ChildKeeper::new(program.keeper()),
        Err(_) => ChildKeeper::unavailable(),
    };
    let session_lists = SessionListTable::new(notifier.clone(), &SystemRandom);
    let ports = UpstreamPorts {
        clock,
        random,
        notifier,
        session_lists,
        keeper,
        budgets: Budgets::default(),
    };
    let identity = ClientImplementation::new("weir", env!("CARGO_PKG_VERSION"));
    UpstreamFactory::new(ports, identity).with_forward_proxy(config.forward_proxy.clone())
}

async fn examine_upstream(factory: &UpstreamFactory, plan: &UpstreamPlan) -> UpstreamFinding {
    let id = plan.settings.id.to_string();
    let none = |cause: String| UpstreamFinding {
        id: id.clone(),
        protocol: None,
        second_protocol: None,
        tools: 0,
        prompts: 0,
        resources: 0,
        took_ms: 0,
        cause: Some(cause),
        last_lines: Vec::new(),
    };
    let upstream = match factory.build(plan.settings.clone()) {
        Ok(upstream) => upstream,
        Err(error) => return none(error.to_string()),
    };
    let began = Instant::now();
    let counted = count(&upstream).await;
    let took_ms = millis(began.elapsed());
    let health = upstream.health();
    upstream.retire(CHILD_GRACE).await;
    match counted {
        Err(failure) => UpstreamFinding {
            took_ms,
            last_lines: health.last_lines,
            ..none(failure.cause())
        },
        Ok([tools, prompts, resources, templates]) => UpstreamFinding {
            id,
            protocol: health.revision,
            second_protocol: health.second_revision,
            tools,
            prompts,
            resources: resources + templates,
            took_ms,
            cause: None,
            last_lines: Vec::new(),
        },
    }
}

/// Counts the items of each list, in the order of [`ListKind::ALL`].
async fn count(upstream: &Arc<dyn Upstream>) -> Result<[usize; 4], Failure> {
    let late = |text: &'static str| move |_| Failure::new(FailureKind::TimedOut, text);
    let opening = tokio::time::timeout(
        upstream.open_time(LISTS_TIMEOUT),
        upstream.clone().watch(CapabilityClass::BASE),
    );
    let mut watch = opening
        .await
        .map_err(late("It did not open a connection for lists in time"))??;
    let listing = async {
        let mut counts = [0; 4];
        for kind in ListKind::ALL
            .into_iter()
            .filter(|kind| watch.about().offers.has(*kind))
            .collect::<Vec<_>>()
        {
            counts[kind as usize] = count_list(&mut *watch, kind).await?;
        }
        Ok(counts)
    };
    tokio::time::timeout(LISTS_TIMEOUT, listing)
        .await
        .map_err(late("It did not give its lists within 30 s"))?
}

async fn count_list(watch: &mut dyn ListWatch, kind: ListKind) -> Result<usize, Failure> {
    let (mut items, mut cursor) = (0, None);
    for _ in 0..MAX_PAGES {
        let page = match watch.list(kind, cursor).await {
            // A server that declares every list may lack some of them.
            Err(failure) if failure.is_unknown_method() => return Ok(items),
            page => page?,
        };
        items += page.items.len();
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use weir_config::{ConfigLoader, ConfigSource};

    use super::Config;

    /// Loads a config from its text.
    pub(super) fn config(text: &str) -> Config {
        let source = ConfigSource::Text {
            name: "test".to_owned(),
            text: text.to_owned(),
        };
        let outcome = ConfigLoader::new(source, &|_| None).load();
        outcome
            .config
            .unwrap_or_else(|| panic!("{}", outcome.report))
    }
}
