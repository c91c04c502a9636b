//! The page about one upstream.

use std::time::SystemTime;

use maud::{Markup, Render as _, html};
use url::form_urlencoded;
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;

use crate::page::page_parts::{
    badge, calls_section, cut_note, era, format_millis, list_words, operator, section, tiles,
    waiting_section,
};
use crate::page::page_text::{facts, lines, relative_time, table, text};
use crate::state::AdminState;
use crate::views::MAX_LIMIT;
use crate::views::upstream_views::{
    OverrideView, UpstreamCallsView, UpstreamUrlView, UpstreamView,
};

/// The most running calls that are shown: the oldest.
const CALLS: usize = 50;
/// The most tools that are shown.
const TOOLS: usize = 500;

/// Returns the page's body.
pub(super) fn body(state: &AdminState, upstream: &UpstreamView) -> Markup {
    let now = state.now();
    html! {
        main {
            header {
                p { a href="/" { "All of weir" } }
                h1 { (upstream.id) }
                p { (badge(upstream.state)) ", changed " (relative_time(upstream.since, now)) }
            }
            (figures(&upstream.calls))
            (failure_sections(upstream, now))
            @if let Some(change) = &upstream.change {
                (section("Change by an operator", &operators_change(change, now)))
            }
            (section("Server", &server(upstream)))
            @if !upstream.urls.is_empty() {
                (section("URLs", &urls_table(&upstream.urls)))
            }
            (calls_section(state, Some(&upstream.id), CALLS, now))
            (waiting_section(state, Some(&upstream.id), now))
            (section("Lists", &catalog(upstream, now)))
            @for path in &upstream.endpoints {
                (tools(state, upstream, path))
            }
        }
    }
}

/// Returns the figures of the upstream's calls.
fn figures(calls: &UpstreamCallsView) -> Markup {
    tiles(&[
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
    ])
}

/// Returns the sections on the failure, the start, and the last failure if it is over.
fn failure_sections(upstream: &UpstreamView, now: SystemTime) -> Markup {
    let last_error = upstream.last_error.as_deref();
    let starting = upstream.starting.as_ref().map(|starting| {
        let says = starting.says.as_deref().unwrap_or("none yet");
        facts(&[
            ("Seconds since the start", starting.seconds.render()),
            ("Last output", text(says).render()),
        ])
    });
    let recovered = upstream
        .last_failure
        .as_ref()
        .filter(|_| last_error.is_none());
    let recovered = recovered.map(|failure| {
        facts(&[
            ("When", relative_time(failure.at, now)),
            ("Cause", text(&failure.cause).render()),
        ])
    });
    html! {
        @if let Some(error) = last_error {
            (section("Cause of the failure", &html! { pre { (lines(error)) } }))
        }
        @if let Some(starting) = &starting {
            (section("Start", starting))
        }
        @if let Some(recovered) = &recovered {
            (section("Last failure, recovered", recovered))
        }
    }
}

fn operators_change(change: &OverrideView, now: SystemTime) -> Markup {
    let ends = change
        .expires
        .map_or("until an operator enables it".render(), |expires| {
            relative_time(expires, now)
        });
    let reason = change.reason.as_deref().unwrap_or_default();
    facts(&[
        ("Change", text(change.what).render()),
        ("By", operator(&change.by).render()),
        ("Made", relative_time(change.since, now)),
        ("Ends", ends),
        ("Reason", text(reason).render()),
    ])
}

fn server(upstream: &UpstreamView) -> Markup {
    let software = upstream
        .server
        .as_ref()
        .map(|server| format!("{} {}", text(&server.name), text(&server.version)));
    let owner = upstream.owner.as_ref().map(|owner| {
        let this = if owner.is_own { ", this one" } else { "" };
        format!("replica {}{this} (epoch {})", owner.replica, owner.epoch)
    });
    let mut all = vec![
        (
            "Transport",
            html! { (upstream.transport) " " (text(&upstream.target)) },
        ),
        ("Protocol", era(upstream)),
        ("Server", software.as_deref().unwrap_or("unknown").render()),
        ("Circuit breaker", breaker_words(upstream.breaker).render()),
        ("Sessions or processes", upstream.sessions.render()),
        ("Shown at", text(&upstream.endpoints.join(", ")).render()),
    ];
    all.extend(owner.map(|owner| ("Runs at", text(&owner).render())));
    facts(&all)
}

