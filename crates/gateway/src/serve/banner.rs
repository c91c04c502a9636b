//! The banner of `weir serve` at a terminal: the URLs, and the upstreams as they come up or fail.
//!
//! It is not written if standard error is no terminal, or the config asks for JSON.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, interval};
use weir_catalog::Catalog;
use weir_catalog::{UpstreamReach, UpstreamStatus};
use weir_config::Config;
use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_system::on_this_machine;
use weir_telemetry::print_error;
use weir_text::local_time::TimeZone;
use weir_text::{count, one_line};

/// The time between two checks of the upstreams.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The time after which a starting upstream is named.
const SLOW_START: Duration = Duration::from_secs(5);
/// The most endpoints that are listed one by one.
const MAX_ENDPOINTS: usize = 12;

/// Escape sequences of colors; empty if colors are off.
#[derive(Clone, Copy, Debug)]
struct AnsiColors(bool);

impl AnsiColors {
    fn paint(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// The state of an upstream as it was shown last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ShownState {
    /// It starts since this time; not shown yet.
    Starting(SystemTime),
    /// It was shown as slow.
    Slow,
    Up {
        tools: usize,
    },
    Down(String),
    Disabled,
}

/// The addresses that both listeners are bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundAddresses {
    /// The clients' listener.
    pub(super) clients: SocketAddr,
    /// The operators' listener, if the config has one.
    pub(super) operators: Option<SocketAddr>,
}

/// The upstreams as the terminal shows them.
#[derive(Debug)]
pub(super) struct StartBanner {
    colors: AnsiColors,
    zone: TimeZone,
    known: Vec<(String, ShownState)>,
    looks: Interval,
}

impl StartBanner {
    /// Shows the URLs.
    pub(super) fn show(config: &Config, addresses: BoundAddresses, colors: bool) -> Self {
        let colors = AnsiColors(colors);
        let upstreams = count(config.upstreams.len(), "upstream");
        let mut lines = vec![colors.bold(&format!(
            "weir {} serves {upstreams}",
            env!("CARGO_PKG_VERSION")
        ))];
        let base = config.public_base(addresses.clients);
        let listed = config.endpoints.iter().take(MAX_ENDPOINTS);
        let mut urls: Vec<(String, String)> = listed
            .map(|endpoint| (format!("{base}{}", endpoint.id), shows(endpoint, config)))
            .collect();
        if let Some(admin) = addresses.operators {
            urls.push((
                format!("http://{}/", on_this_machine(admin)),
                "status page, for operators".to_owned(),
            ));
        }
        let width = urls
            .iter()
            .map(|(url, _)| url.len())
            .max()
            .unwrap_or_default();
        lines.extend(
            urls.iter()
                .map(|(url, what)| format!("  {url:<width$}  {}", colors.dim(&one_line(what)))),
        );
        if let Some(more) = config
            .endpoints
            .len()
            .checked_sub(MAX_ENDPOINTS)
            .filter(|more| *more > 0)
        {
            lines.push(colors.dim(&format!("  and {} more", count(more, "endpoint"))));
        }
        let first = config
            .endpoints
            .first()
            .map(|endpoint| format!("{base}{}", endpoint.id));
        let try_it = first
            .map(|url| format!("weir tools {url}   "))
            .unwrap_or_default();
        lines.push(colors.dim(&format!("  {try_it}Ctrl-C ends it")));
        print_error(lines.join("\n"));
        Self {
            colors,
            zone: TimeZone::own(),
            known: Vec::new(),
            looks: interval(CHECK_INTERVAL),
        }
    }

    /// Waits for the next check of the upstreams, and makes it; waits for ever without a banner.
    /// Cancel safe.
    pub(super) async fn follow(banner: &mut Option<Self>, catalog: &Catalog) {
        let Some(banner) = banner else {
            return std::future::pending().await;
        };
        banner.looks.tick().await;
        banner.show_changes(catalog);
    }

    /// Shows the upstreams with a changed state since the last check.
    fn show_changes(&mut self, catalog: &Catalog) {
        let now = SystemTime::now();
        let status = catalog.status();
        self.known
            .retain(|(id, _)| status.iter().any(|upstream| upstream.id.as_str() == id));
        let width = status
            .iter()
            .map(|upstream| upstream.id.as_str().len())
            .max()
            .unwrap_or_default();
        for upstream in &status {
            let id = upstream.id.as_str();
            let at = self.known.iter().position(|(known, _)| known == id);
            let before = at.map(|at| self.known[at].1.clone());
            let next = next(before.as_ref(), upstream, now);
            if before.as_ref() == Some(&next) {
                continue;
            }
            if let Some(line) = self.line(&next, upstream) {
                print_error(format_args!(
                    "{} {:<width$} {line}",
                    self.colors.dim(&self.zone.time_of_day(now)),
                    one_line(id)
                ));
            }
            match at {
                Some(at) => self.known[at].1 = next,
                None => self.known.push((id.to_owned(), next)),
            }
        }
    }

    fn line(&self, shown: &ShownState, upstream: &UpstreamStatus) -> Option<String> {
        Some(match shown {
            ShownState::Starting(_) => return None,
            ShownState::Slow => format!(
                "{} for {} s already",
                self.colors.paint("33", "starting"),
                SLOW_START.as_secs()
            ),
            ShownState::Up { tools } => {
                let revision = upstream
                    .health
                    .revision
                    .map(|revision| format!(", {revision}"))
                    .unwrap_or_default();
                format!(
                    "{} with {}{revision}",
                    self.colors.paint("32", "up"),
                    count(*tools, "tool")
                )
            }
            ShownState::Down(why) => format!("{}: {why}", self.colors.paint("31", "down")),
            ShownState::Disabled => self.colors.paint("33", "disabled by an operator"),
        })
    }
}

/// Returns the upstreams of an endpoint, in words.
fn shows(endpoint: &Endpoint, config: &Config) -> String {
    match &endpoint.mode {
        EndpointMode::Aggregate { upstreams, .. } if upstreams.len() == config.upstreams.len() => {
            "all of them".to_owned()
        }
        EndpointMode::Aggregate { upstreams, .. } => count(upstreams.len(), "upstream"),
        EndpointMode::Transparent(one) => one.to_string(),
    }
}

/// Returns the state of an upstream to be shown.
fn next(before: Option<&ShownState>, upstream: &UpstreamStatus, now: SystemTime) -> ShownState {
    let base = upstream.lists.first();
    match (upstream.reach(), before) {
        _ if upstream.closed.is_some() => ShownState::Disabled,
        (UpstreamReach::Up, _) => ShownState::Up {
            tools: base.map_or(0, |list| list.tools),
        },
        (UpstreamReach::Unknown, None) => ShownState::Starting(now),
        (UpstreamReach::Unknown, Some(ShownState::Starting(since))) => {
            match now
                .duration_since(*since)
                .is_ok_and(|waited| waited >= SLOW_START)
            {
                true => ShownState::Slow,
                false => ShownState::Starting(*since),
            }
        }
        (UpstreamReach::Unknown, Some(ShownState::Slow)) => ShownState::Slow,
        _ => ShownState::Down(one_line(upstream.cause().unwrap_or("it cannot be reached"))),
    }
}
