//! Parts that both pages have: tiles, sections, states in words, and tables of calls.

use std::time::SystemTime;

use maud::{Markup, Render as _, html};
use weir_catalog::ListState;

use crate::page::page_text::{relative_time, table, text};
use crate::state::AdminState;
use crate::views::MAX_LIMIT;
use crate::views::call_views::{CallView, ParkedCallView};
use crate::views::upstream_views::{UpstreamListsView, UpstreamView};

/// The name of a local operator, without a token.
const LOCAL: &str = "local";
/// The most calls that are shown: the oldest.
pub(super) const OLDEST: usize = 10;

/// Returns figures side by side, each with its name; the last member marks a bad one.
pub(super) fn tiles(tiles: &[(&str, String, bool)]) -> Markup {
    html! {
        ul class="tiles" {
            @for (name, value, alarming) in tiles {
                li class=[alarming.then_some("bad")] { b { (value) } " " (name) }
            }
        }
    }
}

/// Returns a section with a title.
pub(super) fn section(title: &str, body: &Markup) -> Markup {
    html! { section { h2 { (text(title)) } (body) } }
}

/// Returns the note below a table that leaves rows out, if it does: their number, and the path of
/// the admin API that lists all of them.
pub(super) fn cut_note(shown: usize, total: usize, path: &str) -> Markup {
    html! {
        @if shown < total {
            p { small { (shown) " of " (total) " are shown. All as JSON: " a href=(path) { (path) } } }
        }
    }
}

/// Returns the link to an upstream's page. The id has letters, digits and `-` alone.
pub(super) fn link(id: &str) -> Markup {
    html! { a href={ "/upstreams/" (id) } { (id) } }
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
pub(super) fn badge(state: &str) -> Markup {
    let class = match state {
        "up" | "complete" => "good",
        "down" | "not read" => "bad",
        _ => "odd",
    };
    html! { b class=(class) { (state) } }
}

/// Returns an upstream's revisions and era.
pub(super) fn era(upstream: &UpstreamView) -> Markup {
    match (upstream.era, upstream.protocol, upstream.second_protocol) {
        (Some(era), Some(protocol), Some(second)) => html! {
            span class="n" { (protocol) ", " (second) } br; small { (era) " and legacy" }
        },
        (Some(era), Some(protocol), None) => html! {
            span class="n" { (protocol) } br; small { (era) }
        },
        _ => html! { "unknown" },
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
        (false, None, ListState::Pending) => "not read yet",
        (false, None, ListState::Down) => "not read",
        (false, None, ListState::Fresh | ListState::Stale) => "out of date",
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

/// Returns the path of the admin API that lists the running and parked calls.
fn calls_path(upstream: Option<&str>) -> String {
    let own = upstream.map(|id| format!("&upstream={id}"));
    format!("/admin/calls?limit={MAX_LIMIT}{}", own.unwrap_or_default())
}

/// Returns the section of the running calls, the oldest first and at most `most`, if there are any.
pub(super) fn calls_section(
    state: &AdminState,
    upstream: Option<&str>,
    most: usize,
    now: SystemTime,
) -> Markup {
    let live = state.running_calls(upstream);
    let calls: Vec<CallView> = live
        .iter()
        .take(most)
        .map(|call| CallView::of(call, now))
        .collect();
    let title = format!("Running calls: {}, oldest first", live.len());
    let body = html! {
        (calls_table(&calls, now))
        (cut_note(calls.len(), live.len(), &calls_path(upstream)))
    };
    html! {
        @if !calls.is_empty() {
            (section(&title, &body))
        }
    }
}

/// Returns the table of running calls.
fn calls_table(calls: &[CallView], now: SystemTime) -> Markup {
    let row = |call: &CallView| {
        vec![
            text(&call.id).render(),
            called(&call.tool, &call.endpoint),
            link(&call.upstream),
            text(call.principal.name()).render(),
            phase_words(call.phase).render(),
            relative_time(call.since, now),
        ]
    };
    table(
        &["Call", "Tool", "Upstream", "For", "State", "Began"],
        &calls.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Returns the tool of a call, and the endpoint below it.
fn called(tool: &str, endpoint: &str) -> Markup {
    html! { (text(tool)) br; small { (text(endpoint)) } }
}

/// Returns the section of the calls that wait for their clients, if there are any.
pub(super) fn waiting_section(
    state: &AdminState,
    upstream: Option<&str>,
    now: SystemTime,
) -> Markup {
    let waiting = state.parked_calls(upstream);
    let row = |call: &weir_core::ParkedCall| {
        let call = ParkedCallView::of(call, now);
        vec![
            text(&call.id).render(),
            called(&call.tool, &call.endpoint),
            link(&call.upstream),
            text(call.principal.name()).render(),
            text(&call.waits_for.join(", ")).render(),
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
    let body = html! {
        (table(&heads, &rows))
        (cut_note(rows.len(), waiting.len(), &calls_path(upstream)))
    };
    html! {
        @if !waiting.is_empty() {
            (section(&title, &body))
        }
    }
}
