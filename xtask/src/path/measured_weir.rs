//! A weir under callgrind, the upstream behind it, and a client that calls on command.

#![allow(
    clippy::disallowed_methods,
    reason = "there is no runtime here that a sleep could block"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::run::output_of;

/// The most time until weir is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Calls before anything is counted: connections, caches and sessions are those of a weir at work.
const WARM_UP_CALLS: u64 = 300;
/// Calls after the begin of counting that do not count.
const SETTLING_CALLS: u64 = 20;
/// Counted rounds. Timers of weir's own run in some of them; the round with the fewest instructions
/// has the least of that.
const ROUNDS: u32 = 20;

/// A running child, killed when dropped.
struct ToolProcess {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The processes of a measurement.
pub(crate) struct MeasuredWeir {
    folder: PathBuf,
    bench: PathBuf,
    weir: ToolProcess,
    /// Serves until it is dropped.
    _upstream: ToolProcess,
    listen: SocketAddr,
    /// The count of profiles so far, which callgrind numbers.
    profiles: u32,
}

impl MeasuredWeir {
    /// Starts the upstream and weir, with callgrind's counting off, and waits until weir is ready.
    ///
    /// # Errors
    /// A process does not start, or weir does not become ready.
    pub(crate) fn start(weir: &Path, bench: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut upstream = ToolProcess::start("the upstream", Command::new(bench).arg("upstream"))?;
        let upstream_address = upstream.line()?;
        let [listen, admin] = free_ports()?;
        // weir watches the folder of its config, so nothing else may be written there.
        let config_folder = folder.join("config");
        fs::create_dir(&config_folder)?;
        let config = config_folder.join("weir.yaml");
        fs::write(&config, weir_config(listen, admin, &upstream_address))?;
        let log = fs::File::create(folder.join("weir.log"))?;
        let weir = ToolProcess::start(
            "weir",
            Command::new("valgrind")
                .args(["--tool=callgrind", "--instr-atstart=no"])
                .arg(vgdb_prefix(folder))
                .arg(format!(
                    "--callgrind-out-file={}",
                    folder.join("callgrind.out").display()
                ))
                .arg(weir)
                .args(["serve", "--config"])
                .arg(&config)
                .env("TOKIO_WORKER_THREADS", "1")
                .env_remove("RUST_LOG")
                .stderr(log),
        )?;
        let mut started = Self {
            folder: folder.to_owned(),
            bench: bench.to_owned(),
            weir,
            _upstream: upstream,
            listen,
            profiles: 0,
        };
        started.wait_until_ready(admin)?;
        Ok(started)
    }

    /// Counts rounds of `calls` calls of one client to the upstream of an era, and returns the
    /// profile of the quietest round. The eras are `modern` or `legacy`.
    ///
    /// # Errors
    /// A wrong or missing answer, or callgrind cannot be controlled.
    pub(crate) fn count(
        &mut self,
        client: &str,
        upstream: &str,
        calls: u64,
    ) -> anyhow::Result<String> {
        let mut caller = ToolProcess::start(
            "the client",
            Command::new(&self.bench)
                .args(["caller", "--era", client])
                .arg(format!("--addr={}", self.listen))
                .arg(format!("--tool={upstream}__echo")),
        )?;
        caller.call(WARM_UP_CALLS)?;
        self.control(&["instrumentation", "on"])?;
        caller.call(SETTLING_CALLS)?;
        let mut quietest: Option<(u64, String)> = None;
        for _ in 0..ROUNDS {
            // Timers run between rounds, too.
            self.control(&["zero"])?;
            caller.call(calls)?;
            let profile = self.dump()?;
            let total = total(&profile).context("callgrind wrote no summary")?;
            if quietest.as_ref().is_none_or(|(least, _)| total < *least) {
                quietest = Some((total, profile));
            }
        }
        self.control(&["instrumentation", "off"])?;
        let (_, profile) = quietest.context("no rounds")?;
        let file = format!("callgrind.out.{client}-{upstream}");
        fs::write(self.folder.join(file), &profile)?;
        Ok(profile)
    }

