//! Calls to healthy upstreams while one of them hangs, against the same calls without a hanging
//! one.
//!
//! A steady trickle of calls goes to upstream 0 in both halves, each on its own connection and
//! given up after a while. So the halves differ only in the answers of upstream 0.

use crate::client::{LoadClient, ToolAddress};
use crate::load_clients::{ClientGroup, LoadWork, message};
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::{RoundFigures, median};
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Clients that call the healthy upstreams: few, so that latency is the server's and not that of a
/// queue for the CPU.
const CLIENTS: usize = 4;
/// The interval between calls to upstream 0.
const CALL_INTERVAL: Duration = Duration::from_millis(10);
/// The time after which the client of such a call goes away.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

const COLUMNS: &[(&str, &str)] = &[
    ("target", "target"),
    ("hanging", "hanging"),
    ("upstreams", "upstreams"),
    ("per_second", "calls/s"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("added_p99_us", "added p99"),
    ("given_up", "given up"),
    ("calls", "calls"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct HangRow {
    target: TargetKind,
    hanging: usize,
    upstreams: usize,
    #[serde(flatten)]
    medians: RoundFigures,
    /// The p99 above that of the preceding round without a hanging upstream, the median of these.
    added_p99_us: Option<f64>,
    /// Calls to upstream 0 that were not answered in time.
    given_up: u64,
    error: Option<String>,
    rounds: Vec<RoundFigures>,
}

/// The rounds of a half.
#[derive(Default)]
struct HangHalf {
    rounds: Vec<RoundFigures>,
    given_up: u64,
    error: Option<String>,
}

/// The outcomes of the calls to upstream 0.
#[derive(Default)]
struct TrickleOutcome {
    given_up: u64,
    errors: u64,
    error: Option<String>,
}

/// Measures each target with and without a hanging upstream, in turns.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let count = settings.hang_upstreams;
    let title = format!(
        "calls to {} healthy upstreams beside one that hangs, {CLIENTS} in flight",
        count - 1
    );
    let mut table = ReportTable::new("hang", title, COLUMNS);
    let upstreams = BenchUpstream::many(Era::Modern, count);
    let shape = UpstreamShape {
        servers: count,
        tools: 50,
        page: 50,
    };
    let mut stage = TestBed::start(
        settings,
        &[TargetKind::Weir, TargetKind::Direct],
        shape,
        &upstreams,
    )
    .await?;
    for kind in stage.kinds(settings) {
        let [calm, hung] = halves(settings, &stage, kind, &upstreams).await?;
        let added = calm
            .rounds
            .iter()
            .zip(&hung.rounds)
            .map(|(calm, hung)| hung.p99_us - calm.p99_us)
            .collect();
        table.row(&calm.row(kind, 0, count, None))?;
        table.row(&hung.row(kind, 1, count, Some(median(added))))?;
        stage.check()?;
    }
    stage.stop().await;
    table.note(format!(
        "upstream 0 gets a call every {CALL_INTERVAL:?}, given up after {CLIENT_TIMEOUT:?}, hanging or not"
    ));
    table.note("aim: nothing measurable added");
    Ok(table)
}

async fn halves(
    settings: &RunSettings,
    stage: &TestBed,
    kind: TargetKind,
    upstreams: &[BenchUpstream],
) -> Result<[HangHalf; 2]> {
    let sites = upstreams
        .iter()
        .map(|upstream| stage.tool_address(kind, upstream, "echo"))
        .collect::<Result<Vec<_>>>()?;
    let (first, healthy) = (sites[0].clone(), &sites[1..]);
    let work = LoadWork {
        sites: healthy.into(),
        era: Era::Modern,
        sessions: 1,
        payload: settings.payload,
    };
    let mut crew = ClientGroup::open(work, CLIENTS).await?;
    let length = Duration::from_millis(settings.round_ms);
    let mut halves = [HangHalf::default(), HangHalf::default()];
    halves[0].error = crew.round(length / 4, stage.process(kind)?).await?.error;
    for _ in 0..settings.rounds {
        for (half, verb) in halves.iter_mut().zip(["wake", "hang"]) {
            stage.control(verb, 0).await?;
            let (trickle, round) = tokio::join!(
                trickle(&first, length),
                crew.round(length, stage.process(kind)?)
            );
            half.add(round?, trickle, verb == "wake");
        }
        stage.control("wake", 0).await?;
    }
    crew.close().await?;
    Ok(halves)
}

impl HangHalf {
    fn add(
        &mut self,
        mut outcome: crate::load_clients::RoundOutcome,
        trickle: TrickleOutcome,
        answers: bool,
    ) {
        outcome.round.errors += trickle.errors;
        self.given_up += trickle.given_up;
        let error = outcome.error.or(trickle.error);
        if answers && trickle.given_up > 0 {
            outcome.round.errors += trickle.given_up;
            self.error
                .get_or_insert_with(|| "upstream 0 was slow though it did not hang".to_owned());
        }
        self.error = self.error.take().or(error);
        self.rounds.push(outcome.round);
    }

    fn row(
        self,
        target: TargetKind,
        hanging: usize,
        upstreams: usize,
        added_p99_us: Option<f64>,
    ) -> HangRow {
        let mut medians = RoundFigures::medians(&self.rounds);
        medians.errors = medians.errors.max(u64::from(self.error.is_some()));
        let Self {
            rounds,
            given_up,
            error,
        } = self;
        HangRow {
            target,
            hanging,
            upstreams,
            medians,
            added_p99_us,
            given_up,
            error,
            rounds,
        }
    }
}

/// Calls upstream 0 at a steady pace for `length`, and waits for the calls to end.
async fn trickle(site: &ToolAddress, length: Duration) -> TrickleOutcome {
    let mut calls = JoinSet::new();
    let begin = async {
        let mut tick = interval(CALL_INTERVAL);
        for number in 0_u64.. {
            tick.tick().await;
            let site = site.clone();
            calls.spawn(async move { timeout(CLIENT_TIMEOUT, one(&site, number)).await });
        }
    };
    // The pace ends with the round, not with a count.
    let _ = timeout(length, begin).await;
    let mut trickle = TrickleOutcome::default();
    while let Some(call) = calls.join_next().await {
        match call {
            Ok(Ok(Ok(()))) => {}
            Ok(Err(_)) => trickle.given_up += 1,
            Ok(Ok(Err(error))) => trickle.failed(&error),
            Err(error) => trickle.failed(&error.into()),
        }
    }
    trickle
}

async fn one(site: &ToolAddress, number: u64) -> Result<()> {
    let mut client = LoadClient::connect(site.addr, &site.path, Era::Modern).await?;
    client.echo(site, &message(usize::MAX, number, 0)).await
}

impl TrickleOutcome {
    fn failed(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.error
            .get_or_insert_with(|| format!("a call to upstream 0: {error:#}"));
    }
}
