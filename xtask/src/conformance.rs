//! `cargo xtask conformance`: the official suite's server scenarios against the fixture, directly
//! and through weir, and its client scenarios against weir's upstream side.
//!
//! The same server scenarios against servers of both eras on three SDKs are in `dual`.
//!
//! The direct run shows the results of a good server. A scenario that passed directly must not fail
//! through weir, unless the file of expected failures lists it for later work. The suite's own exit
//! code is not used: it counts a scenario as passed if all its checks were skipped.

mod dual;
mod expected_failures;
mod parallel_runs;
mod replicated_server;
mod score_table;
pub(crate) mod servers;
mod suite;
mod suite_leg;
mod verdict;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, bail};
use clap::Args;

use crate::{
    conformance::{
        expected_failures::ExpectedFailures,
        replicated_server::ReplicatedServer,
        servers::ServerProcess,
        suite::{ConformanceSuite, SuiteRun},
        suite_leg::{FixtureEra, SuiteLeg},
        verdict::SetJudgement,
    },
    peers::{self, ForeignPeers},
    run::{build_weir, empty_folder},
};

/// The requirement sets that are run against a fixture of the suite's own era. The set also decides
/// the revision that the suite speaks on the wire.
const SAME_ERA_LEGS: [SuiteLeg; 2] = [
    SuiteLeg::of("2025-11-25", "2025-11-25", FixtureEra::Both),
    SuiteLeg::of("2026-07-28", "2026-07-28", FixtureEra::Both),
];

/// The same sets in front of a server that speaks the other era only, so that all messages pass the
/// bridge. They are compared with the fixture in the suite's own era.
const CROSS_ERA_LEGS: [SuiteLeg; 2] = [
    SuiteLeg::of("2025-11-25", "2025-11-25 over modern", FixtureEra::Modern),
    SuiteLeg::of("2026-07-28", "2026-07-28 over legacy", FixtureEra::Legacy),
];

/// The sets of client scenarios: the suite is the server behind weir and `behind` is its era, with
/// a client of each era in front.
const CLIENT_LEGS: [(SuiteLeg, FixtureEra); 4] = [
    (
        SuiteLeg::of("2025-11-25", "client 2025-11-25", FixtureEra::Legacy),
        FixtureEra::Legacy,
    ),
    (
        SuiteLeg::of(
            "2025-11-25",
            "client 2025-11-25 for modern",
            FixtureEra::Legacy,
        ),
        FixtureEra::Modern,
    ),
    (
        SuiteLeg::of("2026-07-28", "client 2026-07-28", FixtureEra::Modern),
        FixtureEra::Modern,
    ),
    (
        SuiteLeg::of(
            "2026-07-28",
            "client 2026-07-28 for legacy",
            FixtureEra::Modern,
        ),
        FixtureEra::Legacy,
    ),
];

/// The path of the suite to the server through weir.
#[derive(Clone, Copy)]
enum WeirVariant {
    /// Weir asks for no credentials.
    Open,
    /// Weir asks for OAuth tokens.
    Auth,
    /// The server speaks the other era.
    Cross,
    /// Several replicas of weir behind a load balancer that sends each request to another one.
    Replicas,
}

impl WeirVariant {
    /// The name in its logs and results.
    fn name(self) -> &'static str {
        match self {
            Self::Open => "weir",
            Self::Auth => "auth",
            Self::Cross => "cross",
            Self::Replicas => "replicas",
        }
    }
}

/// Options of the command.
#[derive(Args)]
pub(crate) struct ConformanceOptions {
    /// Run against the fixture only, without weir
    #[arg(long)]
    direct: bool,
    /// Run through this binary instead of one built here
    #[arg(long, value_name = "BINARY", conflicts_with = "direct")]
    weir: Option<PathBuf>,
    /// Eras of the fixture; with one only, the counts are informative and no scenario is judged
    #[arg(long, value_enum, default_value_t)]
    upstream_era: FixtureEra,
    /// Let weir ask for OAuth tokens, and give the suite one
    #[arg(long, conflicts_with = "direct")]
    auth: bool,
    /// Run each set in front of a server of the other era
    #[arg(long, conflicts_with_all = ["direct", "auth", "upstream_era"])]
    cross: bool,
    /// Run the sets through three replicas behind a load balancer
    #[arg(long, conflicts_with_all = ["direct", "auth", "cross"])]
    replicas: bool,
    /// Run the client scenarios instead, with weir as the client
    #[arg(long, conflicts_with_all = ["direct", "auth", "upstream_era", "cross", "replicas"])]
    client: bool,
    /// Run the sets against servers of both eras on three SDKs instead, each directly and through
    /// weir
    #[arg(long, conflicts_with_all = ["direct", "auth", "upstream_era", "cross", "replicas", "client"])]
    servers: bool,
}