    /// Takes the profile since the last one, and begins the next.
    fn dump(&mut self) -> anyhow::Result<String> {
        self.control(&["dump"])?;
        self.profiles += 1;
        let written = self.folder.join(format!("callgrind.out.{}", self.profiles));
        let profile = fs::read_to_string(&written)
            .with_context(|| format!("callgrind wrote no {}", written.display()))?;
        fs::remove_file(written)?;
        Ok(profile)
    }

    /// Sends a command to callgrind.
    fn control(&self, command: &[&str]) -> anyhow::Result<()> {
        let sent = output_of(
            Command::new("vgdb")
                .arg(format!("--pid={}", self.weir.child.id()))
                .arg(vgdb_prefix(&self.folder))
                .args(command),
        );
        sent.with_context(|| format!("callgrind does not take `{}`", command.join(" ")))?;
        Ok(())
    }

    fn wait_until_ready(&mut self, admin: SocketAddr) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let log = self.folder.join("weir.log");
        while !is_ready(admin) {
            if let Some(status) = self.weir.child.try_wait()? {
                bail!("weir ended with {status}: see {}", log.display());
            }
            ensure!(
                Instant::now() < deadline,
                "weir is not ready after {READY_TIMEOUT:?}: see {}",
                log.display()
            );
            sleep(READY_POLL_INTERVAL);
        }
        Ok(())
    }
}

impl ToolProcess {
    fn start(name: &'static str, command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name,
            input: child.stdin.take().context("no standard input")?,
            output: BufReader::new(child.stdout.take().context("no standard output")?),
            child,
        })
    }

    /// Reads the next line of its standard output.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "{} ended", self.name);
        Ok(line.trim_end().to_owned())
    }

    /// Makes a client call, and waits until all calls are answered.
    fn call(&mut self, count: u64) -> anyhow::Result<()> {
        writeln!(self.input, "call {count}")?;
        self.line().map(drop)
    }
}

impl Drop for ToolProcess {
    fn drop(&mut self) {
        // An error means that it had ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The place of the pipes through which callgrind is controlled.
fn vgdb_prefix(folder: &Path) -> String {
    format!("--vgdb-prefix={}", folder.join("vgdb-pipe").display())
}

/// The config of weir: an upstream of each era, all other keys by default.
fn weir_config(listen: SocketAddr, admin: SocketAddr, upstream: &str) -> String {
    let server = |era| format!("  {era}: {{ url: \"http://{upstream}/{era}/u/0\" }}\n");
    let (modern, legacy) = (server("modern"), server("legacy"));
    format!("listen: \"{listen}\"\nadmin: {{ listen: \"{admin}\" }}\nupstreams:\n{modern}{legacy}")
}

/// Reads the count of all instructions in a profile.
fn total(profile: &str) -> Option<u64> {
    let summary = profile
        .lines()
        .find_map(|line| line.strip_prefix("summary: "))?;
    summary.split_whitespace().next()?.parse().ok()
}

fn is_ready(admin: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200 "))
    };
    ask().unwrap_or(false)
}

/// Finds two ports that were free a moment ago; held at the same time, so that they differ.
fn free_ports() -> std::io::Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind(("127.0.0.1", 0));
    let listeners = [bind()?, bind()?];
    Ok([listeners[0].local_addr()?, listeners[1].local_addr()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_first_count_of_the_summary() {
        assert_eq!(total("events: Ir\nsummary: 42 7\nfn=f\n"), Some(42));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn the_config_has_an_upstream_of_each_era() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(
            weir_config(address(1), address(2), "127.0.0.1:3"),
            "listen: \"127.0.0.1:1\"\nadmin: { listen: \"127.0.0.1:2\" }\nupstreams:\n  \
             modern: { url: \"http://127.0.0.1:3/modern/u/0\" }\n  \
             legacy: { url: \"http://127.0.0.1:3/legacy/u/0\" }\n"
        );
    }
}
