//! The processes of one measurement: the upstream, and in front of it the raw pipe and weir.
//!
//! Every part of a run starts fresh processes, so that no part inherits the memory or the sessions
//! of another. Dropping a stage kills its processes and removes its files.

use crate::client::{LoadClient, ToolAddress};
use crate::cpu_pinning;
use crate::nginx;
use crate::process::ChildProcess;
use crate::protocol::{BOTH_ERAS_SEGMENT, Era};
use crate::settings::{BenchEndpoint, RunSettings, TargetKind};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};
use tokio::time::{Instant, sleep, timeout};
use weir_testkit::TestFolder;

/// The most time for weir until its list is complete.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of checks of the list.
const LIST_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One upstream server, as weir's config names it.
#[derive(Clone, Debug)]
pub(crate) struct BenchUpstream {
    pub(crate) id: String,
    /// The era it speaks, or is called in if it speaks both.
    pub(crate) era: Era,
    /// True if it speaks both eras on one URL.
    pub(crate) both: bool,
    pub(crate) index: usize,
    /// Config keys in place of the upstream's own URL.
    pub(crate) connection: Option<String>,
}

/// The running processes of one measurement.
pub(crate) struct TestBed {
    upstream: (ChildProcess, SocketAddr),
    pipe: Option<(ChildProcess, SocketAddr)>,
    nginx: Option<(ChildProcess, SocketAddr)>,
    /// The reason for which nginx does not run though it was asked for.
    missing_nginx: Option<String>,
    weir: Option<(ChildProcess, SocketAddr)>,
    /// The weir from before a change.
    before: Option<(ChildProcess, SocketAddr)>,
    /// The address of weir's admin listener.
    admin_address: Option<SocketAddr>,
    endpoint: BenchEndpoint,
    /// The credential of weir's clients.
    credential: Option<HeaderValue>,
    // The last field, so that the processes end before their folder is removed.
    folder: TestFolder,
}

impl BenchUpstream {
    /// `count` servers of one era, called `u0`, `u1`, ...
    pub(crate) fn many(era: Era, count: usize) -> Vec<Self> {
        (0..count)
            .map(|index| Self {
                index,
                ..Self::one(&format!("u{index}"), era)
            })
            .collect()
    }

    /// A modern server and a legacy one, in this order.
    pub(crate) fn of_each_era() -> [Self; 2] {
        [Self::one("m", Era::Modern), Self::one("l", Era::Legacy)]
    }

    /// The first server of one era.
    pub(crate) fn one(id: &str, era: Era) -> Self {
        Self {
            id: id.to_owned(),
            era,
            both: false,
            index: 0,
            connection: None,
        }
    }

    fn url(&self, server: SocketAddr) -> String {
        format!("http://{server}{}", self.path())
    }

    fn path(&self) -> String {
        format!(
            "/{}/u/{}",
            if self.both {
                BOTH_ERAS_SEGMENT
            } else {
                self.era.word()
            },
            self.index
        )
    }
}

impl TestBed {
    /// Starts the upstream and those of `kinds` that the settings ask for, and waits until weir
    /// lists every tool.
    ///
    /// # Errors
    /// A process that does not start, or a list that does not become complete.
    pub(crate) async fn start(
        settings: &RunSettings,
        kinds: &[TargetKind],
        shape: UpstreamShape,
        upstreams: &[BenchUpstream],
    ) -> Result<Self> {
        Self::start_for(None, settings, kinds, shape, upstreams).await
    }

    /// Starts them with a weir that requires this credential.
    ///
    /// # Errors
    /// As [`TestBed::start`].
    pub(crate) async fn start_for(
        credential: Option<HeaderValue>,
        settings: &RunSettings,
        kinds: &[TargetKind],
        shape: UpstreamShape,
        upstreams: &[BenchUpstream],
    ) -> Result<Self> {
        let folder = TestFolder::new("bench");
        let wanted = |kind| settings.has(kind) && kinds.contains(&kind);
        let shape_args = [
            format!("--servers={}", shape.servers),
            format!("--tools={}", shape.tools),
            format!("--page={}", shape.page),
        ];
        let upstream = ChildProcess::this(
            "upstream",
            [&["upstream".to_owned()][..], &shape_args].concat(),
            &folder.file("upstream.log"),
        )?;
        let upstream = listening(upstream).await?;
        let pipe = if wanted(TargetKind::Pipe) {
            let to = format!("--to={}", upstream.1);
            Some(
                listening(ChildProcess::this(
                    "pipe",
                    ["pipe", &to],
                    &folder.file("pipe.log"),
                )?)
                .await?,
            )
        } else {
            None
        };
        let endpoint = settings.endpoint;
        let mut stage = Self {
            upstream,
            pipe,
            nginx: None,
            missing_nginx: None,
            weir: None,
            before: None,
            admin_address: None,
            endpoint,
            credential,
            folder,
        };
        if wanted(TargetKind::Nginx) {
            stage.start_nginx().await?;
        }
        for kind in [TargetKind::Before, TargetKind::Weir]
            .into_iter()
            .filter(|kind| wanted(*kind))
        {
            let started = stage
                .start_weir(kind, settings, upstreams, shape.tools * upstreams.len())
                .await;
            started.with_context(|| {
                format!(
                    "weir does not serve; its log ends:\n{}",
                    stage.weir_log(kind)
                )
            })?;
        }
        Ok(stage)
    }

