//! `tools/list` over one and over many upstreams: the cost of a page, and the check that every tool
//! is on exactly one.

use crate::client::LoadClient;
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::{LatencyHistogram, RoundFigures, as_float};
use crate::test_bed::{BenchUpstream, ServedTime, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::{Result, bail, ensure};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Tools of each upstream.
const TOOLS: usize = 50;
/// Pages after which a list counts as endless.
const MAX_PAGES: usize = 1_000;

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
struct ListsRow {
    upstreams: usize,
    tools: usize,
    client: Era,
    target: TargetKind,
    pages: usize,
    page_kib: f64,
    /// The server time of one page, by weir's own metrics.
    server_us: Option<f64>,
    #[serde(flatten)]
    measured: RoundFigures,
    error: Option<String>,
}

/// One target: its client and the pages read through it.
struct ListLane {
    kind: TargetKind,
    client: LoadClient,
    latencies: LatencyHistogram,
    cpu: u64,
    spent: Duration,
    served: ServedTime,
    walk: ListWalk,
    errors: u64,
    error: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct ListWalk {
    pages: usize,
    bytes: usize,
}

/// Walks the whole list many times, through targets in turns.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/list over modern upstreams with {TOOLS} tools each, {} walks",
        settings.walks
    );
    let mut table = ReportTable::new("lists", title, COLUMNS);
    for count in &settings.upstreams {
        // Only weir lists many upstreams; the others are the lower bound under its first row.
        let kinds: &[TargetKind] = if *count == 1 {
            &[TargetKind::Weir, TargetKind::Pipe, TargetKind::Direct]
        } else {
            &[TargetKind::Weir]
        };
        if *count > 1 && !settings.has(TargetKind::Weir) {
            table.note(format!("{count} upstreams: only weir lists more than one"));
            continue;
        }
        let upstreams = BenchUpstream::many(Era::Modern, *count);
        let shape = UpstreamShape {
            servers: *count,
            tools: TOOLS,
            page: TOOLS,
        };
        let mut stage = TestBed::start(settings, kinds, shape, &upstreams).await?;
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
    settings: &RunSettings,
    stage: &TestBed,
    kinds: &[TargetKind],
    client: Era,
    upstreams: &[BenchUpstream],
) -> Result<Vec<ListsRow>> {
    let mut lanes = Vec::new();
    for kind in stage
        .kinds(settings)
        .into_iter()
        .filter(|kind| kinds.contains(kind))
    {
        // The upstream of this part is modern only, so the lower bound of a legacy client is a
        // legacy server.
        let upstream = BenchUpstream {
            era: client,
            ..upstreams[0].clone()
        };
        let (addr, path) = stage.list_address(kind, &upstream)?;
        let client = LoadClient::connect(addr, &path, client).await?;
        lanes.push(ListLane::new(kind, client));
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
fn expected(
    stage: &TestBed,
    kind: TargetKind,
    upstreams: &[BenchUpstream],
) -> Result<BTreeSet<String>> {
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
            names.insert(if kind == TargetKind::Weir {
                prefixed()
            } else {
                stage.tool_address(kind, upstream, &tool)?.tool
            });
        }
    }
    Ok(names)
}

impl ListLane {
    fn new(kind: TargetKind, client: LoadClient) -> Self {
        let latencies = LatencyHistogram::new();
        Self {
            kind,
            client,
            latencies,
            cpu: 0,
            spent: Duration::ZERO,
            served: ServedTime::default(),
            walk: ListWalk::default(),
            errors: 0,
            error: None,
        }
    }

    fn forget(&mut self) {
        self.latencies = LatencyHistogram::new();
        (self.cpu, self.spent, self.served) = (0, Duration::ZERO, ServedTime::default());
    }

    async fn measure(&mut self, stage: &TestBed, expected: &BTreeSet<String>) -> Result<()> {
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
    async fn served(&self, stage: &TestBed) -> Result<ServedTime> {
        if self.kind == TargetKind::Weir {
            stage.served("tools/list").await
        } else {
            Ok(ServedTime::default())
        }
    }

    async fn walk(&mut self, expected: &BTreeSet<String>) -> Result<ListWalk> {
        let (mut walk, mut cursor, mut names) = (ListWalk::default(), None::<String>, Vec::new());
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
            if walk.pages >= MAX_PAGES {
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

    fn row(&self, client: Era, upstreams: usize) -> ListsRow {
        ListsRow {
            upstreams,
            tools: upstreams * TOOLS,
            client,
            target: self.kind,
            pages: self.walk.pages,
            page_kib: as_float(self.walk.bytes as u64)
                / 1024.0
                / as_float(self.walk.pages.max(1) as u64),
            server_us: (self.kind == TargetKind::Weir)
                .then(|| self.served.seconds * 1e6 / self.served.requests.max(1.0)),
            measured: self.latencies.round(self.spent, self.cpu, self.errors),
            error: self.error.clone(),
        }
    }
}
