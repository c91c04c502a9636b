//! The replicas that serve the same clients, and the state of their shared store.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use weir_core::port::{ReplicaId, ReplicaSeen};

use crate::admin_error::{AdminError, json};
use crate::replica_overview::SharedStoreState;
use crate::state::AdminState;
use crate::views::{AdminQuery, millis};

/// The replicas and their store.
#[derive(Serialize)]
pub(crate) struct ReplicasView {
    /// `redis`, or `memory` if the store is not shared.
    pub(crate) store: &'static str,
    /// The state of the shared store.
    pub(crate) status: Option<StoreStatusView>,
    /// The key that this replica is about to seal with; absent if its first one seals.
    pub(crate) next_key: Option<NextKeyView>,
    /// The facts in which replicas differ that do not drain: `version`, `config`, `keys`.
    pub(crate) differences: Vec<&'static str>,
    /// The replicas, this one first.
    pub(crate) replicas: Vec<ReplicaView>,
}

/// A key that opens, and seals once every replica has it.
#[derive(Serialize)]
pub(crate) struct NextKeyView {
    pub(crate) id: u8,
    /// The replicas without it, by their names.
    pub(crate) waits_for: Vec<String>,
}

/// The state of the shared store.
#[derive(Serialize)]
pub(crate) struct StoreStatusView {
    pub(crate) connected: bool,
    /// The last error, kept after the store answers again.
    pub(crate) last_error: Option<String>,
    /// The milliseconds of the last command.
    pub(crate) latency_ms: f64,
    /// The number of writes that wait for the store.
    pub(crate) pending_writes: usize,
    /// Settings of the server that may lose sessions.
    pub(crate) warnings: Vec<String>,
}

/// A replica.
#[derive(Serialize)]
pub(crate) struct ReplicaView {
    /// The name of this run of the replica, in hexadecimal digits.
    pub(crate) id: String,
    /// True for the replica that answers.
    pub(crate) own: bool,
    pub(crate) address: String,
    pub(crate) version: String,
    /// The first digits of the digest of its config.
    pub(crate) config: String,
    /// The ids of its `keys`, the first one first.
    pub(crate) keys: Vec<u8>,
    /// The id of the key that it seals with.
    pub(crate) sealing_key: Option<u8>,
    /// False while it lacks a key that another replica seals with: it is not ready then.
    pub(crate) opens_all: bool,
    pub(crate) draining: bool,
    /// The milliseconds since it was last heard of.
    pub(crate) age_ms: f64,
    #[serde(skip)]
    pub(crate) age: Duration,
}

impl ReplicasView {
    fn new(own: &ReplicaId, replicas: &[ReplicaSeen], store: SharedStoreState) -> Self {
        let mut views: Vec<_> = replicas
            .iter()
            .map(|replica| ReplicaView::of(replica, own))
            .collect();
        views.sort_by(|one, other| (!one.own, &one.id).cmp(&(!other.own, &other.id)));
        Self {
            store: "redis",
            status: Some(StoreStatusView::of(store)),
            next_key: next_key(&views),
            differences: differences(&views),
            replicas: views,
        }
    }

    /// The view of a store that is not shared.
    fn memory() -> Self {
        Self {
            store: "memory",
            status: None,
            next_key: None,
            differences: Vec::new(),
            replicas: Vec::new(),
        }
    }
}

