//! The overview page.

use std::fmt::Write as _;
use std::time::SystemTime;

use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;
use weir_text::count;

use super::super::state::AdminState;
use super::super::views::call_views::CallView;
use super::super::views::catalog_views;
use super::super::views::client_views::ClientView;
use super::super::views::config_view::{AppliedConfigView, IssuerView};
use super::super::views::limit_views::{ExhaustedLimitView, LimitsView};
use super::super::views::upstream_views::UpstreamView;
use super::connect_section;
use super::html::{clock, facts, lines, relative_time, table, text};
use super::page_parts::{
    OLDEST, badge, calls_table, era, format_millis, link, list_words, operator, section, tiles,
    waiting_section,
};
use super::page_query::PageQuery;

/// The most limits that are shown.
const REFUSALS: usize = 20;
/// The most clients that are shown: the last ones.
const CLIENTS: usize = 10;
/// The milliseconds from which an upstream counts as slow. The page has no history to compare with,
/// unlike the alert `WeirUpstreamSlow`.
const SLOW: f64 = 2_500.0;
/// Returns the page's body.
pub(super) fn body(desk: &AdminState, view: &PageQuery) -> String {
    let now = desk.now();
    let (upstreams, applied) = (desk.upstreams(), desk.applied());
    let (live, limits) = (desk.running_calls(None), desk.limits_now(REFUSALS));
    let (sessions, _) = desk.front.sessions(0);
    let streams = desk.front.streams();
    let mut out = String::from("<main>");
    head(&mut out, desk, view.refresh);
    let up = upstreams
        .iter()
        .filter(|upstream| upstream.state == "up")
        .count();
    let tools: usize = upstreams
        .iter()
        .map(|upstream| upstream.catalog.tools)
        .sum();
    tiles(
        &mut out,
        &[
            (
                "upstreams up",
                format!("{up} of {}", upstreams.len()),
                up < upstreams.len(),
            ),
            ("calls running", live.len().to_string(), false),
            ("client sessions", sessions.to_string(), false),
            ("open streams", streams.len().to_string(), false),
            ("tools", tools.to_string(), false),
            ("limits reached", limits.total.to_string(), limits.total > 0),
            (
                "credentials refused",
                applied.auth.refused.to_string(),
                false,
            ),
        ],
    );
    problems(&mut out, &upstreams, &applied, &limits, now);
    section(&mut out, "Upstreams", &upstreams_table(&upstreams, now));
    if !live.is_empty() {
        let calls: Vec<CallView> = live
            .iter()
            .take(OLDEST)
            .map(|call| CallView::of(call, now))
            .collect();
        section(
            &mut out,
            &format!("Running calls: {}, oldest first", live.len()),
            &calls_table(&calls, now),
        );
    }
    waiting_section(&mut out, desk, None, now);
    if !limits.refusing.is_empty() {
        section(&mut out, "Exhausted limits", &limits_table(&limits));
    }
    let clients = desk.clients(&streams);
    if !clients.is_empty() {
        section(
            &mut out,
            "Clients, last seen first",
            &clients_table(&clients, now),
        );
    }
    section(
        &mut out,
        "Endpoints for clients",
        &endpoints_table(desk, &applied),
    );
    connect_section::section(&mut out, desk, view.endpoint.as_deref());
    if !applied.changes.is_empty() {
        section(
            &mut out,
            "Operators' changes in force",
            &changes_table(&applied, now),
        );
    }
    if !applied.issuers.is_empty() {
        section(
            &mut out,
            "Authorization servers with accepted tokens",
            &issuers_table(&applied),
        );
    }
    section(&mut out, "This weir", &config_facts(&applied, now));
    out.push_str("</main>");
    out
}

fn head(out: &mut String, desk: &AdminState, refresh: Option<u32>) {
    let ready = match desk.ready.is_ready() {
        true => "<b class=\"good\">ready</b>",
        false => "<b class=\"bad\">not ready</b>",
    };
    let again = match refresh {
        Some(seconds) => format!("every {seconds} s (<a href=\"/\">stop</a>)"),
        None => "<a href=\"/?refresh=5\">every 5 s</a>".to_owned(),
    };
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        out,
        "<header><h1>weir <small>{}</small></h1><p>{ready} · as of {} · reload {again}</p></header>",
        env!("CARGO_PKG_VERSION"),
        clock(desk.now()),
    );
}

