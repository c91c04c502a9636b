//! Servers of both eras on one URL, one on each of three SDKs: the suite's sets against each,
//! directly and through weir.
//!
//! They are typical servers of the SDKs: a direct failure is shown and is no error, and a scenario
//! that passes directly must pass through weir. There is no file of expected failures for them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::Context;

use crate::{
    conformance::{
        parallel_runs, score_table,
        servers::ServerProcess,
        suite::{ConformanceSuite, SuiteRun},
        suite_leg::{FixtureEra, SuiteLeg},
        verdict::{self, SetJudgement},
    },
    peers::ForeignPeers,
    run::build_with_tests,
};

/// A server of both eras.
struct DualServer {
    /// The name in its logs and results.
    name: &'static str,
    /// One leg for each requirement set.
    legs: [SuiteLeg; 2],
    program: fn(&ForeignPeers, rust: &Path) -> Command,
}

/// Both requirement sets under these names.
const fn legs(legacy: &'static str, modern: &'static str) -> [SuiteLeg; 2] {
    [
        SuiteLeg::of("2025-11-25", legacy, FixtureEra::Both),
        SuiteLeg::of("2026-07-28", modern, FixtureEra::Both),
    ]
}

const SERVERS: [DualServer; 3] = [
    DualServer {
        name: "typescript",
        legs: legs("TypeScript SDK 2025-11-25", "TypeScript SDK 2026-07-28"),
        program: |peers, _rust| {
            let mut command = Command::new(&peers.node);
            command.arg(peers.dir.join("node/dual.mjs"));
            command
        },
    },
    DualServer {
        name: "rust",
        legs: legs("Rust SDK 2025-11-25", "Rust SDK 2026-07-28"),
        program: |_peers, rust| {
            let mut command = Command::new(rust);
            command.arg("conformance");
            command
        },
    },
    DualServer {
        name: "fastmcp",
        legs: legs("FastMCP 2025-11-25", "FastMCP 2026-07-28"),
        program: |peers, _rust| {
            let folder = peers.dir.join("python");
            let mut command = Command::new(folder.join(".venv-fastmcp/bin/python"));
            command
                .arg(folder.join("fastmcp_dual.py"))
                .args(["--transport", "http"]);
            command
        },
    },
];

/// Runs both sets against all servers at the same time, and shows the results of each.
///
/// # Errors
/// A server or the suite cannot start.
pub(super) fn judged(
    weir: &Path,
    peers: &ForeignPeers,
    output: &Path,
) -> anyhow::Result<Vec<SetJudgement>> {
    let rust = build_with_tests("rmcp-peer")?;
    let rig = &DualRig {
        weir,
        peers,
        rust,
        suite: ConformanceSuite::new(peers, output),
        output,
    };
    let judgements = thread::scope(|scope| {
        let servers = SERVERS.each_ref();
        let running = servers.map(|server| scope.spawn(move || rig.server(server)));
        parallel_runs::joined(running.into())
    })?;
    for judgement in &judgements {
        println!("{}", score_table::render(judgement));
    }
    println!("{}", score_table::scores(&judgements));
    Ok(judgements)
}

struct DualRig<'a> {
    weir: &'a Path,
    peers: &'a ForeignPeers,
    rust: PathBuf,
    suite: ConformanceSuite<'a>,
    output: &'a Path,
}

impl DualRig<'_> {
    /// Runs both sets against one server, then both through one weir in front of another process of
    /// it.
    fn server(&self, server: &DualServer) -> anyhow::Result<Vec<SetJudgement>> {
        let name = server.name;
        let direct = {
            let running = self.start(server, "direct")?;
            self.sets(server, &running.url, "direct")?
        };
        let running = self.start(server, "weir")?;
        let weir = ServerProcess::weir(
            self.weir,
            &running.url,
            None,
            &self.output.join(format!("{name}-weir")),
        )?;
        let through = self.sets(server, &weir.url, "weir")?;
        let pairs = server.legs.into_iter().zip(direct.iter().zip(&through));
        pairs
            .map(|(leg, (direct, through))| {
                Ok(verdict::judge_by_direct(
                    self.suite.requirements(leg)?,
                    direct,
                    through,
                ))
            })
            .collect()
    }

    fn start(&self, server: &DualServer, way: &str) -> anyhow::Result<ServerProcess> {
        let log = self
            .output
            .join(format!("{}-{way}-server.log", server.name));
        let mut command = (server.program)(self.peers, &self.rust);
        ServerProcess::program(&mut command, &log)
            .with_context(|| format!("cannot start the server of {}", server.name))
    }

    fn sets(&self, server: &DualServer, url: &str, way: &str) -> anyhow::Result<Vec<SuiteRun>> {
        let way = format!("{}-{way}", server.name);
        server
            .legs
            .iter()
            .map(|leg| self.suite.run(url, leg.revision, &way, None))
            .collect()
    }
}