impl StoreStatusView {
    fn of(store: SharedStoreState) -> Self {
        Self {
            connected: store.is_connected,
            last_error: store.last_error.map(|error| error.to_string()),
            latency_ms: millis(store.latency),
            pending_writes: store.pending_writes,
            warnings: store.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl ReplicaView {
    fn of(replica: &ReplicaSeen, own: &ReplicaId) -> Self {
        Self {
            id: replica.id.to_string(),
            own: replica.id == *own,
            address: replica.address.to_string(),
            version: replica.version.to_string(),
            config: replica.config.to_string(),
            keys: replica.keys.clone(),
            sealing_key: replica.sealing_key,
            opens_all: replica.opens_all,
            draining: replica.is_draining,
            age_ms: millis(replica.age),
            age: replica.age,
        }
    }
}

/// Returns the first key of this replica if another one seals.
fn next_key(replicas: &[ReplicaView]) -> Option<NextKeyView> {
    let own = replicas.iter().find(|one| one.own)?;
    let next = *own.keys.first()?;
    if own.sealing_key == Some(next) {
        return None;
    }
    let lacks_it = |one: &&ReplicaView| !one.draining && !one.keys.contains(&next);
    let waits_for = replicas.iter().filter(lacks_it);
    Some(NextKeyView {
        id: next,
        waits_for: waits_for.map(|one| one.id.clone()).collect(),
    })
}

/// Returns the facts in which replicas differ. One that drains is left out: a rolling restart
/// replaces it.
fn differences(replicas: &[ReplicaView]) -> Vec<&'static str> {
    let staying: Vec<_> = replicas.iter().filter(|one| !one.draining).collect();
    let differ = |is_same: fn(&ReplicaView, &ReplicaView) -> bool| {
        staying.windows(2).any(|pair| match pair {
            [one, other] => !is_same(one, other),
            _ => false,
        })
    };
    let facts = [
        ("version", differ(|one, other| one.version == other.version)),
        ("config", differ(|one, other| one.config == other.config)),
        ("keys", differ(|one, other| one.keys == other.keys)),
    ];
    facts
        .into_iter()
        .filter_map(|(name, is_different)| is_different.then_some(name))
        .collect()
}

/// Returns the replicas and the state of their store.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    AdminQuery::read(query.as_deref(), &[])?;
    Ok(json(StatusCode::OK, &state.replicas_now()))
}

impl AdminState {
    pub(crate) fn replicas_now(&self) -> ReplicasView {
        match &self.replicas {
            Some(overview) => ReplicasView::new(
                &overview.own(),
                &overview.replicas(),
                overview.store_state(),
            ),
            None => ReplicasView::memory(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn seen(name: u8, config: &str, is_draining: bool) -> ReplicaSeen {
        ReplicaSeen {
            id: ReplicaId([name; 8]),
            address: format!("10.0.0.{name}:8082").into(),
            version: "1.0".into(),
            config: config.into(),
            keys: vec![2, 1],
            sealing_key: Some(2),
            opens_all: true,
            is_draining,
            age: Duration::from_millis(1500),
        }
    }

    fn store() -> SharedStoreState {
        SharedStoreState {
            is_connected: false,
            last_error: Some("timeout".into()),
            latency: Duration::from_micros(300),
            pending_writes: 4,
            warnings: vec!["appendonly is no"],
        }
    }

    #[test]
    fn own_replica_is_first_and_differences_are_named() {
        let replicas = [seen(1, "aa", false), seen(2, "bb", false)];
        let view = ReplicasView::new(&ReplicaId([2; 8]), &replicas, store());
        assert_eq!(view.differences, ["config"]);
        assert!(view.next_key.is_none());
        let value = serde_json::to_value(&view).unwrap();
        assert_eq!(
            value["replicas"][0],
            serde_json::json!({
                "id": "0202020202020202", "own": true, "address": "10.0.0.2:8082", "version": "1.0",
                "config": "bb", "keys": [2, 1], "sealing_key": 2, "opens_all": true, "draining": false, "age_ms": 1500.0,
            })
        );
        assert_eq!(
            value["status"],
            serde_json::json!({
                "connected": false, "last_error": "timeout", "latency_ms": 0.3,
                "pending_writes": 4, "warnings": ["appendonly is no"],
            })
        );
    }

    #[test]
    fn next_key_waits_for_replicas_without_it() {
        let own = ReplicaSeen {
            sealing_key: Some(1),
            ..seen(1, "aa", false)
        };
        let behind = ReplicaSeen {
            keys: vec![1],
            ..seen(2, "aa", false)
        };
        let draining = ReplicaSeen {
            id: ReplicaId([3; 8]),
            is_draining: true,
            ..behind.clone()
        };
        let view = ReplicasView::new(&ReplicaId([1; 8]), &[own, behind, draining], store());
        let value = serde_json::to_value(&view).unwrap();
        let expected = serde_json::json!({ "id": 2, "waits_for": ["0202020202020202"] });
        assert_eq!(value["next_key"], expected);
        assert_eq!(view.differences, ["keys"]);
    }

    #[test]
    fn draining_replica_is_no_difference() {
        let replicas = [seen(1, "aa", true), seen(2, "bb", false)];
        let view = ReplicasView::new(&ReplicaId([2; 8]), &replicas, store());
        assert!(view.differences.is_empty() && view.replicas[1].draining);
    }
}