/// Writes the present problems, a sentence each, at the top.
fn problems(
    out: &mut String,
    upstreams: &[UpstreamView],
    applied: &AppliedConfigView,
    limits: &LimitsView,
    now: SystemTime,
) {
    let mut all: Vec<String> = Vec::new();
    for issuer in applied
        .issuers
        .iter()
        .filter(|issuer| !issuer.ready || issuer.failures > 0)
    {
        let tokens = if issuer.ready {
            "its last keys are still used"
        } else {
            "its tokens cannot be checked"
        };
        let name = text(&issuer.issuer);
        let attempts = count(issuer.failures, "attempt");
        all.push(format!(
            "the keys of the authorization server {name} cannot be fetched ({attempts}): {tokens}"
        ));
    }
    if let Some(first) = limits.refusing.first() {
        let (of, limit) = (text(&first.of.words()), text(&first.limit));
        let reached = count(limits.total, "limit");
        all.push(format!(
            "{reached} reached, and requests are refused; the first: {limit} of {of}"
        ));
    }
    if let Some(reload) = applied
        .last_reload
        .as_ref()
        .filter(|reload| reload.error.is_some())
    {
        let why = lines(reload.error.as_deref().unwrap_or_default());
        all.push(format!(
            "The current config files were refused {}, and weir runs with the previous config:<pre>{why}</pre>",
            relative_time(reload.at, now)
        ));
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
        let (name, errors) = (text(&file.name), lines(&file.errors.join("\n")));
        all.push(format!(
            "the team's file {name} has errors: {serves}:<pre>{errors}</pre>"
        ));
    }
    for upstream in upstreams {
        add_upstream_problems(&mut all, upstream, now);
    }
    if !all.is_empty() {
        let all: String = all
            .iter()
            .map(|trouble| format!("<li>{trouble}</li>"))
            .collect();
        let _ = write!(
            out,
            "<section class=\"troubles\"><h2>Problems</h2><ul>{all}</ul></section>"
        );
    }
}

/// Adds the present problems of one upstream.
fn add_upstream_problems(all: &mut Vec<String>, upstream: &UpstreamView, now: SystemTime) {
    let link = link(&upstream.id);
    let since = relative_time(upstream.since, now);
    match upstream.state {
        "down" => {
            let why = upstream
                .last_error
                .as_deref()
                .unwrap_or("the cause is not known");
            all.push(format!("{link} went down {since}: {}", text(why)));
        }
        "disabled" | "draining" | "drained" => {
            all.push(format!("{link} {}", taken_out(upstream, now)));
        }
        _ => {}
    }
    let calls = &upstream.calls;
    if upstream.catalog.redefined > 0 {
        let times = count(upstream.catalog.redefined, "time");
        all.push(format!(
            "{link} changed definitions of its tools {times}: check that the change is intended"
        ));
    }
    if calls.p99_ms.is_some_and(|p99| p99 > SLOW) {
        all.push(format!(
            "{link} is slow: the p99 of its calls is {}",
            format_millis(calls.p99_ms)
        ));
    }
    if calls.failed * 10 > calls.recent {
        all.push(format!(
            "{link} failed {} of its last {}",
            calls.failed,
            count(calls.recent, "call")
        ));
    }
    if calls.tool_errors * 2 > calls.recent {
        all.push(format!(
            "{link} answered {} of its last {} with tool errors",
            calls.tool_errors,
            count(calls.recent, "call")
        ));
    }
}

fn upstreams_table(upstreams: &[UpstreamView], now: SystemTime) -> String {
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
        let reason = reason(upstream, now);
        vec![
            format!(
                "{}<br><small>{} {}</small>",
                link(&upstream.id),
                upstream.transport,
                text(&upstream.target)
            ),
            format!(
                "{}<br><small>{}</small>",
                badge(upstream.state),
                relative_time(upstream.since, now)
            ),
            era(upstream),
            format!(
                "<span class=\"n\">{} now</span><br><small class=\"n\">{} in 2 min</small>",
                calls.in_flight, calls.recent
            ),
            times(calls.p50_ms, calls.p99_ms),
            failed(calls.failed, calls.tool_errors),
            upstream.catalog.tools.to_string(),
            listed(upstream, now),
            if reason.is_empty() {
                reason
            } else {
                format!("<small>{reason}</small>")
            },
        ]
    };
    table(&heads, &upstreams.iter().map(row).collect::<Vec<_>>())
}

