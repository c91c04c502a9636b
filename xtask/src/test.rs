//! `cargo xtask test`: the tests of the workspace with their environment, a smoke run of the benchmarks,
//! and the conformance suite.

use std::{
    env,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    thread::available_parallelism,
};

use clap::Args;

use crate::{
    bench, compat_tables, conformance,
    peers::{self, ForeignPeers},
    run::{build_with_tests, cargo, checked, empty_folder, has_cargo_command, root},
    test_report::{ALL_TESTS_PROFILE, all_of, checked_tests},
};

/// The filter of `--quick`: the crates' own tests, and the pairings of each era's newest revision.
/// The rest of the integration tests wait for peers and deadlines, which is too slow while writing
/// code.
const QUICK_FILTER: &str = "not package(weir-tests) or \
     test(/^matrix::upstream_(2025_11_25|2026_07_28)_http::client_(2025_11_25|2026_07_28)::/)";

/// The filter of the second run: the pairings of each era's newest revision, each in front of
/// several replicas. All pairings take a quarter of an hour, so `cargo xtask prove` has them.
const NEWEST_PAIRINGS: &str =
    "test(/^matrix::upstream_(2025_11_25|2026_07_28)_http::client_(2025_11_25|2026_07_28)::/)";

/// All pairings.
const ALL_PAIRINGS: &str = "test(/^matrix::/)";

/// The variable by which the pairings start several replicas behind a load balancer, and their
/// number: one owns a session, one gets its request, and a third has no part in it.
const REPLICAS_VARIABLE: &str = "WEIR_TEST_REPLICAS";
const REPLICAS: &str = "3";

/// The filter of the run on Valkey: records, messages, counters, rates, leases, changed lists, refusals
/// and access of the shared store, a cluster, and the end of an owner of sessions. The server of the
/// package has no TLS.
const ON_VALKEY: &str = "package(weir-redis-store) & test(/^tests::(record|refusal|access|bus_and_counter|rate|lease|list|cluster)_tests::/) \
     - test(/over_tls|unknown_authority/) \
     + test(=replicas::session_takeover::session_goes_on_after_its_owner_is_killed_and_no_call_runs_twice)";

/// The variable with the program that tests of the shared store start.
const STORE_VARIABLE: &str = "WEIR_REDIS_SERVER";

