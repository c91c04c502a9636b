//! Parts that both pages have: tiles, sections, states in words, and tables of calls.

use std::fmt::Write as _;
use std::time::SystemTime;

use super::super::state::AdminState;
use super::super::views::call_views::{CallView, ParkedCallView};
use super::super::views::upstream_views::{UpstreamListsView, UpstreamView};
use super::html::{relative_time, table, text};

/// The name of a local operator, without a token.
const LOCAL: &str = "local";
/// The most calls that are shown: the oldest.
pub(super) const OLDEST: usize = 10;

/// Writes figures side by side, each with its name; the last member marks a bad one.
pub(super) fn tiles(out: &mut String, tiles: &[(&str, String, bool)]) {
    out.push_str("<ul class=\"tiles\">");
    for (name, value, alarming) in tiles {
        let class = if *alarming { " class=\"bad\"" } else { "" };
        let _ = write!(out, "<li{class}><b>{value}</b> {name}</li>");
    }
    out.push_str("</ul>");
}

/// Writes a section with a title.
pub(super) fn section(out: &mut String, title: &str, body: &str) {
    let _ = write!(out, "<section><h2>{}</h2>{body}</section>", text(title));
}

/// Returns the link to an upstream's page. The id has letters, digits and `-` alone.
pub(super) fn link(id: &str) -> String {
    format!("<a href=\"/upstreams/{0}\">{0}</a>", text(id))
}

/// Returns an operator's name for readers who do not know the names of logins.
pub(crate) fn operator(by: &str) -> String {
    if by == LOCAL {
        "a local operator".to_owned()
    } else {
        text(by)
    }
}

/// Returns a state as a badge.
pub(super) fn badge(state: &str) -> String {
    let class = match state {
        "up" | "complete" => "good",
        "down" | "not read" => "bad",
        _ => "odd",
    };
    format!("<b class=\"{class}\">{}</b>", text(state))
}

/// Returns an upstream's revisions and era.
pub(super) fn era(upstream: &UpstreamView) -> String {
    match (upstream.era, upstream.protocol, upstream.second_protocol) {
        (Some(era), Some(protocol), Some(second)) => {
            format!(
                "<span class=\"n\">{protocol}, {second}</span><br><small>{era} and legacy</small>"
            )
        }
        (Some(era), Some(protocol), None) => {
            format!("<span class=\"n\">{protocol}</span><br><small>{era}</small>")
        }
        _ => "unknown".to_owned(),
    }
}

/// Formats the duration of calls.
pub(super) fn format_millis(millis: Option<f64>) -> String {
    match millis {
        None => "–".to_owned(),
        Some(millis) if millis < 10.0 => format!("{millis:.1} ms"),
        Some(millis) if millis < 10_000.0 => format!("{millis:.0} ms"),
        Some(millis) => format!("{:.0} s", millis / 1e3),
    }
}

/// Returns the state of a list, in words.
pub(super) fn list_words(list: &UpstreamListsView) -> &'static str {
    match (list.complete, list.truncated, list.state) {
        (true, _, _) => "complete",
        (false, Some(_), _) => "truncated",
        (false, None, "pending") => "not read yet",
        (false, None, "down") => "not read",
        (false, None, _) => "out of date",
    }
}

/// Returns the state of a running call, in words.
fn phase_words(phase: &str) -> &str {
    match phase {
        "queued" => "queued",
        "sent" => "sent, no answer yet",
        "answering" => "being answered",
        "asking" => "waits for an answer of its client",
        other => other,
    }
}

/// Returns the table of running calls.
pub(super) fn calls_table(calls: &[CallView], now: SystemTime) -> String {
    let row = |call: &CallView| {
        vec![
            text(&call.id),
            format!(
                "{}<br><small>{}</small>",
                text(&call.tool),
                text(&call.endpoint)
            ),
            link(&call.upstream),
            text(call.principal.name()),
            phase_words(call.phase).to_owned(),
            relative_time(call.since, now),
        ]
    };
    table(
        &["Call", "Tool", "Upstream", "For", "State", "Began"],
        &calls.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Writes the calls that wait for their clients, if there are any.
pub(super) fn waiting_section(
    out: &mut String,
    desk: &AdminState,
    upstream: Option<&str>,
    now: SystemTime,
) {
    let waiting = desk.parked_calls(upstream);
    if waiting.is_empty() {
        return;
    }
    let row = |call: &weir_core::ParkedCall| {
        let call = ParkedCallView::of(call, now);
        vec![
            text(&call.id),
            format!(
                "{}<br><small>{}</small>",
                text(&call.tool),
                text(&call.endpoint)
            ),
            link(&call.upstream),
            text(call.principal.name()),
            text(&call.waits_for.join(", ")),
            relative_time(call.since, now),
            relative_time(call.until, now),
        ]
    };
    let rows: Vec<_> = waiting.iter().take(OLDEST).map(row).collect();
    let heads = [
        "Call",
        "Tool",
        "Upstream",
        "For",
        "Waits for",
        "Began",
        "Expires",
    ];
    let title = format!("Parked calls: {}, oldest first", waiting.len());
    section(out, &title, &table(&heads, &rows));
}