/// Returns the reason of the state: the operator's change, the cause why it is down, the progress
/// of a start, or the last failure with its time.
fn reason(upstream: &UpstreamView, now: SystemTime) -> String {
    let UpstreamView {
        change,
        last_error,
        starting,
        last_failure,
        ..
    } = upstream;
    match (change, last_error, starting, last_failure) {
        (Some(_), _, _, _) => taken_out(upstream, now),
        (None, Some(error), _, _) => text(error),
        (None, None, Some(starting), _) => {
            let says = starting
                .says
                .as_deref()
                .map(|says| format!("; last output: {says}"))
                .unwrap_or_default();
            text(&format!("starting for {} s{says}", starting.seconds))
        }
        (None, None, None, Some(failure)) => {
            format!(
                "up; last failure {}: {}",
                relative_time(failure.at, now),
                text(&failure.cause)
            )
        }
        (None, None, None, None) => String::new(),
    }
}

/// Describes the operator's change: name, begin, end and reason.
fn taken_out(upstream: &UpstreamView, now: SystemTime) -> String {
    let done = match upstream.state {
        "draining" => "is draining (running calls may finish)",
        "drained" => "was drained",
        _ => "was disabled",
    };
    let Some(change) = &upstream.change else {
        return format!("{done} {}", relative_time(upstream.since, now));
    };
    let ends = change
        .expires
        .map_or("until an operator enables it".to_owned(), |expires| {
            format!("and is enabled again {}", relative_time(expires, now))
        });
    let why = change
        .reason
        .as_deref()
        .map_or("no reason was given".to_owned(), text);
    format!(
        "{done} {} by {}, {ends}: {why}",
        relative_time(change.since, now),
        operator(&change.by)
    )
}

/// Formats the durations of an upstream's calls: the median, and the 99th percentile.
fn times(p50: Option<f64>, p99: Option<f64>) -> String {
    if p50.is_none() {
        return "–".to_owned();
    }
    let (median, most) = (format_millis(p50), format_millis(p99));
    format!("<span class=\"n\">median {median}</span><br><small class=\"n\">p99 {most}</small>")
}

fn failed(failed: u64, tool_errors: u64) -> String {
    match (failed, tool_errors) {
        (0, 0) => "–".to_owned(),
        (failed, 0) => format!("<b class=\"bad\">{failed}</b>"),
        (failed, errors) => format!(
            "{failed}<br><small class=\"n\">{}</small>",
            count(errors, "tool error")
        ),
    }
}

fn listed(upstream: &UpstreamView, now: SystemTime) -> String {
    let list = &upstream.catalog;
    let mut out = badge(list_words(list));
    if let Some(walked) = list.walked_at {
        let _ = write!(
            out,
            "<br><small class=\"n\">read {}</small>",
            relative_time(walked, now)
        );
    }
    for (count, what) in [
        (list.redefined, "changed definitions"),
        (list.rejected, "left out"),
    ] {
        if count > 0 {
            let _ = write!(out, "<br><small>{count} {what}</small>");
        }
    }
    out
}

fn endpoints_table(desk: &AdminState, applied: &AppliedConfigView) -> String {
    let row = |endpoint: &super::super::views::config_view::EndpointView| {
        let id = weir_core::EndpointId::new(&endpoint.path);
        let view = desk
            .catalog
            .view(&id, ListKind::Tools, CapabilityClass::BASE);
        let (tools, tokens) = view
            .map(|view| (view.items.len(), catalog_views::cost(&view)))
            .unwrap_or_default();
        let url = text(&connect_section::url(desk, &endpoint.path));
        let link = format!(
            "<a href=\"/?endpoint={0}#connect\">connect</a>",
            text(&endpoint.path)
        );
        vec![
            format!("<code>{url}</code>"),
            link,
            tools.to_string(),
            format!("about {tokens}"),
        ]
    };
    table(
        &["URL", "Clients", "Tools", "Tokens of the list for a model"],
        &applied.endpoints.iter().map(row).collect::<Vec<_>>(),
    )
}

