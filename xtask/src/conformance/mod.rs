//! `cargo xtask conformance`: the official suite's server scenarios against the fixture, directly and through weir.
//!
//! The direct run shows what a good server reaches; through weir nothing that passed directly may fail, but for what
//! the file of expected failures hands to later work. The suite's own exit code is not used: it counts a scenario whose
//! checks were all skipped as passed.

mod expected;
mod servers;
mod suite;
mod table;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::{
    conformance::{
        expected::Expected,
        servers::Server,
        suite::{Run, Suite},
        verdict::Judgement,
    },
    peers::{self, Peers},
    run::{build_weir, target_dir},
};

/// The requirement sets that are run against a fixture of the suite's own era. The set also decides what the suite speaks on
/// the wire.
const SAME: [Leg; 2] = [Leg::of("2025-11-25", "2025-11-25"), Leg::of("2026-07-28", "2026-07-28")];

/// The same sets in front of a server that speaks the other era only: all is carried over the bridge. What a good server
/// reaches is then what the fixture reaches in the suite's own era.
const CROSS: [(Leg, Era); 2] = [
    (Leg::of("2025-11-25", "2025-11-25 over modern"), Era::Modern),
    (Leg::of("2026-07-28", "2026-07-28 over legacy"), Era::Legacy),
];

/// One requirement set in one surrounding.
#[derive(Clone, Copy)]
struct Leg {
    revision: &'static str,
    /// As the file of expected failures names it.
    name: &'static str,
}

impl Leg {
    const fn of(revision: &'static str, name: &'static str) -> Self {
        Self { revision, name }
    }
}

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Run against the fixture only, without weir
    #[arg(long)]
    direct: bool,
    /// Run through this binary instead of one built here
    #[arg(long, value_name = "BINARY", conflicts_with = "direct")]
    weir: Option<PathBuf>,
    /// Which eras the fixture speaks; with one only, the counts are for looking at and nothing is judged
    #[arg(long, value_enum, default_value_t)]
    upstream_era: Era,
    /// Let weir ask for OAuth tokens, and give the suite one
    #[arg(long, conflicts_with = "direct")]
    auth: bool,
    /// Run each set in front of a server of the other era
    #[arg(long, conflicts_with_all = ["direct", "auth", "upstream_era"])]
    cross: bool,
}

/// The eras of the fixture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Era {
    /// Both, on one path: what the suite asks for.
    #[default]
    Both,
    Modern,
    Legacy,
}

impl Era {
    /// As the fixture's command line says it.
    fn flag(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }
}

/// Installs the peers, builds weir and runs the suite.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let peers = peers::install()?;
    let weir = match &options.weir {
        _ if options.direct => None,
        Some(given) => Some(given.clone()),
        None => Some(build_weir(&[])?),
    };
    match weir {
        Some(weir) if options.cross => check_cross(&weir, &peers),
        weir => check(weir.as_deref(), &peers, options.upstream_era, options.auth),
    }
}

/// Runs the suite directly and through the given binary, which asks for no credentials, then for tokens, and then stands in
/// front of servers of the other era.
///
/// # Errors
/// When a required scenario fails directly, when one fails through weir and nothing says that it may, or when what the
/// file of expected failures says is no longer so.
pub(crate) fn through(weir: &Path, peers: &Peers) -> anyhow::Result<()> {
    check(Some(weir), peers, Era::Both, false)?;
    check(Some(weir), peers, Era::Both, true)?;
    check_cross(weir, peers)
}

fn check(weir: Option<&Path>, peers: &Peers, era: Era, auth: bool) -> anyhow::Result<()> {
    let output = empty_output()?;
    let suite = Suite::new(peers, &output);
    let expected = expected(peers)?;
    let fixture = Server::fixture(peers, era, &output)?;
    let issuer = auth.then(|| Server::issuer(peers, &output)).transpose()?;
    let issuer = issuer.as_ref().map(|issuer| issuer.url.as_str());
    let weir = weir.map(|binary| Server::weir(binary, &fixture.url, issuer, &output)).transpose()?;
    let mut judgements = Vec::new();
    for leg in SAME {
        let requirements = suite.requirements(leg)?;
        let direct = suite.run(&fixture.url, leg.revision, "direct", None)?;
        let through = weir.as_ref().map(|weir| suite.run(&weir.url, leg.revision, "weir", issuer)).transpose()?;
        judgements.push(verdict::judge(requirements, &direct, through.as_ref().map(Run::view), expected.of(leg.name)));
    }
    for judgement in &judgements {
        println!("{}", table::render(judgement));
    }
    if era == Era::Both { report(&judgements, &output) } else { Ok(()) }
}

fn check_cross(weir: &Path, peers: &Peers) -> anyhow::Result<()> {
    let output = empty_output()?;
    let suite = Suite::new(peers, &output);
    let expected = expected(peers)?;
    let reference = Server::fixture(peers, Era::Both, &output)?;
    let mut judgements = Vec::new();
    for (leg, era) in CROSS {
        let fixture = Server::fixture(peers, era, &output)?;
        let weir = Server::weir(weir, &fixture.url, None, &output)?;
        let direct = suite.run(&reference.url, leg.revision, "direct", None)?;
        let through = suite.run(&weir.url, leg.revision, "cross", None)?;
        let requirements = suite.requirements(leg)?;
        judgements.push(verdict::judge(requirements, &direct, Some(through.view()), expected.of(leg.name)));
    }
    for judgement in &judgements {
        println!("{}", table::render(judgement));
    }
    report(&judgements, &output)
}

fn expected(peers: &Peers) -> anyhow::Result<Expected> {
    let expected = Expected::read(&peers.dir.join("conformance-expected-failures.yaml"))?;
    let names: Vec<_> = SAME.iter().chain(CROSS.iter().map(|(leg, _)| leg)).map(|leg| leg.name).collect();
    expected.name_only(&names)?;
    Ok(expected)
}

/// The folder of logs and results, without what an earlier run left.
fn empty_output() -> anyhow::Result<PathBuf> {
    let output = target_dir()?.join("conformance");
    if output.exists() {
        fs::remove_dir_all(&output).with_context(|| format!("cannot empty {}", output.display()))?;
    }
    fs::create_dir_all(&output)?;
    Ok(output)
}

fn report(judgements: &[Judgement], output: &Path) -> anyhow::Result<()> {
    let wrong: Vec<_> = judgements.iter().flat_map(Judgement::wrong).collect();
    for problem in &wrong {
        println!("wrong: {problem}");
    }
    println!("{}", table::closing(judgements, wrong.len()));
    if !wrong.is_empty() {
        bail!("{} conformance problem(s); every message and answer is under {}", wrong.len(), output.display());
    }
    Ok(())
}