    /// The targets that run, weir first.
    pub(crate) fn kinds(&self, settings: &RunSettings) -> Vec<TargetKind> {
        let runs = |kind: &TargetKind| match kind {
            TargetKind::Weir => self.weir.is_some(),
            TargetKind::Before => self.before.is_some(),
            TargetKind::Pipe => self.pipe.is_some(),
            TargetKind::Nginx => self.nginx.is_some(),
            TargetKind::Direct => settings.has(TargetKind::Direct),
        };
        [
            TargetKind::Weir,
            TargetKind::Before,
            TargetKind::Pipe,
            TargetKind::Nginx,
            TargetKind::Direct,
        ]
        .into_iter()
        .filter(runs)
        .collect()
    }

    /// The process of a target.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn process(&self, kind: TargetKind) -> Result<&ChildProcess> {
        self.target(kind).map(|target| &target.0)
    }

    /// The address of an upstream's tool on a target.
    ///
    /// # Errors
    /// The target does not run.
    pub(crate) fn tool_address(
        &self,
        kind: TargetKind,
        upstream: &BenchUpstream,
        tool: &str,
    ) -> Result<ToolAddress> {
        let addr = self.target(kind)?.1;
        let (path, tool) = match (kind, self.endpoint) {
            (TargetKind::Weir | TargetKind::Before, BenchEndpoint::Aggregate) => {
                ("/mcp".to_owned(), format!("{}__{tool}", upstream.id))
            }
            (TargetKind::Weir | TargetKind::Before, BenchEndpoint::Transparent) => {
                (format!("/mcp/{}", upstream.id), tool.to_owned())
            }
            (TargetKind::Pipe | TargetKind::Nginx | TargetKind::Direct, _) => {
                (upstream.path(), tool.to_owned())
            }
        };
        let credential = self
            .credential
            .clone()
            .filter(|_| matches!(kind, TargetKind::Weir | TargetKind::Before));
        Ok(ToolAddress {
            addr,
            path: path.try_into()?,
            tool,
            credential,
        })
    }

    /// The URL of an upstream itself.
    pub(crate) fn upstream_url(&self, upstream: &BenchUpstream) -> String {
        upstream.url(self.upstream.1)
    }

    /// The address of a target's whole list: weir's aggregate, or the one upstream.
    ///
    /// # Errors
    /// The target does not run.
    pub(crate) fn list_address(
        &self,
        kind: TargetKind,
        upstream: &BenchUpstream,
    ) -> Result<(SocketAddr, Uri)> {
        let path = if kind == TargetKind::Weir {
            "/mcp".to_owned()
        } else {
            upstream.path()
        };
        Ok((self.target(kind)?.1, path.try_into()?))
    }

    /// Makes an upstream `change`, `hang` or `wake`; returns the microsecond of the change.
    ///
    /// # Errors
    /// The upstream refuses the command.
    pub(crate) async fn control(&self, verb: &str, index: usize) -> Result<u64> {
        let uri = format!("http://{}/control/{verb}/{index}", self.upstream.1);
        Ok(read(Request::post(uri).body(Empty::new())?)
            .await?
            .parse()?)
    }

    /// The requests of an MCP method that weir has answered, and their seconds, from its own
    /// metrics.
    ///
    /// # Errors
    /// weir does not run, or has no metrics of the method.
    pub(crate) async fn served(&self, method: &str) -> Result<ServedTime> {
        let operators = self.admin_address.context("weir does not run")?;
        let metrics =
            read(Request::get(format!("http://{operators}/metrics")).body(Empty::new())?).await?;
        served(&metrics, method).with_context(|| format!("weir's metrics say nothing of {method}"))
    }

    /// A file name inside the stage's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// Fails if a process has ended, with the reason.
    ///
    /// # Errors
    /// A process has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.upstream.0.check()?;
        for (process, _) in self.pipe.iter_mut().chain(&mut self.nginx) {
            process.check()?;
        }
        for (kind, weir) in [
            (TargetKind::Before, &mut self.before),
            (TargetKind::Weir, &mut self.weir),
        ] {
            let checked = weir.as_mut().map_or(Ok(()), |(weir, _)| weir.check());
            checked.with_context(|| format!("its log ends:\n{}", log_end(&self.folder, kind)))?;
        }
        Ok(())
    }

    /// Ends all processes and waits until they are gone.
    pub(crate) async fn stop(self) {
        // A list, because the future would have room for each of them twice.
        let processes: Vec<_> = self
            .weir
            .into_iter()
            .chain(self.before)
            .chain(self.pipe)
            .chain(self.nginx)
            .chain([self.upstream])
            .collect();
        for (process, _) in processes {
            process.stop().await;
        }
    }

    fn target(&self, kind: TargetKind) -> Result<&(ChildProcess, SocketAddr)> {
        let target = match kind {
            TargetKind::Weir => self.weir.as_ref(),
            TargetKind::Before => self.before.as_ref(),
            TargetKind::Pipe => self.pipe.as_ref(),
            TargetKind::Nginx => self.nginx.as_ref(),
            TargetKind::Direct => Some(&self.upstream),
        };
        target.with_context(|| format!("{kind:?} does not run"))
    }

    /// The reason for which nginx does not run though it was asked for.
    pub(crate) fn missing_nginx(&self) -> Option<&str> {
        self.missing_nginx.as_deref()
    }

    /// Starts nginx, if it is installed and takes its config.
    async fn start_nginx(&mut self) -> Result<()> {
        let Some(program) = nginx::program() else {
            self.missing_nginx = Some("not installed".to_owned());
            return Ok(());
        };
        let [listen, _] = free_ports()?;
        let folder = self.folder.file("nginx");
        match nginx::start(&program, listen, self.upstream.1, &folder).await {
            Ok(process) => self.nginx = Some((process, listen)),
            Err(error) => self.missing_nginx = Some(format!("does not start: {error:#}")),
        }
        Ok(())
    }

    async fn start_weir(
        &mut self,
        kind: TargetKind,
        settings: &RunSettings,
        upstreams: &[BenchUpstream],
        tools: usize,
    ) -> Result<()> {
        let [listen, admin] = free_ports()?;
        let config = self.folder.file(&format!("{kind:?}.yaml"));
        fs::write(
            &config,
            weir_config(listen, admin, self.upstream.1, upstreams) + &settings.weir_config_extra,
        )?;
        let args = [Path::new("serve"), Path::new("--config"), &config];
        let (place, binary) = match kind {
            TargetKind::Before => (
                &mut self.before,
                settings
                    .before
                    .as_deref()
                    .context("no weir of before is named")?,
            ),
            TargetKind::Weir | TargetKind::Pipe | TargetKind::Nginx | TargetKind::Direct => {
                (&mut self.weir, settings.weir.as_path())
            }
        };
        // A process inherits the processors of the thread that started it.
        let pinned = settings.weir_core.map(cpu_pinning::pin).transpose()?;
        let process =
            ChildProcess::spawn("weir", binary, args, &self.folder.file(&log_name(kind)))?
                .graceful(settings.graceful);
        drop(pinned);
        let weir = place.insert((process, listen));
        if kind == TargetKind::Weir {
            self.admin_address = Some(admin);
        }
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            weir.0.check()?;
            let seen = timeout(READY_TIMEOUT, tools_listed(self.credential.clone(), listen))
                .await
                .map_err(|_| anyhow!("tools/list is not answered"))?;
            match seen {
                Ok(seen) if seen == tools => return Ok(()),
                seen if Instant::now() > deadline => {
                    return Err(anyhow!(
                        "{tools} tools expected, after {READY_TIMEOUT:?} there is {seen:?}"
                    ));
                }
                _ => sleep(LIST_POLL_INTERVAL).await,
            }
        }
    }

    fn weir_log(&self, kind: TargetKind) -> String {
        log_end(&self.folder, kind)
    }
}

