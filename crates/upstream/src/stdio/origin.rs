//! The source of a server's messages, and its limits.

use std::sync::Arc;
use std::time::Duration;

use weir_core::telemetry::instruments;
use weir_core::{Failure, FailureKind};

use super::child::Child;
use super::sse;
use crate::keeper::Keeper;
use crate::settings::StdioSettings;
use crate::site::Site;
use crate::streamable::Http;

/// The source of a server's messages.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A process for each child, started by the keeper.
    Process(StdioSettings, Arc<Keeper>),
    /// An HTTP+SSE stream and its posts for each child.
    Line(Http),
}

impl Origin {
    pub(super) async fn start(&self, site: &Arc<Site>) -> Result<Child, Failure> {
        match self {
            Self::Process(settings, keeper) => Child::start(site, keeper, settings).await,
            Self::Line(http) => sse::connect(site, http).await,
        }
    }

    /// Returns the most children if each principal has its own.
    pub(super) fn most(&self, site: &Site) -> usize {
        match self {
            Self::Process(settings, _) => settings.max_processes,
            Self::Line(_) => site.bounds.sessions,
        }
    }

    /// Returns the milliseconds for which a child must be unused before it is ended for another
    /// one.
    pub(super) fn idle(&self, site: &Site) -> u64 {
        match self {
            // A start is costly, and the state of the process is lost with it.
            Self::Process(..) => {
                u64::try_from(site.bounds.session_idle.as_millis()).unwrap_or(u64::MAX)
            }
            Self::Line(_) => 0,
        }
    }

    /// Returns the failure of a call that got no child.
    pub(super) fn no_place(&self, site: &Site) -> Failure {
        let text = match self {
            Self::Process(..) => {
                instruments()
                    .upstream_processes_refused
                    .add(1, &[site.label()]);
                "The upstream runs as many processes as `limits.max_processes` in its config lets it, or as many of yours as \
                 leave some to others: try again later"
            }
            Self::Line(_) => {
                "The upstream has as many sessions as `limits.sessions` in its config lets it: try again later"
            }
        };
        site.fail(FailureKind::Busy, text)
    }

    /// Returns the time limit up to the answer to the first message.
    pub(super) fn patience(&self, site: &Site) -> Duration {
        match self {
            Self::Process(settings, _) => settings.start,
            Self::Line(_) => site.own.probe,
        }
    }
}
