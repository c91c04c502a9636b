//! The page about one upstream.

use std::fmt::Write as _;

use super::super::state::AdminState;
use super::super::views::call_views::CallView;
use super::super::views::upstream_views::UpstreamView;
use super::html::{facts, lines, relative_time, table, text};
use super::page_parts::{
    badge, calls_table, era, format_millis, list_words, operator, section, tiles, waiting_section,
};
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;

/// The most tools that are shown.
const TOOLS: usize = 500;

/// Returns the page's body.
pub(super) fn body(desk: &AdminState, upstream: &UpstreamView) -> String {
    let now = desk.now();
    let mut out = String::from("<main>");
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        out,
        "<header><p><a href=\"/\">All of weir</a></p><h1>{}</h1><p>{}, changed {}</p></header>",
        text(&upstream.id),
        badge(upstream.state),
        relative_time(upstream.since, now),
    );
    let calls = &upstream.calls;
    tiles(
        &mut out,
        &[
            ("calls running", calls.in_flight.to_string(), false),
            ("calls in the last 2 min", calls.recent.to_string(), false),
            ("failed", calls.failed.to_string(), calls.failed > 0),
            (
                "tool errors",
                calls.tool_errors.to_string(),
                calls.tool_errors > 0,
            ),
            ("median duration (p50)", format_millis(calls.p50_ms), false),
            ("99th percentile (p99)", format_millis(calls.p99_ms), false),
        ],
    );
    if let Some(error) = &upstream.last_error {
        section(
            &mut out,
            "Cause of the failure",
            &format!("<pre>{}</pre>", lines(error)),
        );
    }
    if let Some(starting) = &upstream.starting {
        let says = starting.says.as_deref().unwrap_or("none yet");
        let facts = facts(&[
            ("Seconds since the start", starting.seconds.to_string()),
            ("Last output", text(says)),
        ]);
        section(&mut out, "Start", &facts);
    }
    if let Some(failure) = upstream
        .last_failure
        .as_ref()
        .filter(|_| upstream.last_error.is_none())
    {
        let facts = facts(&[
            ("When", relative_time(failure.at, now)),
            ("Cause", text(&failure.cause)),
        ]);
        section(&mut out, "Last failure, recovered", &facts);
    }
    if let Some(change) = &upstream.change {
        let ends = change
            .expires
            .map_or("until an operator enables it".to_owned(), |expires| {
                relative_time(expires, now)
            });
        let change = facts(&[
            ("Change", text(change.what)),
            ("By", operator(&change.by)),
            ("Made", relative_time(change.since, now)),
            ("Ends", ends),
            ("Reason", text(change.reason.as_deref().unwrap_or_default())),
        ]);
        section(&mut out, "Change by an operator", &change);
    }
    section(&mut out, "Server", &server(upstream));
    let own = desk.running_calls(Some(&upstream.id));
    let own: Vec<CallView> = own
        .iter()
        .take(50)
        .map(|call| CallView::of(call, now))
        .collect();
    if !own.is_empty() {
        section(
            &mut out,
            "Running calls, oldest first",
            &calls_table(&own, now),
        );
    }
    waiting_section(&mut out, desk, Some(&upstream.id), now);
    section(&mut out, "Lists", &catalog(upstream, now));
    for path in &upstream.endpoints {
        tools(&mut out, desk, upstream, path);
    }
    out.push_str("</main>");
    out
}

fn server(upstream: &UpstreamView) -> String {
    let software = upstream
        .server
        .as_ref()
        .map(|server| format!("{} {}", text(&server.name), text(&server.version)));
    facts(&[
        (
            "Transport",
            format!("{} {}", upstream.transport, text(&upstream.target)),
        ),
        ("Protocol", era(upstream)),
        ("Server", software.unwrap_or_else(|| "unknown".to_owned())),
        (
            "Circuit breaker",
            breaker_words(upstream.breaker).to_owned(),
        ),
        ("Sessions or processes", upstream.sessions.to_string()),
        ("Shown at", text(&upstream.endpoints.join(", "))),
    ])
}

/// Returns the breaker's state, in words.
fn breaker_words(breaker: &str) -> &str {
    match breaker {
        "closed" => "closed: calls are sent",
        "open" => "open: calls fail at once, except for one probe a second",
        other => other,
    }
}

fn catalog(upstream: &UpstreamView, now: std::time::SystemTime) -> String {
    let list = &upstream.catalog;
    let mut all = vec![
        (
            "State",
            format!(
                "{}, changed {}",
                badge(list_words(list)),
                relative_time(list.since, now)
            ),
        ),
        (
            "Last read",
            list.walked_at
                .map_or("never".to_owned(), |walked| relative_time(walked, now)),
        ),
        ("Tools", list.tools.to_string()),
        ("Prompts", list.prompts.to_string()),
        ("Resources", list.resources.to_string()),
        ("Changed definitions", list.redefined.to_string()),
        ("Left out", list.rejected.to_string()),
        ("Unusable schemas", list.unchecked.to_string()),
    ];
    if let Some(guard) = list.truncated {
        all.push(("Truncated by the limit", text(guard)));
    }
    facts(&all)
}

/// Writes the upstream's tools at one endpoint.
fn tools(out: &mut String, desk: &AdminState, upstream: &UpstreamView, path: &str) {
    let id = weir_core::EndpointId::new(path);
    let Some(view) = desk
        .catalog
        .view(&id, ListKind::Tools, CapabilityClass::BASE)
    else {
        return;
    };
    let own: Vec<_> = view
        .items
        .iter()
        .filter(|item| item.tool.upstream.as_str() == upstream.id)
        .collect();
    if own.is_empty() {
        return;
    }
    let row = |item: &&weir_core::catalog_item::CatalogItem| {
        let about: Option<serde_json::Value> = serde_json::from_slice(&item.tool.raw).ok();
        let about = about
            .as_ref()
            .and_then(|tool| tool["description"].as_str())
            .unwrap_or_default();
        vec![
            text(&item.exposed),
            text(&item.tool.native),
            format!("<small>{}</small>", text(about)),
        ]
    };
    let rows: Vec<_> = own.iter().take(TOOLS).map(row).collect();
    section(
        out,
        &format!("Tools at {path}: {}", own.len()),
        &table(&["Exposed name", "Native name", "Description"], &rows),
    );
}
