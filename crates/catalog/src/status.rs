//! The state of the catalog, for operators.

use std::sync::Arc;
use std::time::SystemTime;

use weir_core::capability::CapabilityClass;
use weir_core::names::UpstreamId;
use weir_core::upstream::{ListKind, ServerDescription, UpstreamHealth};
use weir_schema::ToolSchema;

use crate::Catalog;
use crate::call_timings::RecentCallTimings;
use crate::closed_upstreams::ClosedUpstream;
use crate::list_feed::ListFeed;
use crate::list_state::ListState;

/// One upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// Its id.
    pub id: UpstreamId,
    /// Its own report.
    pub health: UpstreamHealth,
    /// The server information from its last initialization.
    pub about: Option<Arc<ServerDescription>>,
    /// The state of an upstream that an operator took out.
    pub closed: Option<ClosedUpstream>,
    /// The outcomes of its calls in the last minute or two.
    pub recent: RecentCallTimings,
    /// Its lists, the base class first.
    pub lists: Vec<ListStatus>,
}

/// One upstream's list in one capability class.
#[derive(Clone, Debug)]
pub struct ListStatus {
    /// The clients' class of accepted requests.
    pub class: CapabilityClass,
    /// The state of the list of tools, if the server gives some of its lists.
    pub state: ListState,
    /// The start of this state.
    pub since: SystemTime,
    /// Tools listed now.
    pub tools: usize,
    /// Prompts listed now.
    pub prompts: usize,
    /// Resources and resource templates listed now.
    pub resources: usize,
    /// Tools with a schema that is not used for validation.
    pub unchecked: usize,
    /// Items that the last walk left out, because they are no tools or have a name twice.
    pub rejected: u64,
    /// The number of times that a tool came back with another definition under the same name.
    pub redefined: u64,
    /// The guard that cut the last walk.
    pub truncated: Option<&'static str>,
    /// Good walks so far.
    pub walks: u64,
    /// The end of the last good one.
    pub walked_at: Option<SystemTime>,
    /// The reason for being stale or down, or for one list being so.
    pub error: Option<Arc<str>>,
}

/// The reachability of an upstream: the one answer of the admin API and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamReach {
    /// It has not answered yet: it starts, or is being asked.
    Unknown,
    /// It answers, and its lists are fresh.
    Up,
    /// It cannot be reached, or does not give its lists.
    Down,
}

impl UpstreamStatus {
    /// The reachability, independent of an operator's actions.
    #[must_use]
    pub fn reach(&self) -> UpstreamReach {
        match self.lists.first().map(|list| list.state) {
            _ if self.health.down => UpstreamReach::Down,
            Some(ListState::Fresh) => UpstreamReach::Up,
            Some(ListState::Stale | ListState::Down) => UpstreamReach::Down,
            Some(ListState::Pending) | None => UpstreamReach::Unknown,
        }
    }

    /// The time since which [`Self::reach`] is what it is; absent before the first walk.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        let listed = self.lists.first().map(|list| (list.state, list.since));
        let (changed, is_down) = (self.health.down_changed, self.health.down);
        match (listed, changed) {
            // It is down for two reasons: since the first of them.
            (Some((state, since)), Some(changed)) if is_down && state.is_unreadable() => {
                Some(since.min(changed))
            }
            (Some(_), Some(changed)) if is_down => Some(changed),
            (Some((state, since)), Some(changed)) if !state.is_unreadable() => {
                Some(since.max(changed))
            }
            (Some((_, since)), _) => Some(since),
            (None, changed) => changed,
        }
    }

    /// The obstacle to reading its list of tools, or else the cause of its last failure, which may
    /// be past. For operators.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        let list = self.lists.first().and_then(|list| list.error.as_deref());
        list.or(self.health.last_error.as_deref())
    }
}

