//! `tools/list` over one and over many upstreams: the cost of a page, and the check that every tool
//! is on exactly one.

use crate::client::Client;
use crate::protocol::Era;
use crate::report::Table;
use crate::settings::{Kind, Settings};
use crate::stage::{Served, Stage, Upstream};
use crate::stats::{Latencies, Round, as_float};
use crate::upstream::Shape;
use anyhow::{Result, bail, ensure};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Tools of each upstream.
const TOOLS: usize = 50;
/// Pages after which a list counts as endless.
const MOST_PAGES: usize = 1_000;

const COLUMNS: &[(&str, &str)] = &[
    ("upstreams", "upstreams"),
    ("tools", "tools"),
    ("client", "client"),
    ("target", "target"),
    ("pages", "pages"),
    ("page_kib", "KiB/page"),
    ("p50_us", "page p50 us"),
    ("p99_us", "p99 us"),
    ("server_us", "server us"),
    ("cpu_us", "cpu us"),
    ("calls", "pages read"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct Row {
    upstreams: usize,
    tools: usize,
    client: Era,
    target: Kind,
    pages: usize,
    page_kib: f64,
    /// The server time of one page, by weir's own metrics.
    server_us: Option<f64>,
    #[serde(flatten)]
    measured: Round,
    error: Option<String>,
}

/// One target: its client and the pages read through it.
struct Lane {
    kind: Kind,
    client: Client,
    latencies: Latencies,
    cpu: u64,
    spent: Duration,
    served: Served,
    walk: Walk,
    errors: u64,
    error: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Walk {
    pages: usize,
    bytes: usize,
}

/// Walks the whole list many times, through targets in turns.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &Settings) -> Result<Table> {
    let title = format!(
        "tools/list over modern upstreams with {TOOLS} tools each, {} walks",
        settings.walks
    );
    let mut table = Table::new("lists", title, COLUMNS);
    for count in &settings.upstreams {
        // Only weir lists many upstreams; the others are the lower bound under its first row.
        let kinds: &[Kind] = if *count == 1 {
            &[Kind::Weir, Kind::Pipe, Kind::Direct]
        } else {
            &[Kind::Weir]
        };
        if *count > 1 && !settings.has(Kind::Weir) {
            table.note(format!("{count} upstreams: only weir lists more than one"));
            continue;
        }
        let upstreams = Upstream::many(Era::Modern, *count);
        let shape = Shape {
            servers: *count,
            tools: TOOLS,
            page: TOOLS,
        };
        let mut stage = Stage::start(settings, kinds, shape, &upstreams).await?;
        for client in [Era::Modern, Era::Legacy] {
            for row in walks(settings, &stage, kinds, client, &upstreams).await? {
                table.row(&row)?;
            }
        }
        stage.check()?;
        stage.stop().await;
    }
    table.note(
        "page p50: request to whole page at one client; cpu: of the target's process, for one page",
    );
    table.note(
        "server: from a request's head to its page given to the socket's writer, mean of all, by weir's own metrics",
    );
    table.note("aim: under 100 us of server time a page, whatever the number of upstreams");
    Ok(table)
}

async fn walks(
    settings: &Settings,
    stage: &Stage,
    kinds: &[Kind],
    client: Era,
    upstreams: &[Upstream],
) -> Result<Vec<Row>> {
    let mut lanes = Vec::new();
    for kind in stage
        .kinds(settings)
        .into_iter()
        .filter(|kind| kinds.contains(kind))
    {
        // The upstream of this part is modern only, so the lower bound of a legacy client is a
        // legacy server.
        let upstream = Upstream {
            era: client,
            ..upstreams[0].clone()
        };
        let (addr, path) = stage.everything(kind, &upstream)?;
        let client = Client::connect(addr, &path, client).await?;
        lanes.push(Lane::new(kind, client));
    }
    for number in 0..=settings.walks {
        for lane in &mut lanes {
            if number == 1 {
                // The first walk warmed up.
                lane.forget();
            }
            let expected = expected(stage, lane.kind, upstreams)?;
            lane.measure(stage, &expected).await?;
        }
    }
    let mut rows = Vec::new();
    for lane in lanes {
        rows.push(lane.row(client, upstreams.len()));
        lane.client.close().await?;
    }
    Ok(rows)
}

/// The names a target must list.
fn expected(stage: &Stage, kind: Kind, upstreams: &[Upstream]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for upstream in upstreams {
        for tool in 0..TOOLS {
            let tool = match tool {
                0 => "echo".to_owned(),
                1 => "measure".to_owned(),
                _ => format!("tool_{tool:04}"),
            };
            // The aggregate is listed for any `endpoint` setting.
            let prefixed = || format!("{}__{tool}", upstream.id);
            names.insert(if kind == Kind::Weir {
                prefixed()
            } else {
                stage.site(kind, upstream, &tool)?.tool
            });
        }
    }
    Ok(names)
}

impl Lane {
    fn new(kind: Kind, client: Client) -> Self {
        let latencies = Latencies::new();
        Self {
            kind,
            client,
            latencies,
            cpu: 0,
            spent: Duration::ZERO,
            served: Served::default(),
            walk: Walk::default(),
            errors: 0,
            error: None,
        }
    }

    fn forget(&mut self) {
        self.latencies = Latencies::new();
        (self.cpu, self.spent, self.served) = (0, Duration::ZERO, Served::default());
    }

    async fn measure(&mut self, stage: &Stage, expected: &BTreeSet<String>) -> Result<()> {
        let process = stage.process(self.kind)?;
        let before = self.served(stage).await?;
        let cpu = process.cpu_nanos()?;
        let walked = self.walk(expected).await;
        self.cpu += process.cpu_nanos()?.saturating_sub(cpu);
        let after = self.served(stage).await?;
        self.served.requests += after.requests - before.requests;
        self.served.seconds += after.seconds - before.seconds;
        match walked {
            Ok(walk) => self.walk = walk,
            Err(error) => {
                self.errors += 1;
                self.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// The lists that weir has answered until now, and their time.
    async fn served(&self, stage: &Stage) -> Result<Served> {
        if self.kind == Kind::Weir {
            stage.served("tools/list").await
        } else {
            Ok(Served::default())
        }
    }

    async fn walk(&mut self, expected: &BTreeSet<String>) -> Result<Walk> {
        let (mut walk, mut cursor, mut names) = (Walk::default(), None::<String>, Vec::new());
        loop {
            let start = Instant::now();
            let answer = self.client.list(cursor.as_deref()).await?;
            let latency = start.elapsed();
            let page = self.client.page(&answer)?;
            self.latencies.record(latency);
            self.spent += latency;
            walk.pages += 1;
            walk.bytes += answer.body.len();
            names.extend(page.names);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
            if walk.pages >= MOST_PAGES {
                bail!("tools/list does not end");
            }
        }
        let listed = names.len();
        let distinct: BTreeSet<String> = names.into_iter().collect();
        ensure!(
            listed == distinct.len(),
            "{} names are listed twice",
            listed - distinct.len()
        );
        ensure!(
            distinct == *expected,
            "{listed} names listed, {} expected, or others",
            expected.len()
        );
        Ok(walk)
    }

    fn row(&self, client: Era, upstreams: usize) -> Row {
        Row {
            upstreams,
            tools: upstreams * TOOLS,
            client,
            target: self.kind,
            pages: self.walk.pages,
            page_kib: as_float(self.walk.bytes as u64)
                / 1024.0
                / as_float(self.walk.pages.max(1) as u64),
            server_us: (self.kind == Kind::Weir)
                .then(|| self.served.seconds * 1e6 / self.served.requests.max(1.0)),
            measured: self.latencies.round(self.spent, self.cpu, self.errors),
            error: self.error.clone(),
        }
    }
}
