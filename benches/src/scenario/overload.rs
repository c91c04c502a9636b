//! Goodput under overload: calls arrive at twice the rate of the peak. weir has one processor for
//! itself, the generator and the upstream have another, so that refused calls and their retries
//! take no time of weir's.
//!
//! The peak is the throughput of as many clients as weir has permits, each calling as soon as it
//! has its answer. The overload is open-loop: calls arrive at twice that rate, without waiting for
//! earlier calls, and a call waits for a connection if none is free. Latencies start at the moment
//! a call was due.

use crate::bare_client::{BareCallOutcome, BareClient};
use crate::cpu_pinning;
use crate::process::ChildProcess;
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::{LatencyHistogram, as_float, median};
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::Result;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// `limits.in_flight` of the weir that sheds load.
const IN_FLIGHT_LIMIT: usize = 32;
/// Connections that calls arrive over.
const CONNECTIONS: usize = 1_000;
/// The rate of arrivals, as a multiple of the peak.
const OVERLOAD: f64 = 2.0;
/// The part of the peak that must be left.
const MIN_GOODPUT: f64 = 0.85;
/// The interval of arrivals.
const TICK: Duration = Duration::from_millis(1);

const COLUMNS: &[(&str, &str)] = &[
    ("in_flight", "limits.in_flight"),
    ("load", "load"),
    ("offered", "offered/s"),
    ("made", "made/s"),
    ("of_peak", "of peak"),
    ("made_p99_us", "p99 us"),
    ("refused", "refused/s"),
    ("refused_p99_us", "p99 us"),
    ("busy", "weir's core"),
    ("errors", "errors"),
];

/// The medians over all rounds.
#[derive(Serialize)]
struct OverloadRow {
    in_flight: &'static str,
    load: &'static str,
    offered: f64,
    made: f64,
    /// Calls made, as a part of the peak of the same round; the median over the rounds.
    of_peak: Option<f64>,
    made_p99_us: f64,
    refused: f64,
    refused_p99_us: f64,
    busy: f64,
    errors: u64,
    error: Option<String>,
    rounds: Vec<LoadFigures>,
}

/// One kind of load in one round, by the second.
#[derive(Clone, Debug, Serialize)]
struct LoadFigures {
    offered: f64,
    made: f64,
    made_p99_us: f64,
    refused: f64,
    refused_p99_us: f64,
    /// The part of its processor's time that weir used. A low value means that the generator was
    /// the bottleneck.
    busy: f64,
    errors: u64,
    #[serde(skip)]
    error: Option<String>,
}

/// Measures weir with as many permits as clients at the peak, and with its defaults.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "{OVERLOAD} times the peak of tools/call, weir alone on one processor, medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("overload", title, COLUMNS);
    let allowed = cpu_pinning::allowed();
    let (true, [first, second, ..]) = (settings.has(TargetKind::Weir), allowed.as_slice()) else {
        table.note("not measured: it takes weir and two processors of a Linux");
        return Ok(table);
    };
    let _pinned = cpu_pinning::pin(*first)?;
    let mut settings = settings.clone();
    settings.weir_core = Some(*second);
    let shedding = format!("limits: {{ in_flight: {IN_FLIGHT_LIMIT} }}\n");
    for (name, config) in [("32", shedding.as_str()), ("default", "")] {
        let mut settings = settings.clone();
        settings.weir_config_extra.push_str(config);
        let [peak, over] = measure(&settings).await?;
        let of_peak = peak
            .iter()
            .zip(&over)
            .map(|(peak, over)| over.made / peak.made)
            .collect();
        let left = median(of_peak);
        table.row(&row(name, "as many clients as places", peak, None))?;
        let mut row = row(name, "twice the peak", over, Some(left));
        // A smoke run is too short for a comparison.
        if left < MIN_GOODPUT && !settings.smoke {
            row.errors += 1;
            row.error.get_or_insert_with(|| {
                format!(
                    "{left:.2} of the peak is served under overload, {MIN_GOODPUT} is the least"
                )
            });
        }
        table.row(&row)?;
    }
    table.note(format!("aim: {MIN_GOODPUT} of the peak, and no call lost"));
    Ok(table)
}

async fn measure(settings: &RunSettings) -> Result<[Vec<LoadFigures>; 2]> {
    let upstreams = [BenchUpstream::one("m", Era::Modern)];
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    };
    let mut stage = TestBed::start(settings, &[TargetKind::Weir], shape, &upstreams).await?;
    let weir = stage.process(TargetKind::Weir)?;
    let site = stage.tool_address(TargetKind::Weir, &upstreams[0], "echo")?;
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        connections.push(BareClient::connect(&site, number, settings.payload).await?);
    }
    let length = Duration::from_millis(settings.round_ms);
    let mut few: Vec<_> = connections.split_off(CONNECTIONS - IN_FLIGHT_LIMIT);
    peak(&mut few, length / 4, weir).await?;
    let mut loads = [Vec::new(), Vec::new()];
    for _ in 0..settings.rounds {
        let at_peak = peak(&mut few, length, weir).await?;
        let over = overload(&mut connections, at_peak.made * OVERLOAD, length, weir).await?;
        loads[0].push(at_peak);
        loads[1].push(over);
    }
    stage.check()?;
    stage.stop().await;
    Ok(loads)
}