impl Catalog {
    /// Every upstream, in config order.
    #[must_use]
    pub fn status(&self) -> Vec<UpstreamStatus> {
        let layout = self.layout.load();
        let status = |source: &Arc<super::catalog_source::CatalogSource>| UpstreamStatus {
            id: source.id().clone(),
            health: source.upstream().health(),
            about: source.base().snapshot().about.clone(),
            closed: self.closed(source.id()),
            recent: source.timings.recent(),
            lists: source.feeds().iter().map(|feed| list(feed)).collect(),
        };
        layout.sources.iter().map(status).collect()
    }
}

fn list(feed: &ListFeed) -> ListStatus {
    let snapshot = feed.snapshot();
    let (tools, count) = (snapshot.list(ListKind::Tools), |kind| {
        snapshot.list(kind).items.len()
    });
    let is_unchecked = |contract: &ToolSchema| matches!(contract, ToolSchema::Unchecked(_));
    ListStatus {
        class: feed.class,
        state: match (snapshot.state, &tools.fault) {
            (ListState::Pending, _) => ListState::Pending,
            (ListState::Fresh, None) => ListState::Fresh,
            (ListState::Fresh, Some(_)) if tools.items.is_empty() => ListState::Down,
            (ListState::Fresh, Some(_)) | (ListState::Stale, _) => ListState::Stale,
            (ListState::Down, _) => ListState::Down,
        },
        since: snapshot.since(ListKind::Tools),
        tools: tools.items.len(),
        prompts: count(ListKind::Prompts),
        resources: count(ListKind::Resources) + count(ListKind::Templates),
        unchecked: tools
            .items
            .iter()
            .filter(|t| is_unchecked(&t.input) || is_unchecked(&t.output))
            .count(),
        rejected: snapshot.lists.iter().map(|list| list.rejected).sum(),
        redefined: snapshot.redefined,
        truncated: snapshot.lists.iter().find_map(|list| list.truncated),
        walks: snapshot.walks,
        walked_at: snapshot.walked_at,
        error: snapshot.error(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// A list in a state since a time, and the server down, or not any more, since another time.
    fn status(listed: Option<(ListState, u64)>, down: Option<(bool, u64)>) -> UpstreamStatus {
        let list = |(state, since)| ListStatus {
            class: CapabilityClass::BASE,
            state,
            since: at(since),
            tools: 0,
            prompts: 0,
            resources: 0,
            unchecked: 0,
            rejected: 0,
            redefined: 0,
            truncated: None,
            walks: 0,
            walked_at: None,
            error: None,
        };
        UpstreamStatus {
            id: UpstreamId::new("one").unwrap(),
            health: UpstreamHealth {
                down: down.is_some_and(|(down, _)| down),
                down_changed: down.map(|(_, changed)| at(changed)),
                ..UpstreamHealth::default()
            },
            about: None,
            closed: None,
            recent: RecentCallTimings::default(),
            lists: listed.map(list).into_iter().collect(),
        }
    }

    #[test]
    fn state_lasts_since_the_change_that_made_it() {
        use ListState::{Fresh, Pending, Stale};
        use UpstreamReach::{Down, Unknown, Up};
        for (list, down, reach, since) in [
            (None, None, Unknown, None),
            (Some((Pending, 1)), None, Unknown, Some(1)),
            (Some((Fresh, 1)), None, Up, Some(1)),
            (Some((Fresh, 1)), Some((true, 5)), Down, Some(5)),
            (Some((Stale, 3)), Some((true, 5)), Down, Some(3)),
            (Some((Stale, 7)), Some((true, 5)), Down, Some(5)),
            (Some((Stale, 3)), Some((false, 5)), Down, Some(3)),
            (Some((Fresh, 3)), Some((false, 5)), Up, Some(5)),
            (Some((Fresh, 7)), Some((false, 5)), Up, Some(7)),
        ] {
            let status = status(list, down);
            assert_eq!(
                (status.reach(), status.since()),
                (reach, since.map(at)),
                "{list:?} {down:?}"
            );
        }
    }
}
