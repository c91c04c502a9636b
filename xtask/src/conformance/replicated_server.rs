//! Several replicas of weir that share a Redis, behind a load balancer, as one server of the suite.

#![allow(
    clippy::disallowed_methods,
    reason = "there is no runtime here that a sleep could block"
)]

use std::{
    fs::{self, File},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, bail};
use serde_json::json;

use crate::{
    conformance::servers::{
        BoundedChild, POLL_INTERVAL, START_TIMEOUT, ServerProcess, free_address,
    },
    run::build_with_tests,
};

/// The number of replicas.
const COUNT: usize = 3;

/// The 32 bytes that all replicas seal with.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// The running replicas and the processes that belong to them.
pub(super) struct ReplicatedServer {
    /// The URL of the endpoint at the balancer.
    pub(super) url: String,
    _balancer: ServerProcess,
    _replicas: Vec<ServerProcess>,
    _redis: BoundedChild,
}

impl ReplicatedServer {
    /// Starts all of it in front of `upstream`. The names of all files begin with `name`.
    pub(super) fn start(binary: &Path, upstream: &str, name: &Path) -> anyhow::Result<Self> {
        let balancer = build_with_tests("round-robin-proxy")?;
        let (address, store) = (free_address()?, free_address()?);
        let redis = start_redis(&store, name)?;
        let config = json!({
            "auth": { "mode": "none" },
            // The origin at the balancer; its port is another than that of each replica.
            "cors": { "origins": [format!("http://{address}")] },
            "upstreams": { "fixture": { "url": upstream } },
            "endpoints": { "/mcp": { "upstream": "fixture" } },
            "store": format!("redis://{store}"),
            "cluster": { "listen": "127.0.0.1:0" },
            "keys": [{ "id": 1, "secret": KEY }],
        });
        let replicas = (0..COUNT)
            .map(|number| {
                let files = format!("{}-{number}", name.display());
                ServerProcess::weir_with(binary, config.clone(), files.as_ref())
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut command = Command::new(balancer);
        command.arg(&address);
        for replica in &replicas {
            let url = replica.url.trim_start_matches("http://");
            command.arg(url.trim_end_matches("/mcp"));
        }
        let balancer = ServerProcess::program(&mut command, &name.with_extension("balancer.log"))?;
        Ok(Self {
            url: format!("{}/mcp", balancer.url),
            _balancer: balancer,
            _replicas: replicas,
            _redis: redis,
        })
    }
}

/// Starts a Redis without a password that keeps its data in memory, and waits until it listens.
fn start_redis(address: &str, name: &Path) -> anyhow::Result<BoundedChild> {
    let (host, port) = address.split_once(':').context("an address has a port")?;
    let folder = name.with_extension("redis");
    fs::create_dir_all(&folder)?;
    let log = name.with_extension("redis.log");
    let child = Command::new("redis-server")
        .args(["--port", port, "--bind", host, "--save", "", "--dir"])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start `redis-server`: install it")?;
    let mut redis = BoundedChild::new(child);
    let deadline = Instant::now() + START_TIMEOUT;
    while TcpStream::connect(address).is_err() {
        if redis.ended()?.is_some() || Instant::now() > deadline {
            bail!("redis-server does not listen, see {}", log.display());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(redis)
}