/// Returns the breaker's state, in words.
fn breaker_words(breaker: &str) -> &str {
    match breaker {
        "closed" => "closed: calls are sent",
        "open" => "open: calls fail at once, except for one probe a second",
        other => other,
    }
}

fn urls_table(urls: &[UpstreamUrlView]) -> Markup {
    let heads = [
        "URL",
        "Weight",
        "Circuit breaker",
        "Running",
        "Latency",
        "Sessions",
        "Last error",
    ];
    let row = |url: &UpstreamUrlView| {
        let breaker = match url.breaker {
            "closed" => "closed: it gets calls",
            "half_open" => "half open: it gets a few calls",
            "open" => "open: other URLs get the calls",
            other => other,
        };
        vec![
            html! { (text(&url.url)) @if url.watched { br; small { "lists are read here" } } },
            url.weight.render(),
            breaker.render(),
            url.in_flight.render(),
            format_millis(url.latency_ms).render(),
            url.sessions.render(),
            html! { small { (text(url.last_error.as_deref().unwrap_or_default())) } },
        ]
    };
    table(&heads, &urls.iter().map(row).collect::<Vec<_>>())
}

fn catalog(upstream: &UpstreamView, now: SystemTime) -> Markup {
    let list = &upstream.catalog;
    let mut all = vec![
        (
            "State",
            html! { (badge(list_words(list))) ", changed " (relative_time(list.since, now)) },
        ),
        (
            "Last read",
            list.walked_at
                .map_or("never".render(), |walked| relative_time(walked, now)),
        ),
        ("Tools", list.tools.render()),
        ("Prompts", list.prompts.render()),
        ("Resources", list.resources.render()),
        ("Changed definitions", list.redefined.render()),
        ("Left out", list.rejected.render()),
        ("Unusable schemas", list.unchecked.render()),
    ];
    if let Some(guard) = list.truncated {
        all.push(("Truncated by the limit", text(guard).render()));
    }
    facts(&all)
}

/// Returns the section of the upstream's tools at one endpoint, if it has any there.
fn tools(state: &AdminState, upstream: &UpstreamView, path: &str) -> Markup {
    let id = weir_core::EndpointId::new(path);
    let view = state
        .catalog
        .view(&id, ListKind::Tools, CapabilityClass::BASE);
    let own: Vec<_> = view
        .iter()
        .flat_map(|view| view.items.iter())
        .filter(|item| item.tool.upstream.as_str() == upstream.id)
        .collect();
    let row = |item: &&weir_core::catalog_item::CatalogItem| {
        let about: Option<serde_json::Value> = serde_json::from_slice(&item.tool.raw).ok();
        let about = about
            .as_ref()
            .and_then(|tool| tool["description"].as_str())
            .unwrap_or_default();
        vec![
            text(&item.exposed).render(),
            text(&item.tool.native).render(),
            html! { small { (text(about)) } },
        ]
    };
    let rows: Vec<_> = own.iter().take(TOOLS).map(row).collect();
    let heads = ["Exposed name", "Native name", "Description"];
    let catalog = "/admin/catalog?";
    let all = form_urlencoded::Serializer::for_suffix(catalog.to_owned(), catalog.len())
        .append_pair("endpoint", path)
        .append_pair("upstream", &upstream.id)
        .append_pair("limit", &MAX_LIMIT.to_string())
        .finish();
    let body = html! {
        (table(&heads, &rows))
        (cut_note(rows.len(), own.len(), &all))
    };
    html! {
        @if !own.is_empty() {
            (section(&format!("Tools at {path}: {}", own.len()), &body))
        }
    }
}