/// Options of the command.
#[derive(Args)]
pub(crate) struct TestOptions {
    /// Only the crates' own tests and the newest pairings: no npm, no Python, under a minute once
    /// built
    #[arg(long)]
    quick: bool,
    /// Filters and further arguments of the test runner; only the tests are then run
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl TestOptions {
    /// Selects the tests with names that contain `filter`, with all peers.
    pub(crate) fn only(filter: &str) -> Self {
        Self {
            quick: false,
            args: vec![filter.to_owned()],
        }
    }
}

/// Installs the peers unless `--quick`, builds weir and runs all checks.
///
/// The rest also runs after a failed test, so that one run shows all failures.
pub(crate) fn run(options: &TestOptions) -> anyhow::Result<()> {
    let build = || build_with_tests("weir");
    let (peers, weir) = if options.quick {
        // The crates' own tests need it, too.
        peers::redis();
        (None, build()?)
    } else {
        let (peers, weir) = peers::install_during(build)?;
        (Some(peers), weir)
    };
    let emitted = peers.as_ref().map(EmittedCheck::empty).transpose()?;
    let tests = tests(options, &weir, peers.as_ref(), emitted.as_ref());
    let types = emitted.map_or(Ok(()), |emitted| emitted.check(options.args.is_empty()));
    let Some(peers) = peers.filter(|_| options.args.is_empty()) else {
        return all_of([tests, types]);
    };
    let scope = ["--workspace", "--locked", "--test", "it"];
    let replicated = replicated_pairings(&weir, &peers, &scope, NEWEST_PAIRINGS);
    let valkey = on_valkey(&weir, &peers);
    let smoke = bench::smoke(&weir);
    let suite = conformance::through(&weir, &peers);
    // Only a whole run has every pairing in it, and only this runner writes a report.
    let tables = if has_cargo_command("nextest")? && tests.is_ok() {
        compat_tables::check()
    } else {
        Ok(())
    };
    all_of([tests, types, replicated, valkey, smoke, suite, tables])
}

/// Runs one test for the file that it writes; `variable` gives the test its path.
pub(crate) fn run_scene(test: &str, variable: &str, file: &Path) -> anyhow::Result<()> {
    let (peers, weir) = (peers::install()?, build_with_tests("weir")?);
    let mut scene = cargo()?;
    scene.args([
        "test",
        "--workspace",
        "--locked",
        "--test",
        "it",
        "--",
        test,
    ]);
    environment(&mut scene, &weir, Some(&peers))?;
    checked(scene.env(variable, file))
}

fn tests(
    options: &TestOptions,
    weir: &Path,
    peers: Option<&ForeignPeers>,
    emitted: Option<&EmittedCheck<'_>>,
) -> anyhow::Result<()> {
    let mut tests = cargo()?;
    if has_cargo_command("nextest")? {
        tests.args(["nextest", "run", "--workspace", "--locked"]);
        tests.args(["--profile", ALL_TESTS_PROFILE]);
        // A flag among the further arguments, or the caller's own variable, takes precedence.
        if env::var_os(TEST_THREADS_VARIABLE).is_none() {
            tests.env(TEST_THREADS_VARIABLE, test_threads().to_string());
        }
        if options.quick && options.args.is_empty() {
            tests.args(["-E", QUICK_FILTER]);
        }
    } else {
        tests.args(["test", "--workspace", "--locked"]);
    }
    tests.args(&options.args);
    environment(&mut tests, weir, peers)?;
    if let Some(emitted) = emitted {
        tests.env("WEIR_EMITTED", &emitted.folder);
    }
    checked_tests(&mut tests, ALL_TESTS_PROFILE)
}

/// Runs the pairings in front of replicas behind a load balancer, with optimized tests. `scope` is
/// that of the tests that were built last: another one has other features, and builds all
/// dependencies again.
pub(crate) fn all_replicated_pairings(
    weir: &Path,
    peers: &ForeignPeers,
    scope: &[&str],
) -> anyhow::Result<()> {
    replicated_pairings(weir, peers, scope, ALL_PAIRINGS)
}

/// Runs the pairings of a filter once more, each in front of replicas behind a load balancer. The
/// report of the first run, which the compatibility tables are made of, stays: this profile has a
/// folder of its own.
fn replicated_pairings(
    weir: &Path,
    peers: &ForeignPeers,
    scope: &[&str],
    filter: &str,
) -> anyhow::Result<()> {
    let mut pairings = cargo()?;
    if has_cargo_command("nextest")? {
        pairings.args(["nextest", "run", "--profile", "replicas"]);
        pairings.args(scope).args(["-E", filter]);
        if env::var_os(TEST_THREADS_VARIABLE).is_none() {
            pairings.env(TEST_THREADS_VARIABLE, test_threads().to_string());
        }
    } else {
        pairings.arg("test").args(scope).args(["--", "matrix::"]);
    }
    environment(&mut pairings, weir, Some(peers))?;
    checked_tests(pairings.env(REPLICAS_VARIABLE, REPLICAS), "replicas")
}

/// Runs tests of the shared store once more, on Valkey, where a package brings it.
fn on_valkey(weir: &Path, peers: &ForeignPeers) -> anyhow::Result<()> {
    let Some(server) = peers.valkey.as_ref() else {
        return Ok(());
    };
    if !has_cargo_command("nextest")? {
        eprintln!("the tests on Valkey are left out: they need cargo-nextest");
        return Ok(());
    }
    let mut tests = cargo()?;
    tests.args(["nextest", "run", "--workspace", "--locked"]);
    tests.args(["--profile", "valkey", "-E", ON_VALKEY]);
    if env::var_os(TEST_THREADS_VARIABLE).is_none() {
        tests.env(TEST_THREADS_VARIABLE, test_threads().to_string());
    }
    environment(&mut tests, weir, Some(peers))?;
    checked_tests(tests.env(STORE_VARIABLE, server), "valkey")
}

/// The variable of nextest for the count of its threads.
const TEST_THREADS_VARIABLE: &str = "NEXTEST_TEST_THREADS";

/// The count of nextest's threads. In its profiles of all tests and of replicas a test takes three,
/// so that three run at a time for each CPU: more than half of them wait for a process or a clock. A
/// test that hardly does anything else takes one.
fn test_threads() -> usize {
    9 * available_parallelism().map_or(1, NonZero::get)
}

/// The messages of weir while the tests run, checked against the types of the official Python SDK
/// and, for tasks of the extension, of npm's `@modelcontextprotocol/ext-tasks`.
struct EmittedCheck<'a> {
    peers: &'a ForeignPeers,
    folder: PathBuf,
}

impl<'a> EmittedCheck<'a> {
    /// Empties the folder of an earlier run.
    fn empty(peers: &'a ForeignPeers) -> anyhow::Result<Self> {
        Ok(Self {
            peers,
            folder: empty_folder("emitted")?,
        })
    }

    /// Fails if a message breaks the types of its revision; after a run of all tests also if too
    /// few were kept.
    fn check(self, whole: bool) -> anyhow::Result<()> {
        let (python, node) = (self.peers.dir.join("python"), self.peers.dir.join("node"));
        let mut check = Command::new(python.join(".venv2/bin/python"));
        check.arg(python.join("emitted.py")).arg(&self.folder);
        let types = checked(check.args(whole.then_some("--whole")));
        let mut check = Command::new(&self.peers.node);
        check.arg(node.join("emitted.mjs")).arg(&self.folder);
        all_of([types, checked(check.args(whole.then_some("--whole")))])
    }
}

/// Sets the tests' environment: `WEIR_BIN`; `WEIR_PEERS` and `WEIR_NODE22`, or else `WEIR_QUICK`;
/// `MCP_SCHEMAS`.
pub(crate) fn environment(
    tests: &mut Command,
    weir: &Path,
    peers: Option<&ForeignPeers>,
) -> anyhow::Result<()> {
    tests.env("WEIR_BIN", weir);
    match peers {
        Some(peers) => {
            tests
                .env_remove("WEIR_QUICK")
                .env("WEIR_PEERS", &peers.dir)
                .env("WEIR_NODE22", &peers.node);
        }
        None => {
            tests
                .env("WEIR_QUICK", "1")
                .env_remove("WEIR_PEERS")
                .env_remove("WEIR_NODE22");
        }
    }
    // Tests run in the folder of their package, so a relative path would mean another folder there.
    if let Some(schemas) = env::var_os("MCP_SCHEMAS") {
        tests.env("MCP_SCHEMAS", root()?.join(schemas));
    }
    Ok(())
}
