//! Counters that start at 0 before the first event. A counter that appears with its first event has
//! no rise that `rate()` could see, so an alert on it would miss that event.
//!
//! The table has counters whose labels follow from the config and from fixed sets; names of tools,
//! clients and revisions are found at run time. Of the labels of an upstream it has the values that
//! dashboards query, since each value is a series for every upstream.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;

use crate::names::{EndpointId, UpstreamId};
use crate::telemetry::{Instruments, instruments};

/// A counter, and the values of each of its labels.
struct ZeroedCounter {
    counter: fn(&Instruments) -> &Counter<u64>,
    /// The values by label.
    labels: &'static [(&'static str, &'static [&'static str])],
}

impl ZeroedCounter {
    const fn new(
        counter: fn(&Instruments) -> &Counter<u64>,
        labels: &'static [(&'static str, &'static [&'static str])],
    ) -> Self {
        Self { counter, labels }
    }
}

/// Counters of the process.
const OF_PROCESS: &[ZeroedCounter] = &[
    ZeroedCounter::new(|all| &all.panics, &[]),
    ZeroedCounter::new(|all| &all.unexpected_responses, &[]),
    ZeroedCounter::new(|all| &all.audit_refused, &[]),
    ZeroedCounter::new(|all| &all.resumes, &[("result", &["replayed", "unknown"])]),
    ZeroedCounter::new(|all| &all.updates_out, &[("era", &["modern", "legacy"])]),
    ZeroedCounter::new(
        |all| &all.list_changed_out,
        &[
            ("era", &["modern", "legacy"]),
            (
                "kind",
                &["tools", "prompts", "resources", "resource_templates"],
            ),
        ],
    ),
    ZeroedCounter::new(
        |all| &all.deprecated,
        &[(
            "feature",
            &[
                "http_sse",
                "logging",
                "roots",
                "sampling",
                "include_context",
            ],
        )],
    ),
    ZeroedCounter::new(
        |all| &all.refusals,
        &[(
            "reason",
            &[
                "accept",
                "body",
                "body_size",
                "body_timeout",
                "credentials",
                "denied",
                "headers",
                "host",
                "in_flight",
                "insufficient_scope",
                "limit",
                "media_type",
                "memory",
                "method",
                "origin",
                "overloaded",
                "query_token",
                "replica",
                "session",
                "sessions",
                "streams",
                "unauthenticated",
                "underscore",
                "verifier",
            ],
        )],
    ),
    ZeroedCounter::new(
        |all| &all.connections_closed,
        &[(
            "reason",
            &[
                "write_stalled",
                "head_timeout",
                "too_many_handshakes",
                "tls_timeout",
                "tls",
                "memory",
                "h2_age",
                "h2_flood",
                "no_files",
            ],
        )],
    ),
    ZeroedCounter::new(
        |all| &all.streams_reset,
        &[("reason", &["window", "deadline", "waiting"])],
    ),
    ZeroedCounter::new(
        |all| &all.auth_rejections,
        &[(
            "reason",
            &[
                "missing",
                "unavailable",
                "malformed",
                "alg",
                "type",
                "issuer",
                "key",
                "signature",
                "claims",
                "expired",
                "not_yet",
                "audience",
            ],
        )],
    ),
    ZeroedCounter::new(
        |all| &all.config_reloads,
        &[("result", &["ok", "error", "weaker"])],
    ),
    ZeroedCounter::new(
        |all| &all.log_dropped,
        &[("reason", &["rate", "queue", "failed"])],
    ),
    ZeroedCounter::new(
        |all| &all.memory_refused,
        &[(
            "budget",
            &[
                "bodies",
                "results",
                "messages",
                "subscriptions",
                "connections",
                "windows",
            ],
        )],
    ),
    ZeroedCounter::new(
        |all| &all.descriptors_refused,
        &[("side", &["front", "upstream"])],
    ),
];

/// Counters of each upstream, beside its name.
const OF_UPSTREAM: &[ZeroedCounter] = &[
    ZeroedCounter::new(
        |all| &all.upstream_io,
        &[("network.io.direction", &["transmit", "receive"])],
    ),
    ZeroedCounter::new(
        |all| &all.upstream_retries,
        &[(
            "reason",
            &[
                "not_sent",
                "unread",
                "session_lost",
                "header_mismatch",
                "version",
                "connection_lost",
            ],
        )],
    ),
    ZeroedCounter::new(|all| &all.upstream_bridged, &[]),
    ZeroedCounter::new(|all| &all.upstream_processes_refused, &[]),
    ZeroedCounter::new(
        |all| &all.upstream_sessions_ended,
        &[("reason", &["posts_waiting"])],
    ),
    ZeroedCounter::new(
        |all| &all.upstream_protocol_errors,
        &[("reason", &["not_a_message", "unknown_id"])],
    ),
    ZeroedCounter::new(
        |all| &all.catalog_truncated,
        &[("guard", &["pages", "items", "bytes", "cursor_loop"])],
    ),
    ZeroedCounter::new(|all| &all.tool_definition_changed, &[]),
    ZeroedCounter::new(|all| &all.list_changed_in, &[]),
    ZeroedCounter::new(|all| &all.updates_in, &[]),
    ZeroedCounter::new(
        |all| &all.validation_failures,
        &[
            ("side", &["input", "output"]),
            ("action", &["refused", "passed"]),
        ],
    ),
];

/// Has the counters of the process stand at 0.
pub fn start_at_zero() {
    for row in OF_PROCESS {
        zero(row, None);
    }
}

/// Has the counters of an upstream stand at 0.
pub(super) fn start_upstream_at_zero(id: &UpstreamId) {
    for row in OF_UPSTREAM {
        zero(row, Some(KeyValue::new("upstream", id.to_string())));
    }
}

/// Has the counter of an endpoint stand at 0.
pub fn start_endpoint_at_zero(id: &EndpointId) {
    instruments()
        .cursors_abandoned
        .add(0, &[KeyValue::new("endpoint", id.as_str().to_owned())]);
}

/// Adds 0 to the series of each combination of values.
fn zero(row: &ZeroedCounter, own: Option<KeyValue>) {
    let mut series = vec![own.into_iter().collect::<Vec<_>>()];
    for (label, values) in row.labels {
        let with = |one: &Vec<KeyValue>, value: &&'static str| {
            let mut one = one.clone();
            one.push(KeyValue::new(*label, *value));
            one
        };
        series = series
            .iter()
            .flat_map(|one| values.iter().map(move |value| with(one, value)))
            .collect();
    }
    for labels in series {
        (row.counter)(instruments()).add(0, &labels);
    }
}
