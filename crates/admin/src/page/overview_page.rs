//! The overview page.

use std::time::SystemTime;

use maud::{Markup, Render as _, html};
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;
use weir_text::count;

use crate::page::connect_section;
use crate::page::page_parts::{
    OLDEST, badge, calls_section, cut_note, era, format_millis, link, list_words, operator,
    section, tiles, waiting_section,
};
use crate::page::page_query::PageQuery;
use crate::page::page_text::{clock, facts, lines, relative_time, table, text};
use crate::page::replicas_section::{add_replica_problems, replicas_section};
use crate::state::AdminState;
use crate::views::MAX_LIMIT;
use crate::views::catalog_views;
use crate::views::client_views::ClientView;
use crate::views::config_view::{ActiveOverrideView, AppliedConfigView, EndpointView, IssuerView};
use crate::views::limit_views::{ExhaustedLimitView, LimitsView};
use crate::views::replica_views::ReplicasView;
use crate::views::upstream_views::UpstreamView;

/// The most limits that are shown.
const REFUSALS: usize = 20;
/// The most clients that are shown: the last ones.
const CLIENTS: usize = 10;
/// The milliseconds from which an upstream counts as slow. The page has no history to compare with,
/// unlike the alert `WeirUpstreamSlow`.
const SLOW: f64 = 2_500.0;

/// Returns the page's body.
pub(super) fn body(state: &AdminState, view: &PageQuery) -> Markup {
    let now = state.now();
    let (upstreams, applied) = (state.upstreams(), state.applied());
    let (live, limits) = (state.running_calls(None), state.limits_now(REFUSALS));
    let replicas = state.replicas_now();
    let clients = state.clients(&state.front.streams());
    html! {
        main {
            (head(state, view.refresh))
            (figures(state, &upstreams, &applied, &limits, live.len()))
            (problems(&upstreams, &applied, &limits, &replicas, now))
            (section("Upstreams", &upstreams_table(&upstreams, now)))
            (calls_section(state, None, OLDEST, now))
            (waiting_section(state, None, now))
            @if !limits.refusing.is_empty() {
                (section("Exhausted limits", &limits_table(&limits)))
            }
            @if !clients.is_empty() {
                (section("Clients, last seen first", &clients_table(&clients, now)))
            }
            (replicas_section(&replicas))
            (section("Endpoints for clients", &endpoints_table(state, &applied)))
            (connect_section::section(state, view.endpoint.as_deref()))
            @if !applied.changes.is_empty() {
                (section("Operators' changes in force", &changes_table(&applied, now)))
            }
            @if !applied.issuers.is_empty() {
                (section("Authorization servers with accepted tokens", &issuers_table(&applied)))
            }
            (section("This weir", &config_facts(&applied, now)))
        }
    }
}

fn head(state: &AdminState, refresh: Option<u32>) -> Markup {
    html! {
        header {
            h1 { "weir " small { (env!("CARGO_PKG_VERSION")) } }
            p {
                @if state.ready.is_ready() {
                    b class="good" { "ready" }
                } @else {
                    b class="bad" { "not ready" }
                }
                " · as of " (clock(state.now())) " · reload "
                @if let Some(seconds) = refresh {
                    "every " (seconds) " s (" a href="/" { "stop" } ")"
                } @else {
                    a href="/?refresh=5" { "every 5 s" }
                }
            }
        }
    }
}

/// Returns the figures of the whole gateway.
fn figures(
    state: &AdminState,
    upstreams: &[UpstreamView],
    applied: &AppliedConfigView,
    limits: &LimitsView,
    calls: usize,
) -> Markup {
    let up = upstreams
        .iter()
        .filter(|upstream| upstream.state == "up")
        .count();
    let tools: usize = upstreams
        .iter()
        .map(|upstream| upstream.catalog.tools)
        .sum();
    let (sessions, _) = state.front.sessions(0);
    let streams = state.front.streams().len();
    tiles(&[
        (
            "upstreams up",
            format!("{up} of {}", upstreams.len()),
            up < upstreams.len(),
        ),
        ("calls running", calls.to_string(), false),
        ("client sessions", sessions.to_string(), false),
        ("open streams", streams.to_string(), false),
        ("tools", tools.to_string(), false),
        ("limits reached", limits.total.to_string(), limits.total > 0),
        (
            "credentials refused",
            applied.auth.refused.to_string(),
            false,
        ),
    ])
}

