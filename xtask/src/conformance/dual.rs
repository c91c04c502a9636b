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

use anyhow::{Context, anyhow};

use crate::{
    conformance::{
        Era, Leg,
        servers::Server,
        suite::{Run, Suite},
        table,
        verdict::{self, Judgement},
    },
    peers::Peers,
    run::build_with_tests,
};

/// A server of both eras.
struct Dual {
    /// The name in its logs and results.
    name: &'static str,
    /// One leg for each requirement set.
    legs: [Leg; 2],
    program: fn(&Peers, rust: &Path) -> Command,
}

/// Both requirement sets under these names.
const fn legs(legacy: &'static str, modern: &'static str) -> [Leg; 2] {
    [
        Leg::of("2025-11-25", legacy, Era::Both),
        Leg::of("2026-07-28", modern, Era::Both),
    ]
}

const SERVERS: [Dual; 3] = [
    Dual {
        name: "typescript",
        legs: legs("TypeScript SDK 2025-11-25", "TypeScript SDK 2026-07-28"),
        program: |peers, _rust| {
            let mut command = Command::new(&peers.node);
            command.arg(peers.dir.join("node/dual.mjs"));
            command
        },
    },
    Dual {
        name: "rust",
        legs: legs("Rust SDK 2025-11-25", "Rust SDK 2026-07-28"),
        program: |_peers, rust| {
            let mut command = Command::new(rust);
            command.arg("conformance");
            command
        },
    },
    Dual {
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
pub(super) fn judged(weir: &Path, peers: &Peers, output: &Path) -> anyhow::Result<Vec<Judgement>> {
    let rust = build_with_tests("rmcp-peer")?;
    let rig = Rig {
        weir,
        peers,
        rust,
        suite: Suite::new(peers, output),
        output,
    };
    let found: anyhow::Result<Vec<_>> = thread::scope(|scope| {
        let running = SERVERS.map(|server| scope.spawn(|| rig.server(server)));
        running
            .into_iter()
            .map(|server| {
                server
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a run panicked")))
            })
            .collect()
    });
    let judgements: Vec<Judgement> = found?.into_iter().flatten().collect();
    for judgement in &judgements {
        println!("{}", table::render(judgement));
    }
    println!("{}", table::scores(&judgements));
    Ok(judgements)
}

struct Rig<'a> {
    weir: &'a Path,
    peers: &'a Peers,
    rust: PathBuf,
    suite: Suite<'a>,
    output: &'a Path,
}

impl Rig<'_> {
    /// Runs both sets against one server, then both through one weir in front of another process of
    /// it.
    fn server(&self, server: Dual) -> anyhow::Result<Vec<Judgement>> {
        let name = server.name;
        let direct = {
            let running = self.start(&server, "direct")?;
            self.sets(&server, &running.url, "direct")?
        };
        let running = self.start(&server, "weir")?;
        let weir = Server::weir(
            self.weir,
            &running.url,
            None,
            &self.output.join(format!("{name}-weir")),
        )?;
        let through = self.sets(&server, &weir.url, "weir")?;
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

    fn start(&self, server: &Dual, way: &str) -> anyhow::Result<Server> {
        let log = self
            .output
            .join(format!("{}-{way}-server.log", server.name));
        let mut command = (server.program)(self.peers, &self.rust);
        Server::program(&mut command, &log)
            .with_context(|| format!("cannot start the server of {}", server.name))
    }

    fn sets(&self, server: &Dual, url: &str, way: &str) -> anyhow::Result<Vec<Run>> {
        let way = format!("{}-{way}", server.name);
        server
            .legs
            .iter()
            .map(|leg| self.suite.run(url, leg.revision, &way, None))
            .collect()
    }
}
