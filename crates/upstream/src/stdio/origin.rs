//! Where the lines of a server come from, and what that costs.

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

/// Where lines come from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A process for each, started by the keeper.
    Process(StdioSettings, Arc<Keeper>),
    /// A stream of HTTP+SSE for each, and what is posted.
    Line(Http),
}

impl Origin {
    pub(super) async fn start(&self, site: &Arc<Site>) -> Result<Child, Failure> {
        match self {
            Self::Process(settings, keeper) => Child::start(site, keeper, settings).await,
            Self::Line(http) => sse::connect(site, http).await,
        }
    }

    /// How many there may be where each principal has its own.
    pub(super) fn most(&self, site: &Site) -> usize {
        match self {
            Self::Process(settings, _) => settings.max_processes,
            Self::Line(_) => site.bounds.sessions,
        }
    }

    /// How long one must be unused before it is ended for another one, in milliseconds.
    pub(super) fn idle(&self, site: &Site) -> u64 {
        match self {
            // A start is dear, and what the process remembers is lost with it.
            Self::Process(..) => {
                u64::try_from(site.bounds.session_idle.as_millis()).unwrap_or(u64::MAX)
            }
            Self::Line(_) => 0,
        }
    }

    /// The failure of a call for which there is no place.
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

    /// How long one may take until it has answered the first message.
    pub(super) fn patience(&self, site: &Site) -> Duration {
        match self {
            Self::Process(settings, _) => settings.start,
            Self::Line(_) => site.own.probe,
        }
    }
}