/// Returns the present problems, a sentence each, for the top.
fn problems(
    upstreams: &[UpstreamView],
    applied: &AppliedConfigView,
    limits: &LimitsView,
    replicas: &ReplicasView,
    now: SystemTime,
) -> Markup {
    let mut all: Vec<Markup> = Vec::new();
    for issuer in applied
        .issuers
        .iter()
        .filter(|issuer| !issuer.ready || issuer.failures > 0)
    {
        let name = text(&issuer.issuer);
        let attempts = count(issuer.failures, "attempt");
        if issuer.introspection {
            all.push(html! {
                "the authorization server " (name) " does not answer introspection (" (attempts)
                "): its new tokens cannot be checked"
            });
            continue;
        }
        let tokens = if issuer.ready {
            "its last keys are still used"
        } else {
            "its tokens cannot be checked"
        };
        all.push(html! {
            "the keys of the authorization server " (name) " cannot be fetched (" (attempts) "): "
            (tokens)
        });
    }
    if let Some(first) = limits.refusing.first() {
        all.push(html! {
            (count(limits.total, "limit")) " reached, and requests are refused; the first: "
            (text(&first.limit)) " of " (text(&first.of.words()))
        });
    }
    if let Some(reload) = &applied.last_reload
        && let Some(error) = &reload.error
    {
        all.push(html! {
            "The current config files were refused " (relative_time(reload.at, now))
            ", and weir runs with the previous config:" pre { (lines(error)) }
        });
    }
    for file in applied
        .team_files
        .iter()
        .filter(|file| !file.errors.is_empty())
    {
        let serves = match file.serves {
            "last_good" => "its last good version is served, and would be lost by a restart",
            _ => "it is left out, and its paths answer 503",
        };
        all.push(html! {
            "the team's file " (text(&file.name)) " has errors: " (serves) ":"
            pre { (lines(&file.errors.join("\n"))) }
        });
    }
    for upstream in upstreams {
        add_upstream_problems(&mut all, upstream, now);
    }
    add_replica_problems(&mut all, replicas);
    html! {
        @if !all.is_empty() {
            section class="troubles" {
                h2 { "Problems" }
                ul { @for trouble in &all { li { (trouble) } } }
            }
        }
    }
}

/// Adds the present problems of one upstream.
fn add_upstream_problems(all: &mut Vec<Markup>, upstream: &UpstreamView, now: SystemTime) {
    let link = link(&upstream.id);
    match upstream.state {
        "down" => {
            let why = upstream
                .last_error
                .as_deref()
                .unwrap_or("the cause is not known");
            all.push(html! {
                (link) " went down " (relative_time(upstream.since, now)) ": " (text(why))
            });
        }
        "disabled" | "draining" | "drained" => {
            all.push(html! { (link) " " (taken_out(upstream, now)) });
        }
        _ => {}
    }
    let silent: Vec<_> = upstream
        .urls
        .iter()
        .filter(|url| url.breaker == "open")
        .collect();
    if let Some(url) = silent.first().filter(|_| upstream.state != "down") {
        let why = url
            .last_error
            .as_deref()
            .unwrap_or("the cause is not known");
        all.push(html! {
            (link) " gets no calls at " (silent.len()) " of its "
            (count(upstream.urls.len(), "URL")) ": " (text(&url.url)) ": " (text(why))
        });
    }
    let calls = &upstream.calls;
    if upstream.catalog.redefined > 0 {
        all.push(html! {
            (link) " changed definitions of its tools " (count(upstream.catalog.redefined, "time"))
            ": check that the change is intended"
        });
    }
    if calls.p99_ms.is_some_and(|p99| p99 > SLOW) {
        all.push(html! {
            (link) " is slow: the p99 of its calls is " (format_millis(calls.p99_ms))
        });
    }
    if calls.failed * 10 > calls.recent {
        all.push(html! {
            (link) " failed " (calls.failed) " of its last " (count(calls.recent, "call"))
        });
    }
    if calls.tool_errors * 2 > calls.recent {
        all.push(html! {
            (link) " answered " (calls.tool_errors) " of its last "
            (count(calls.recent, "call")) " with tool errors"
        });
    }
}

