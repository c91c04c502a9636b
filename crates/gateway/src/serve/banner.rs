//! What `weir serve` shows a person at a terminal: where it serves, and the upstreams as they come up or fail.
//!
//! Nothing of it is written where standard error is no terminal, or the config asks for JSON: programs read the log.

use std::time::{Duration, SystemTime};

use weir_core::catalog::UpstreamStatus;
use weir_core::endpoint::Mode;

use crate::config::Config;
use crate::local_time::Zone;
use crate::system::on_this_machine;
use crate::telemetry::print_error;
use crate::terminal::{count, one_line};
use crate::weir::Weir;

/// Between two looks at the upstreams.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// An upstream that is starting for longer than this is named.
const SLOW: Duration = Duration::from_secs(5);
/// Endpoints that are listed one by one.
const MOST_ENDPOINTS: usize = 12;

/// The escape sequences of colors; empty ones where colors are not wanted.
#[derive(Clone, Copy, Debug)]
struct Colors(bool);

impl Colors {
    fn paint(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
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
enum Shown {
    /// Nothing was said yet, since this time.
    Starting(SystemTime),
    /// It was named as slow.
    Slow,
    Up {
        tools: usize,
    },
    Down(String),
    Disabled,
}

/// The upstreams as the terminal shows them.
#[derive(Debug)]
pub(super) struct Banner {
    colors: Colors,
    zone: Zone,
    known: Vec<(String, Shown)>,
}

impl Banner {
    /// Shows where weir serves.
    pub(super) fn show(weir: &Weir, config: &Config, colors: bool) -> Self {
        let colors = Colors(colors);
        let upstreams = count(config.upstreams.len(), "upstream");
        let mut lines = vec![colors.bold(&format!("weir {} serves {upstreams}", env!("CARGO_PKG_VERSION")))];
        let base = base(weir, config);
        let width = config.endpoints.iter().take(MOST_ENDPOINTS).map(|one| one.id.to_string().len()).max().unwrap_or(0);
        for endpoint in config.endpoints.iter().take(MOST_ENDPOINTS) {
            let what = match &endpoint.mode {
                Mode::Aggregate { upstreams, .. } if upstreams.len() == config.upstreams.len() => {
                    "all of them".to_owned()
                }
                Mode::Aggregate { upstreams, .. } => count(upstreams.len(), "upstream"),
                Mode::Transparent(one) => one.to_string(),
            };
            let path = format!("{:<width$}", endpoint.id.to_string());
            lines.push(format!("  {base}{path}  {}", colors.dim(&one_line(&what))));
        }
        if let Some(more) = config.endpoints.len().checked_sub(MOST_ENDPOINTS).filter(|more| *more > 0) {
            lines.push(format!("  and {}", count(more, "endpoint")));
        }
        if let Some(admin) = weir.admin_address() {
            lines.push(format!("  http://{}/  {}", on_this_machine(admin), colors.dim("status page, for operators")));
        }
        let first = config.endpoints.first().map(|endpoint| format!("{base}{}", endpoint.id));
        let try_it = first.map(|url| format!("weir tools {url}   ")).unwrap_or_default();
        lines.push(colors.dim(&format!("  {try_it}Ctrl-C ends it")));
        print_error(lines.join("\n"));
        Self { colors, zone: Zone::own(), known: Vec::new() }
    }

    /// Shows the upstreams whose state has changed since the last look.
    pub(super) fn look(&mut self, weir: &Weir) {
        let now = SystemTime::now();
        let status = weir.catalog().status();
        self.known.retain(|(id, _)| status.iter().any(|upstream| upstream.id.as_str() == id));
        let width = status.iter().map(|upstream| upstream.id.as_str().len()).max().unwrap_or_default();
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

    fn line(&self, shown: &Shown, upstream: &UpstreamStatus) -> Option<String> {
        Some(match shown {
            Shown::Starting(_) => return None,
            Shown::Slow => format!("{} for {} s already", self.colors.paint("33", "starting"), SLOW.as_secs()),
            Shown::Up { tools } => {
                let revision = upstream.health.revision.map(|revision| format!(", {revision}")).unwrap_or_default();
                format!("{} with {}{revision}", self.colors.paint("32", "up"), count(*tools, "tool"))
            }
            Shown::Down(why) => format!("{}: {why}", self.colors.paint("31", "down")),
            Shown::Disabled => self.colors.paint("33", "disabled by an operator"),
        })
    }
}

/// What is to be shown of an upstream.
fn next(before: Option<&Shown>, upstream: &UpstreamStatus, now: SystemTime) -> Shown {
    let base = upstream.lists.first();
    let state = base.map_or("pending", |list| list.state);
    match (state, before) {
        _ if upstream.closed.is_some() => Shown::Disabled,
        ("fresh", _) if !upstream.health.down => Shown::Up { tools: base.map_or(0, |list| list.tools) },
        ("pending", None) if !upstream.health.down => Shown::Starting(now),
        ("pending", Some(Shown::Starting(since))) if !upstream.health.down => {
            match now.duration_since(*since).is_ok_and(|waited| waited >= SLOW) {
                true => Shown::Slow,
                false => Shown::Starting(*since),
            }
        }
        ("pending", Some(Shown::Slow)) if !upstream.health.down => Shown::Slow,
        _ => {
            let why = base.and_then(|list| list.error.as_deref()).or(upstream.health.last_error.as_deref());
            let why = one_line(why.unwrap_or("it cannot be reached"));
            let own = why.strip_prefix(&format!("upstream {}: ", upstream.id)).unwrap_or(&why);
            Shown::Down(own.to_owned())
        }
    }
}

/// The URL under which clients on this machine reach the endpoints.
fn base(weir: &Weir, config: &Config) -> String {
    match &config.front.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let scheme = if config.front.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", on_this_machine(weir.address()))
        }
    }
}
