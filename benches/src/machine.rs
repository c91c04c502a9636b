//! The machine and build of a measurement.

use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

/// File descriptors that a process keeps for itself: its standard streams, listeners, upstream
/// connections, logs.
const RESERVED_FILES: usize = 600;

/// Finds a program on PATH, and then in further folders.
pub(crate) fn find_program(name: &str, further: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(further.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// The machine and the build a run was made on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MachineFacts {
    /// Logical processors this process may use.
    pub(crate) cores: usize,
    /// The processor's name, from `/proc/cpuinfo` if it has one.
    pub(crate) cpu: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// Open files one process may have.
    pub(crate) open_files: usize,
    /// The commit of the source tree this runs in, with `+` if it has changes; `unknown` outside a
    /// tree.
    pub(crate) commit: String,
    /// The folder of the executable, which cargo names after the profile.
    pub(crate) build: String,
    /// True if the load generator itself was built without optimisation: such numbers have no
    /// meaning.
    pub(crate) debug_build: bool,
    /// The kernel's setting of transparent huge pages, which resident memory depends on.
    pub(crate) huge_pages: String,
    /// Variables that change how the processes of the run allocate and how many threads they have.
    pub(crate) environment: BTreeMap<String, String>,
    /// The load average of the minute before the run: other work of the machine.
    pub(crate) load_before: f64,
    /// Seconds since 1970.
    pub(crate) at: u64,
}

impl MachineFacts {
    /// Reads the facts from `/proc` and `git`; `commit` overrides the commit from git.
    pub(crate) fn read(commit: Option<String>) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu_name(),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            open_files: open_files(),
            commit: commit.unwrap_or_else(git_commit),
            build: build_folder(),
            debug_build: cfg!(debug_assertions),
            huge_pages: huge_pages(),
            environment: environment(),
            load_before: load(),
            at: unix_micros() / 1_000_000,
        }
    }

    /// The count of clients' connections that one process can hold beside its own files. weir keeps
    /// a sixteenth for connections to upstreams (docs/limits.md, "File descriptors").
    pub(crate) const fn connections(&self) -> usize {
        let free = self.open_files.saturating_sub(RESERVED_FILES);
        free - free / 16
    }
}

/// Microseconds since 1970: the clock that all processes of a run share.
pub(crate) fn unix_micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The soft limit of open files, as `prlimit` shows it; 1024 if it cannot be read.
fn open_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    limits
        .lines()
        .find_map(|line| {
            line.strip_prefix("Max open files")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(1024)
}

fn load() -> f64 {
    let word = read_line("/proc/loadavg")
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    word.unwrap_or(0.0)
}

fn cpu_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name"));
    name.and_then(|line| line.split(':').nth(1))
        .unwrap_or("unknown")
        .trim()
        .to_owned()
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The word in brackets, as in `always [madvise] never`.
fn huge_pages() -> String {
    let text = read_line("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or_else(|| "unknown".to_owned(), |(word, _)| word.to_owned())
}

fn environment() -> BTreeMap<String, String> {
    let matters = |name: &String| name.starts_with("MIMALLOC_") || name == "TOKIO_WORKER_THREADS";
    // A name or value that is not text is none of these.
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os()
        .filter_map(text)
        .filter(|(name, _)| matters(name))
        .collect()
}

fn git_commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|changes| !changes.is_empty());
    if dirty { commit + "+" } else { commit }
}

fn build_folder() -> String {
    let exe = std::env::current_exe().unwrap_or_default();
    let folder = exe.parent().and_then(Path::file_name);
    folder.map_or_else(
        || "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let machine = MachineFacts::read(Some("abc".to_owned()));
        assert!(machine.cores >= 1);
        assert!(machine.open_files >= 64);
        assert_eq!(machine.commit, "abc");
        assert!(machine.connections() < machine.open_files);
    }
}