/// Installs the peers, builds weir and runs the suite.
pub(crate) fn run(options: &ConformanceOptions) -> anyhow::Result<()> {
    let peers = peers::install()?;
    let weir = match &options.weir {
        _ if options.direct => None,
        Some(given) => Some(given.clone()),
        None => Some(build_weir(&[])?),
    };
    let era = options.upstream_era;
    let output = empty_folder("conformance")?;
    if let Some(weir) = weir.as_ref().filter(|_| options.client) {
        return report(&as_client(weir, &peers, &output)?, &output);
    }
    if let Some(weir) = weir.as_ref().filter(|_| options.servers) {
        return report(&dual::judged(weir, &peers, &output)?, &output);
    }
    let rig = ConformanceRig::new(&peers, era, &output)?;
    let way = match options {
        ConformanceOptions { cross: true, .. } => WeirVariant::Cross,
        ConformanceOptions { auth: true, .. } => WeirVariant::Auth,
        ConformanceOptions { replicas: true, .. } => WeirVariant::Replicas,
        _ => WeirVariant::Open,
    };
    let judgements = weir.map_or_else(|| rig.directly(), |weir| rig.through(&weir, way))?;
    if era == FixtureEra::Both {
        report(&judgements, &output)
    } else {
        Ok(())
    }
}

/// Runs the suite directly, then through the given binary: without credentials, with tokens, in
/// front of servers of the other era, and with the suite as the server. These wait more than they
/// compute, so they run at the same time. At last it runs in front of servers of both eras.
/// `cargo xtask conformance --replicas` runs it through replicas.
///
/// # Errors
/// A scenario that the fixture must pass fails directly; a scenario that passes directly fails
/// through weir and is not expected to; or a line of the file of expected failures is no longer
/// true.
pub(crate) fn through(weir: &Path, peers: &ForeignPeers) -> anyhow::Result<()> {
    let output = empty_folder("conformance")?;
    let rig = &ConformanceRig::new(peers, FixtureEra::Both, &output)?;
    let mut judgements = thread::scope(|scope| {
        let ways = [WeirVariant::Open, WeirVariant::Auth, WeirVariant::Cross];
        let mut running: Vec<_> = ways
            .map(|way| scope.spawn(move || rig.through(weir, way)))
            .into();
        running.push(scope.spawn(|| as_client(weir, peers, &output)));
        parallel_runs::joined(running)
    })?;
    judgements.extend(dual::judged(weir, peers, &output)?);
    report(&judgements, &output)
}

/// Runs the client scenarios with the suite as a server of each era at the same time, and shows
/// weir's results.
fn as_client(
    weir: &Path,
    peers: &ForeignPeers,
    output: &Path,
) -> anyhow::Result<Vec<SetJudgement>> {
    let suite = &ConformanceSuite::new(peers, output);
    let expected = &expected(peers)?;
    let judged = |(leg, front): (SuiteLeg, FixtureEra)| {
        let requirements = suite.client_requirements(leg)?;
        let run = suite.client(weir, front, leg.revision, &requirements)?;
        let judgement = verdict::judge_alone(requirements, &run, &expected.of(leg.name));
        println!("{}", score_table::render(&judgement));
        Ok(judgement)
    };
    thread::scope(|scope| {
        let running = [FixtureEra::Legacy, FixtureEra::Modern].map(|behind| {
            let legs = CLIENT_LEGS
                .iter()
                .filter(move |(leg, _)| leg.behind == behind);
            scope.spawn(move || legs.copied().map(judged).collect())
        });
        parallel_runs::joined(running.into())
    })
}

/// The base of comparison for all paths through weir: the suite's runs against the fixture itself.
struct ConformanceRig<'a> {
    peers: &'a ForeignPeers,
    output: &'a Path,
    suite: ConformanceSuite<'a>,
    expected: ExpectedFailures,
    /// The era of the fixture, directly and behind weir in the suite's own era.
    era: FixtureEra,
    /// The direct runs by revision.
    direct: BTreeMap<&'static str, SuiteRun>,
}