fn upstreams_table(upstreams: &[UpstreamView], now: SystemTime) -> Markup {
    let heads = [
        "Upstream",
        "State",
        "Protocol",
        "Calls",
        "Duration",
        "Failed",
        "Tools",
        "Tool list",
        "Reason",
    ];
    let row = |upstream: &UpstreamView| {
        let calls = &upstream.calls;
        vec![
            html! {
                (link(&upstream.id)) br;
                small { (upstream.transport) " " (text(&upstream.target)) }
            },
            html! {
                (badge(upstream.state)) br;
                small { (relative_time(upstream.since, now)) }
            },
            era(upstream),
            html! {
                span class="n" { (calls.in_flight) " now" } br;
                small class="n" { (calls.recent) " in 2 min" }
            },
            times(calls.p50_ms, calls.p99_ms),
            failed(calls.failed, calls.tool_errors),
            upstream.catalog.tools.render(),
            listed(upstream, now),
            html! { @if let Some(reason) = reason(upstream, now) { small { (reason) } } },
        ]
    };
    table(&heads, &upstreams.iter().map(row).collect::<Vec<_>>())
}

/// Returns the reason of the state: the operator's change, the cause why it is down, the progress
/// of a start, or the last failure with its time.
fn reason(upstream: &UpstreamView, now: SystemTime) -> Option<Markup> {
    let UpstreamView {
        change,
        last_error,
        starting,
        last_failure,
        ..
    } = upstream;
    Some(match (change, last_error, starting, last_failure) {
        (Some(_), _, _, _) => taken_out(upstream, now),
        (None, Some(error), _, _) => text(error).render(),
        (None, None, Some(starting), _) => {
            let says = starting
                .says
                .as_deref()
                .map(|says| format!("; last output: {says}"))
                .unwrap_or_default();
            text(&format!("starting for {} s{says}", starting.seconds)).render()
        }
        (None, None, None, Some(failure)) => html! {
            "up; last failure " (relative_time(failure.at, now)) ": " (text(&failure.cause))
        },
        (None, None, None, None) => return None,
    })
}

/// Describes the operator's change: name, begin, end and reason.
fn taken_out(upstream: &UpstreamView, now: SystemTime) -> Markup {
    let done = match upstream.state {
        "draining" => "is draining (running calls may finish)",
        "drained" => "was drained",
        _ => "was disabled",
    };
    let Some(change) = &upstream.change else {
        return html! { (done) " " (relative_time(upstream.since, now)) };
    };
    let why = change
        .reason
        .as_deref()
        .map_or("no reason was given".to_owned(), text);
    html! {
        (done) " " (relative_time(change.since, now)) " by " (operator(&change.by)) ", "
        @if let Some(expires) = change.expires {
            "and is enabled again " (relative_time(expires, now))
        } @else {
            "until an operator enables it"
        }
        ": " (why)
    }
}

/// Formats the durations of an upstream's calls: the median, and the 99th percentile.
fn times(p50: Option<f64>, p99: Option<f64>) -> Markup {
    html! {
        @if p50.is_none() {
            "–"
        } @else {
            span class="n" { "median " (format_millis(p50)) } br;
            small class="n" { "p99 " (format_millis(p99)) }
        }
    }
}

fn failed(failed: u64, tool_errors: u64) -> Markup {
    match (failed, tool_errors) {
        (0, 0) => html! { "–" },
        (failed, 0) => html! { b class="bad" { (failed) } },
        (failed, errors) => html! {
            (failed) br; small class="n" { (count(errors, "tool error")) }
        },
    }
}

fn listed(upstream: &UpstreamView, now: SystemTime) -> Markup {
    let list = &upstream.catalog;
    let counts = [
        (list.redefined, "changed definitions"),
        (list.rejected, "left out"),
    ];
    html! {
        (badge(list_words(list)))
        @if let Some(walked) = list.walked_at {
            br; small class="n" { "read " (relative_time(walked, now)) }
        }
        @for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            br; small { (count) " " (what) }
        }
    }
}

fn endpoints_table(state: &AdminState, applied: &AppliedConfigView) -> Markup {
    let row = |endpoint: &EndpointView| {
        let id = weir_core::EndpointId::new(&endpoint.path);
        let view = state
            .catalog
            .view(&id, ListKind::Tools, CapabilityClass::BASE);
        let (tools, tokens) = view
            .map(|view| (view.items.len(), catalog_views::cost(&view)))
            .unwrap_or_default();
        vec![
            html! { code { (text(&connect_section::url(state, &endpoint.path))) } },
            html! { a href={ "/?endpoint=" (text(&endpoint.path)) "#connect" } { "connect" } },
            tools.render(),
            html! { "about " (tokens) },
        ]
    };
    table(
        &["URL", "Clients", "Tools", "Tokens of the list for a model"],
        &applied.endpoints.iter().map(row).collect::<Vec<_>>(),
    )
}