/// The name of this weir's log file.
fn log_name(kind: TargetKind) -> String {
    format!("{kind:?}.log")
}

fn log_end(folder: &TestFolder, kind: TargetKind) -> String {
    let log = fs::read(folder.file(&log_name(kind))).unwrap_or_default();
    let log = String::from_utf8_lossy(&log[log.len().saturating_sub(3000)..]).into_owned();
    if log.is_empty() {
        "(nothing)".to_owned()
    } else {
        log
    }
}

async fn tools_listed(credential: Option<HeaderValue>, addr: SocketAddr) -> Result<usize> {
    let mut client =
        LoadClient::connect_as(credential, addr, &Uri::from_static("/mcp"), Era::Modern).await?;
    Ok(client.names().await?.len())
}

/// The config of weir: these upstreams, all other keys by default.
fn weir_config(
    listen: SocketAddr,
    admin: SocketAddr,
    upstream: SocketAddr,
    upstreams: &[BenchUpstream],
) -> String {
    let mut text = format!("listen: \"{listen}\"\nadmin: {{ listen: \"{admin}\" }}\nupstreams:\n");
    for server in upstreams {
        let connection = server
            .connection
            .clone()
            .unwrap_or_else(|| format!("url: \"{}\"", server.url(upstream)));
        // Writing into a String cannot fail.
        let _ = writeln!(text, "  {}: {{ {connection}, protocol: auto }}", server.id);
    }
    text
}