fn limits_table(limits: &LimitsView) -> String {
    let row = |one: &ExhaustedLimitView| {
        vec![
            text(&one.limit),
            text(&one.of.words()),
            text(&one.allows),
            format_millis(Some(one.wait_ms)),
        ]
    };
    table(
        &["Limit", "Subject", "Allows", "Available again after"],
        &limits.refusing.iter().map(row).collect::<Vec<_>>(),
    )
}

fn clients_table(clients: &[ClientView], now: SystemTime) -> String {
    let row = |client: &ClientView| {
        let software = &client.software;
        vec![
            format!(
                "{} <small>{}</small>",
                text(&software.name),
                text(&software.version)
            ),
            text(client.principal.name()),
            format!(
                "<span class=\"n\">{}</span><br><small>{}</small>",
                client.protocol, client.era
            ),
            text(&client.endpoint),
            client.streams.to_string(),
            client.calls.to_string(),
            relative_time(client.last_seen, now),
        ]
    };
    let rows: Vec<_> = clients.iter().take(CLIENTS).map(row).collect();
    table(
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
    )
}

fn issuers_table(applied: &AppliedConfigView) -> String {
    let row = |issuer: &IssuerView| {
        let keys = match (issuer.ready, issuer.failures) {
            (true, 0) => "<b class=\"good\">ready</b>".to_owned(),
            (true, failures) => {
                format!(
                    "<b class=\"odd\">last good keys</b> <small>{}</small>",
                    count(failures, "failed attempt")
                )
            }
            (false, failures) => {
                format!(
                    "<b class=\"bad\">none</b> <small>{}</small>",
                    count(failures, "failed attempt")
                )
            }
        };
        vec![text(&issuer.issuer), keys, issuer.refused.to_string()]
    };
    table(
        &["Authorization server", "Keys", "Tokens refused"],
        &applied.issuers.iter().map(row).collect::<Vec<_>>(),
    )
}

fn changes_table(applied: &AppliedConfigView, now: SystemTime) -> String {
    let row = |changed: &super::super::views::config_view::ActiveOverrideView| {
        let change = &changed.change;
        vec![
            text(change.what),
            format!("{} {}", changed.kind, text(&changed.name)),
            operator(&change.by),
            relative_time(change.since, now),
            change
                .expires
                .map_or("until an operator ends it".to_owned(), |expires| {
                    relative_time(expires, now)
                }),
            text(change.reason.as_deref().unwrap_or_default()),
        ]
    };
    table(
        &["Change", "Of", "By", "Made", "Ends", "Reason"],
        &applied.changes.iter().map(row).collect::<Vec<_>>(),
    )
}

fn config_facts(applied: &AppliedConfigView, now: SystemTime) -> String {
    let mut all = vec![
        ("Started", relative_time(applied.started, now)),
        ("Config in force since", relative_time(applied.applied, now)),
    ];
    if let Some(reload) = &applied.last_reload {
        let result = match reload.error.is_some() {
            true => "<b class=\"bad\">refused</b>",
            false => "<b class=\"good\">applied</b>",
        };
        all.push((
            "Last reload",
            format!("{result} {}", relative_time(reload.at, now)),
        ));
    }
    if !applied.takes_restart.is_empty() {
        all.push((
            "Changes that need a restart",
            text(&applied.takes_restart.join(", ")),
        ));
    }
    let asked = if applied.auth.required {
        "credentials are required"
    } else {
        "credentials are not required"
    };
    all.push((
        "Login",
        format!(
            "{asked}; {} refused since the start",
            count(applied.auth.refused, "credential")
        ),
    ));
    if let Some(digest) = &applied.digest {
        all.push((
            "Digest of the config's files",
            format!("<code title=\"{digest}\">{}</code>", &digest[..16]),
        ));
    }
    facts(&all)
}