fn limits_table(limits: &LimitsView) -> Markup {
    let row = |one: &ExhaustedLimitView| {
        vec![
            text(&one.limit).render(),
            text(&one.of.words()).render(),
            text(&one.allows).render(),
            format_millis(Some(one.wait_ms)).render(),
        ]
    };
    let rows = table(
        &["Limit", "Subject", "Allows", "Available again after"],
        &limits.refusing.iter().map(row).collect::<Vec<_>>(),
    );
    let all = format!("/admin/limits?limit={MAX_LIMIT}");
    html! { (rows) (cut_note(limits.refusing.len(), limits.total, &all)) }
}

fn clients_table(clients: &[ClientView], now: SystemTime) -> Markup {
    let row = |client: &ClientView| {
        let software = &client.software;
        vec![
            html! { (text(&software.name)) " " small { (text(&software.version)) } },
            text(client.principal.name()).render(),
            html! { span class="n" { (client.protocol) } br; small { (client.era) } },
            text(&client.endpoint).render(),
            client.streams.render(),
            client.calls.render(),
            relative_time(client.last_seen, now),
        ]
    };
    let rows: Vec<_> = clients.iter().take(CLIENTS).map(row).collect();
    let shown = table(
        &[
            "Program",
            "For",
            "Protocol",
            "Endpoint",
            "Open streams",
            "Running calls",
            "Seen",
        ],
        &rows,
    );
    let all = format!("/admin/clients?limit={MAX_LIMIT}");
    html! { (shown) (cut_note(rows.len(), clients.len(), &all)) }
}

fn issuers_table(applied: &AppliedConfigView) -> Markup {
    let row = |issuer: &IssuerView| {
        let (class, words) = match (issuer.ready, issuer.failures) {
            (true, 0) if issuer.introspection => ("good", "introspection"),
            (true, 0) => ("good", "ready"),
            (true, _) => ("odd", "last good keys"),
            (false, _) if issuer.introspection => ("bad", "introspection"),
            (false, _) => ("bad", "none"),
        };
        let keys = html! {
            b class=(class) { (words) }
            @if class != "good" {
                " " small { (count(issuer.failures, "failed attempt")) }
            }
        };
        vec![text(&issuer.issuer).render(), keys, issuer.refused.render()]
    };
    table(
        &["Authorization server", "Keys", "Tokens refused"],
        &applied.issuers.iter().map(row).collect::<Vec<_>>(),
    )
}

fn changes_table(applied: &AppliedConfigView, now: SystemTime) -> Markup {
    let row = |changed: &ActiveOverrideView| {
        let change = &changed.change;
        vec![
            text(change.what).render(),
            html! { (changed.kind) " " (text(&changed.name)) },
            operator(&change.by).render(),
            relative_time(change.since, now),
            change
                .expires
                .map_or("until an operator ends it".render(), |expires| {
                    relative_time(expires, now)
                }),
            text(change.reason.as_deref().unwrap_or_default()).render(),
        ]
    };
    table(
        &["Change", "Of", "By", "Made", "Ends", "Reason"],
        &applied.changes.iter().map(row).collect::<Vec<_>>(),
    )
}

fn config_facts(applied: &AppliedConfigView, now: SystemTime) -> Markup {
    let mut all = vec![
        ("Started", relative_time(applied.started, now)),
        ("Config in force since", relative_time(applied.applied, now)),
    ];
    if let Some(reload) = &applied.last_reload {
        let (class, result) = match reload.error.is_some() {
            true => ("bad", "refused"),
            false => ("good", "applied"),
        };
        all.push((
            "Last reload",
            html! { b class=(class) { (result) } " " (relative_time(reload.at, now)) },
        ));
    }
    if !applied.takes_restart.is_empty() {
        all.push((
            "Changes that need a restart",
            text(&applied.takes_restart.join(", ")).render(),
        ));
    }
    let requirement = if applied.auth.required {
        "credentials are required"
    } else {
        "credentials are not required"
    };
    let refused = count(applied.auth.refused, "credential");
    all.push((
        "Login",
        html! { (requirement) "; " (refused) " refused since the start" },
    ));
    if let Some(digest) = &applied.digest {
        all.push((
            "Digest of the config's files",
            html! { code title=(digest) { (digest[..16]) } },
        ));
    }
    facts(&all)
}