/// A count of requests, and their seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ServedTime {
    pub(crate) requests: f64,
    pub(crate) seconds: f64,
}

/// Sums all series of the method; no value without a series.
fn served(metrics: &str, method: &str) -> Option<ServedTime> {
    let label = format!("mcp_method_name=\"{method}\"");
    let sum = |name: &str| {
        metrics
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(&label))
            .map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok())
            .collect::<Option<Vec<_>>>()
            .filter(|values| !values.is_empty())
            .map(|values| values.into_iter().sum())
    };
    let requests = sum("mcp_server_operation_duration_seconds_count{")?;
    Some(ServedTime {
        requests,
        seconds: sum("mcp_server_operation_duration_seconds_sum{")?,
    })
}

/// Reads the text of an answer.
async fn read(request: Request<Empty<Bytes>>) -> Result<String> {
    let client = HttpClient::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri = request.uri().clone();
    let response = client.request(request).await?;
    ensure!(
        response.status().is_success(),
        "{uri} answers {}",
        response.status()
    );
    Ok(String::from_utf8(
        response.into_body().collect().await?.to_bytes().into(),
    )?)
}

async fn listening(mut process: ChildProcess) -> Result<(ChildProcess, SocketAddr)> {
    let addr = process.line().await?.parse()?;
    Ok((process, addr))
}

/// Finds two ports that were free a moment ago; held at the same time, so that they differ.
pub(crate) fn free_ports() -> io::Result<[SocketAddr; 2]> {
    let bind = || std::net::TcpListener::bind(("127.0.0.1", 0));
    let listeners = [bind()?, bind()?];
    Ok([listeners[0].local_addr()?, listeners[1].local_addr()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_requests_are_summed_over_series_of_a_method() {
        let metrics = "\
            # TYPE mcp_server_operation_duration_seconds histogram\n\
            mcp_server_operation_duration_seconds_bucket{mcp_method_name=\"tools/list\",le=\"1\"} 3\n\
            mcp_server_operation_duration_seconds_sum{mcp_method_name=\"tools/list\",era=\"modern\"} 0.5\n\
            mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/list\",era=\"modern\"} 3\n\
            mcp_server_operation_duration_seconds_sum{mcp_method_name=\"tools/list\",era=\"legacy\"} 0.25\n\
            mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/list\",era=\"legacy\"} 1\n\
            mcp_server_operation_duration_seconds_sum{mcp_method_name=\"tools/call\"} 7\n\
            mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/call\"} 9\n";
        assert_eq!(
            served(metrics, "tools/list"),
            Some(ServedTime {
                requests: 4.0,
                seconds: 0.75
            })
        );
        assert_eq!(served(metrics, "ping"), None);
    }

    #[test]
    fn the_config_names_every_upstream_by_its_url() {
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut upstreams = BenchUpstream::many(Era::Modern, 1);
        upstreams.push(BenchUpstream {
            index: 7,
            ..BenchUpstream::one("old", Era::Legacy)
        });
        let config = weir_config(addr(1), addr(2), addr(3), &upstreams);
        assert_eq!(
            config,
            "listen: \"127.0.0.1:1\"\nadmin: { listen: \"127.0.0.1:2\" }\nupstreams:\n  \
             u0: { url: \"http://127.0.0.1:3/modern/u/0\", protocol: auto }\n  \
             old: { url: \"http://127.0.0.1:3/legacy/u/7\", protocol: auto }\n"
        );
    }
}
