//! Calls to healthy upstreams while one of them hangs, against the same calls without a hanging
//! one.
//!
//! A steady trickle of calls goes to upstream 0 in both halves, each on its own connection and
//! given up after a while. So the halves differ only in the answers of upstream 0.

use crate::client::{Client, Site};
use crate::load::{Crew, Work, message};
use crate::protocol::Era;
use crate::report::Table;
use crate::settings::{Kind, Settings};
use crate::stage::{Stage, Upstream};
use crate::stats::{Round, median};
use crate::upstream::Shape;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Clients that call the healthy upstreams: few, so that latency is the server's and not that of a
/// queue for the CPU.
const CLIENTS: usize = 4;
/// The interval between calls to upstream 0.
const EVERY: Duration = Duration::from_millis(10);
/// The time after which the client of such a call goes away.
const GIVE_UP: Duration = Duration::from_secs(1);

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
struct Row {
    target: Kind,
    hanging: usize,
    upstreams: usize,
    #[serde(flatten)]
    medians: Round,
    /// The p99 above that of the preceding round without a hanging upstream, the median of these.
    added_p99_us: Option<f64>,
    /// Calls to upstream 0 that were not answered in time.
    given_up: u64,
    error: Option<String>,
    rounds: Vec<Round>,
}

/// The rounds of a half.
#[derive(Default)]
struct Half {
    rounds: Vec<Round>,
    given_up: u64,
    error: Option<String>,
}

/// The outcomes of the calls to upstream 0.
#[derive(Default)]
struct Trickle {
    given_up: u64,
    errors: u64,
    error: Option<String>,
}

/// Measures each target with and without a hanging upstream, in turns.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &Settings) -> Result<Table> {
    let count = settings.hang_upstreams;
    let title = format!(
        "calls to {} healthy upstreams beside one that hangs, {CLIENTS} in flight",
        count - 1
    );
    let mut table = Table::new("hang", title, COLUMNS);
    let upstreams = Upstream::many(Era::Modern, count);
    let shape = Shape {
        servers: count,
        tools: 50,
        page: 50,
    };
    let mut stage = Stage::start(settings, &[Kind::Weir, Kind::Direct], shape, &upstreams).await?;
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
        "upstream 0 gets a call every {EVERY:?}, given up after {GIVE_UP:?}, hanging or not"
    ));
    table.note("aim: nothing measurable added");
    Ok(table)
}

async fn halves(
    settings: &Settings,
    stage: &Stage,
    kind: Kind,
    upstreams: &[Upstream],
) -> Result<[Half; 2]> {
    let sites = upstreams
        .iter()
        .map(|upstream| stage.site(kind, upstream, "echo"))
        .collect::<Result<Vec<_>>>()?;
    let (first, healthy) = (sites[0].clone(), &sites[1..]);
    let work = Work {
        sites: healthy.into(),
        era: Era::Modern,
        sessions: 1,
        payload: settings.payload,
    };
    let mut crew = Crew::open(work, CLIENTS).await?;
    let length = Duration::from_millis(settings.round_ms);
    let mut halves = [Half::default(), Half::default()];
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

impl Half {
    fn add(&mut self, mut outcome: crate::load::Outcome, trickle: Trickle, answers: bool) {
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

    fn row(self, target: Kind, hanging: usize, upstreams: usize, added_p99_us: Option<f64>) -> Row {
        let mut medians = Round::medians(&self.rounds);
        medians.errors = medians.errors.max(u64::from(self.error.is_some()));
        let Self {
            rounds,
            given_up,
            error,
        } = self;
        Row {
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
async fn trickle(site: &Site, length: Duration) -> Trickle {
    let mut calls = JoinSet::new();
    let begin = async {
        let mut tick = interval(EVERY);
        for number in 0_u64.. {
            tick.tick().await;
            let site = site.clone();
            calls.spawn(async move { timeout(GIVE_UP, one(&site, number)).await });
        }
    };
    // The pace ends with the round, not with a count.
    let _ = timeout(length, begin).await;
    let mut trickle = Trickle::default();
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

async fn one(site: &Site, number: u64) -> Result<()> {
    let mut client = Client::connect(site.addr, &site.path, Era::Modern).await?;
    client.echo(site, &message(usize::MAX, number, 0)).await
}

impl Trickle {
    fn failed(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.error
            .get_or_insert_with(|| format!("a call to upstream 0: {error:#}"));
    }
}
