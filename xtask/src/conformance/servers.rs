//! The servers of a run, on free loopback ports: the fixture and those of the SDKs, weir in front
//! of one, and the issuer of tokens. Each ends with its handle.

#![allow(
    clippy::disallowed_methods,
    reason = "there is no runtime here that a sleep could block"
)]

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::{conformance::suite_leg::FixtureEra, peers::ForeignPeers};

/// The most time for a server to start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two checks of a condition.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running server; dropping it ends the process.
pub(super) struct ServerProcess {
    pub(super) url: String,
    _process: BoundedChild,
}

impl ServerProcess {
    /// Starts the fixture; its standard error goes to `log`.
    pub(super) fn fixture(
        peers: &ForeignPeers,
        era: FixtureEra,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let program = peers.dir.join("node/fixture/main.mjs");
        let words = [
            program.as_os_str(),
            "--port".as_ref(),
            "0".as_ref(),
            "--era".as_ref(),
            era.flag().as_ref(),
        ];
        Self::node(peers, &words, log).context("cannot start the conformance fixture")
    }

    /// Starts the authorization server; its standard error goes to `log`.
    pub(super) fn issuer(peers: &ForeignPeers, log: &Path) -> anyhow::Result<Self> {
        let program = peers.dir.join("node/idp.mjs");
        Self::node(peers, &[program.as_os_str()], log)
            .context("cannot start the authorization server")
    }

    /// Starts a Node program that prints its address.
    fn node(peers: &ForeignPeers, words: &[&OsStr], log: &Path) -> anyhow::Result<Self> {
        Self::program(Command::new(&peers.node).args(words), log)
    }

    /// Starts a program that prints its address; its standard error goes to `log`.
    pub(super) fn program(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()?;
        let lines =
            BufReader::new(child.stdout.take().context("it has no standard output")?).lines();
        let process = BoundedChild::new(child);
        let (tell, told) = mpsc::channel();
        // The thread ends with the program's standard output, so with the program.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("listening ") {
                    let _ = tell.send(url.to_owned());
                }
            }
        });
        let url = told
            .recv_timeout(START_TIMEOUT)
            .with_context(|| format!("it did not start, see {}", log.display()))?;
        Ok(Self {
            url,
            _process: process,
        })
    }

    /// Starts weir with one transparent endpoint in front of `upstream`; with an `issuer` it
    /// requires its tokens. The files of config and log are `name` with their extensions.
    pub(super) fn weir(
        binary: &Path,
        upstream: &str,
        issuer: Option<&str>,
        name: &Path,
    ) -> anyhow::Result<Self> {
        let auth = match issuer {
            Some(issuer) => json!({ "mode": "oauth", "issuers": [{ "issuer": issuer }] }),
            None => json!({ "mode": "none" }),
        };
        let config = json!({
            "auth": auth,
            "upstreams": { "fixture": { "url": upstream } },
            "endpoints": { "/mcp": { "upstream": "fixture" } },
        });
        Self::weir_with(binary, config, name)
    }

    /// Starts weir with this config; its addresses are added.
    pub(super) fn weir_with(binary: &Path, mut config: Value, name: &Path) -> anyhow::Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        config["listen"] = json!(listen);
        config["admin"] = json!({ "listen": admin });
        let file = name.with_extension("json");
        fs::write(&file, config.to_string())?;
        let log = name.with_extension("log");
        let written = File::create(&log)?;
        let child = Command::new(binary)
            .args(["serve", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(written.try_clone()?)
            .stderr(written)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut process = BoundedChild::new(child);
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(&listen).is_err() {
            if let Some(status) = process.ended()? {
                bail!(
                    "weir ended before it served ({status}), see {}",
                    log.display()
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "weir did not serve after {START_TIMEOUT:?}, see {}",
                    log.display()
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Self {
            url: format!("http://{listen}/mcp"),
            _process: process,
        })
    }
}

/// A loopback address with a port that was free a moment ago.
pub(super) fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?.to_string())
}

/// A child process that does not outlive its handle.
pub(super) struct BoundedChild(Child);

impl BoundedChild {
    pub(super) fn new(child: Child) -> Self {
        Self(child)
    }

    /// Waits until the process ends; no status after `longest`.
    pub(super) fn wait(mut self, longest: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + longest;
        loop {
            let ended = self.ended()?;
            if ended.is_some() || Instant::now() > deadline {
                return Ok(ended);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.0
            .try_wait()
            .context("cannot look after a child process")
    }
}

impl Drop for BoundedChild {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