fn row(
    in_flight: &'static str,
    load: &'static str,
    rounds: Vec<LoadFigures>,
    of_peak: Option<f64>,
) -> OverloadRow {
    let over = |pick: fn(&LoadFigures) -> f64| median(rounds.iter().map(pick).collect());
    OverloadRow {
        in_flight,
        load,
        offered: over(|load| load.offered),
        made: over(|load| load.made),
        of_peak,
        made_p99_us: over(|load| load.made_p99_us),
        refused: over(|load| load.refused),
        refused_p99_us: over(|load| load.refused_p99_us),
        busy: over(|load| load.busy),
        errors: rounds.iter().map(|load| load.errors).sum(),
        error: rounds.iter().find_map(|load| load.error.clone()),
        rounds,
    }
}

/// Measures the peak: each client calls as soon as it has its answer.
async fn peak(
    connections: &mut Vec<BareClient>,
    length: Duration,
    weir: &ChildProcess,
) -> Result<LoadFigures> {
    let tally = Arc::new(CallTally::default());
    let (begun, cpu) = (Instant::now(), weir.cpu_nanos()?);
    let end = begun + length;
    let mut calling = JoinSet::new();
    for mut connection in connections.drain(..) {
        let tally = tally.clone();
        calling.spawn(async move {
            while Instant::now() < end && tally.call(&mut connection, Instant::now()).await {}
            connection
        });
    }
    while let Some(connection) = calling.join_next().await {
        connections.push(connection?);
    }
    let load = tally.load(begun.elapsed(), weir.cpu_nanos()?.saturating_sub(cpu));
    Ok(LoadFigures {
        offered: load.made + load.refused,
        ..load
    })
}

/// Measures the overload: calls arrive `rate` times a second; each takes a free connection, or
/// waits for one.
async fn overload(
    connections: &mut Vec<BareClient>,
    rate: f64,
    length: Duration,
    weir: &ChildProcess,
) -> Result<LoadFigures> {
    let tally = Arc::new(CallTally::default());
    let due = Arc::new(DueCalls {
        waiting: Semaphore::new(0),
        since: Mutex::default(),
    });
    let mut calling = JoinSet::new();
    for mut connection in connections.drain(..) {
        let (tally, due) = (tally.clone(), due.clone());
        calling.spawn(async move {
            while let Some(since) = due.next().await {
                if !tally.call(&mut connection, since).await {
                    break;
                }
            }
            connection
        });
    }
    let (begun, cpu) = (Instant::now(), weir.cpu_nanos()?);
    let mut arrived = 0;
    let mut tick = tokio::time::interval(TICK);
    while begun.elapsed() < length {
        tick.tick().await;
        let now = begun.elapsed().min(length);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of some thousands"
        )]
        let by_now = (now.as_secs_f64() * rate) as u64;
        due.arrive(by_now - arrived);
        arrived = by_now;
    }
    // Later answers come without the load, and calls that still wait for a connection never began.
    let load = tally.load(begun.elapsed(), weir.cpu_nanos()?.saturating_sub(cpu));
    due.waiting.close();
    while let Some(connection) = calling.join_next().await {
        connections.push(connection?);
    }
    Ok(LoadFigures {
        offered: as_float(arrived) / length.as_secs_f64(),
        ..load
    })
}

/// Calls that are due and wait for a connection.
struct DueCalls {
    waiting: Semaphore,
    since: Mutex<VecDeque<Instant>>,
}

impl DueCalls {
    fn arrive(&self, count: u64) {
        let (now, count) = (Instant::now(), usize::try_from(count).unwrap_or(usize::MAX));
        self.since.lock().extend(std::iter::repeat_n(now, count));
        self.waiting.add_permits(count);
    }

    /// The time that the next one was due; no value once the round is over.
    async fn next(&self) -> Option<Instant> {
        self.waiting.acquire().await.ok()?.forget();
        self.since.lock().pop_front()
    }
}

/// The outcomes of the calls of one load.
struct CallTally {
    made: LatencyHistogram,
    refused: LatencyHistogram,
    errors: Mutex<(u64, Option<String>)>,
}

impl Default for CallTally {
    fn default() -> Self {
        Self {
            made: LatencyHistogram::new(),
            refused: LatencyHistogram::new(),
            errors: Mutex::default(),
        }
    }
}

impl CallTally {
    /// Makes a call that was due at `since`; false if the connection cannot be used any more.
    async fn call(&self, connection: &mut BareClient, since: Instant) -> bool {
        match connection.call().await {
            Ok(BareCallOutcome::Made) => self.made.record(since.elapsed()),
            Ok(BareCallOutcome::Refused) => self.refused.record(since.elapsed()),
            Err(error) => {
                let mut errors = self.errors.lock();
                errors.0 += 1;
                errors.1.get_or_insert_with(|| format!("{error:#}"));
                return false;
            }
        }
        true
    }

    fn load(&self, elapsed: Duration, cpu_nanos: u64) -> LoadFigures {
        let (errors, error) = self.errors.lock().clone();
        LoadFigures {
            offered: 0.0,
            made: as_float(self.made.count()) / elapsed.as_secs_f64(),
            made_p99_us: self.made.quantile_us(0.99),
            refused: as_float(self.refused.count()) / elapsed.as_secs_f64(),
            refused_p99_us: self.refused.quantile_us(0.99),
            busy: as_float(cpu_nanos) / 1e9 / elapsed.as_secs_f64(),
            errors,
            error,
        }
    }
}