impl<'a> ConformanceRig<'a> {
    /// Runs every requirement set against a fixture of `era`.
    fn new(peers: &'a ForeignPeers, era: FixtureEra, output: &'a Path) -> anyhow::Result<Self> {
        let expected = expected(peers)?;
        let suite = ConformanceSuite::new(peers, output);
        let fixture = ServerProcess::fixture(peers, era, &output.join("direct-fixture.log"))?;
        let run = |leg: SuiteLeg| {
            Ok((
                leg.revision,
                suite.run(&fixture.url, leg.revision, "direct", None)?,
            ))
        };
        let direct = SAME_ERA_LEGS
            .into_iter()
            .map(run)
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            peers,
            output,
            suite,
            expected,
            era,
            direct,
        })
    }

    /// Judges and shows the direct runs alone.
    fn directly(&self) -> anyhow::Result<Vec<SetJudgement>> {
        SAME_ERA_LEGS
            .into_iter()
            .map(|leg| self.judge(leg, None))
            .collect()
    }

    /// Runs the sets of one path through weir and shows each against its direct run.
    fn through(&self, weir: &Path, way: WeirVariant) -> anyhow::Result<Vec<SetJudgement>> {
        let issuer = match way {
            WeirVariant::Auth => Some(ServerProcess::issuer(
                self.peers,
                &self.output.join("issuer.log"),
            )?),
            WeirVariant::Open | WeirVariant::Cross | WeirVariant::Replicas => None,
        };
        let issuer = issuer.as_ref().map(|issuer| issuer.url.as_str());
        let legs = match way {
            WeirVariant::Cross => CROSS_ERA_LEGS,
            WeirVariant::Open | WeirVariant::Auth | WeirVariant::Replicas => {
                SAME_ERA_LEGS.map(|leg| SuiteLeg {
                    behind: self.era,
                    ..leg
                })
            }
        };
        let judged = |leg: SuiteLeg| {
            let name = format!("{}-{}", leg.revision, way.name());
            let fixture = ServerProcess::fixture(
                self.peers,
                leg.behind,
                &self.output.join(format!("{name}-fixture.log")),
            )?;
            let files = self.output.join(format!("{name}-weir"));
            let run = |url: &str| self.suite.run(url, leg.revision, way.name(), issuer);
            let through = if let WeirVariant::Replicas = way {
                run(&ReplicatedServer::start(weir, &fixture.url, &files)?.url)?
            } else {
                run(&ServerProcess::weir(weir, &fixture.url, issuer, &files)?.url)?
            };
            self.judge(leg, Some(&through))
        };
        legs.into_iter().map(judged).collect()
    }

    /// Judges and shows one set.
    fn judge(&self, leg: SuiteLeg, through: Option<&SuiteRun>) -> anyhow::Result<SetJudgement> {
        let direct = self
            .direct
            .get(leg.revision)
            .context("a set was not run directly")?;
        let requirements = self.suite.requirements(leg)?;
        let judgement = verdict::judge(
            requirements,
            direct,
            through.map(SuiteRun::view),
            &self.expected.of(leg.name),
        );
        println!("{}", score_table::render(&judgement));
        Ok(judgement)
    }
}

fn expected(peers: &ForeignPeers) -> anyhow::Result<ExpectedFailures> {
    let expected = ExpectedFailures::read(&peers.dir.join("conformance-expected-failures.yaml"))?;
    let names: Vec<_> = SAME_ERA_LEGS
        .iter()
        .chain(&CROSS_ERA_LEGS)
        .chain(CLIENT_LEGS.iter().map(|(leg, _)| leg))
        .map(|leg| leg.name)
        .collect();
    expected.name_only(&names)?;
    Ok(expected)
}

fn report(judgements: &[SetJudgement], output: &Path) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for problem in judgements.iter().flat_map(SetJudgement::problems) {
        // A direct failure shows in every path through weir.
        if !wrong.contains(&problem) {
            wrong.push(problem);
        }
    }
    for problem in &wrong {
        println!("wrong: {problem}");
    }
    println!("{}", score_table::closing(judgements, wrong.len()));
    if !wrong.is_empty() {
        bail!(
            "{} conformance problem(s); every message and answer is under {}",
            wrong.len(),
            output.display()
        );
    }
    Ok(())
}
