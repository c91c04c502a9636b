//! Checks of the machine for one config: ports, file descriptors, file permissions, versions of
//! programs.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::sys::resource::{Resource, getrlimit};
use tokio::process::Command;
use weir_config::Config;
use weir_upstream::TransportSettings;

use crate::doctor::certificate;
use crate::doctor::machine_finding::{FindingGrade, MachineFinding, finding};

/// Descriptors that weir needs beside those of its clients: upstreams, files, operators.
const OTHER_DESCRIPTORS: u64 = 1024;
/// The time limit of `PROGRAM --version`.
const VERSION_TIME: Duration = Duration::from_secs(10);

/// The variables of proxies, in both spellings.
const PROXY_VARIABLES: [&str; 6] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "all_proxy",
    "https_proxy",
    "http_proxy",
];

/// Programs that run MCP servers, and the oldest version that current MCP SDKs support.
const RUNTIMES: [ServerRuntime; 4] = [
    ServerRuntime {
        program: "node",
        needed_by: &["node", "npx", "npm", "pnpm"],
        oldest: Some((18, 0)),
    },
    ServerRuntime {
        program: "python3",
        needed_by: &["python", "python3", "pipx"],
        oldest: Some((3, 10)),
    },
    ServerRuntime {
        program: "uvx",
        needed_by: &["uv", "uvx"],
        oldest: None,
    },
    ServerRuntime {
        program: "docker",
        needed_by: &["docker"],
        oldest: None,
    },
];

struct ServerRuntime {
    program: &'static str,
    needed_by: &'static [&'static str],
    oldest: Option<(u32, u32)>,
}

/// Checks the machine for this config.
pub(super) async fn examine(config: &Config) -> Vec<MachineFinding> {
    let mut found = Vec::new();
    found.extend(listeners(config).map(|(whose, address)| port(whose, address)));
    found.push(descriptors(config));
    if let Some(tls) = &config.front.tls {
        let files = [
            file("certificate", &tls.cert),
            private_file("key of the certificate", &tls.key),
        ];
        if files.iter().all(|file| file.grade != FindingGrade::Error) {
            found.push(certificate::examine(&tls.cert, SystemTime::now()));
        }
        found.extend(files);
    }
    if let Some(file) = config.audit.as_ref().and_then(|audit| audit.file.as_ref()) {
        found.push(writable_folder("audit", &file.path));
    }
    found.extend(runtimes(config).await);
    found.extend(match &config.forward_proxy {
        Some(proxy) => Some(finding(
            FindingGrade::Good,
            format!("weir's own requests go through the forward proxy {proxy}"),
        )),
        None => {
            unused_proxies(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        }
    });
    found
}

/// Warns of variables of proxies: on a machine without another way out, all of weir's own requests
/// would fail.
fn unused_proxies(is_set: impl Fn(&str) -> bool) -> Option<MachineFinding> {
    let set: Vec<&str> = PROXY_VARIABLES
        .into_iter()
        .filter(|name| is_set(name))
        .collect();
    // `environment` does not read the others.
    let remedy = if set
        .iter()
        .all(|name| name.eq_ignore_ascii_case("HTTP_PROXY"))
    {
        "forward_proxy: { url: http://host:port }"
    } else {
        "forward_proxy: environment"
    };
    (!set.is_empty()).then(|| {
        let text = format!(
            "weir's own requests do not use the proxy of {}: if upstreams with a `url`, issuers and collectors are reachable through it \
             alone, write `{remedy}`",
            set.join(", ")
        );
        finding(FindingGrade::Warning, text)
    })
}

/// Returns the addresses that weir listens at, each with its clients.
fn listeners(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let operators = config.admin.as_ref().map(|admin| admin.listen);
    let replicas = config.cluster.as_ref().map(|cluster| cluster.listen);
    [
        Some(("clients", config.front.listen)),
        operators.map(|address| ("operators", address)),
        replicas.map(|address| ("other replicas", address)),
    ]
    .into_iter()
    .flatten()
}

/// Checks that an address can be bound.
fn port(whose: &str, address: SocketAddr) -> MachineFinding {
    match TcpListener::bind(address) {
        Ok(_) => finding(FindingGrade::Good, format!("{address} is free for {whose}")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => finding(
            FindingGrade::Warning,
            format!(
                "{address} for {whose} is in use: weir runs already, or another program must be stopped"
            ),
        ),
        Err(error) => finding(
            FindingGrade::Error,
            format!("weir cannot listen at {address} for {whose}: {error}"),
        ),
    }
}

fn descriptors(config: &Config) -> MachineFinding {
    let wanted = config.front.limits.listener.connections as u64 + OTHER_DESCRIPTORS;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, most)) if most < wanted => finding(
            FindingGrade::Warning,
            format!(
                "a process may have {most} file descriptors; {} connections (`limits.connections`) need {wanted}: raise \
                 `LimitNOFILE` or `ulimit -n`, or lower the limit",
                config.front.limits.listener.connections
            ),
        ),
        Ok((_, most)) => finding(
            FindingGrade::Good,
            format!("a process may have {most} file descriptors"),
        ),
        Err(error) => finding(
            FindingGrade::Warning,
            format!("the limit of file descriptors cannot be read: {error}"),
        ),
    }
}

/// Checks that a file can be read.
fn file(what: &str, path: &Path) -> MachineFinding {
    match std::fs::File::open(path) {
        Ok(_) => finding(
            FindingGrade::Good,
            format!("the {what} {} can be read", path.display()),
        ),
        Err(error) => finding(
            FindingGrade::Error,
            format!("the {what} {} cannot be read: {error}", path.display()),
        ),
    }
}

/// Checks that a file can be read, and not by every user.
fn private_file(what: &str, path: &Path) -> MachineFinding {
    let read = file(what, path);
    let mode = path
        .metadata()
        .map(|metadata| metadata.permissions().mode())
        .unwrap_or_default();
    if read.grade == FindingGrade::Good && mode & 0o004 != 0 {
        let text = format!(
            "the {what} {} can be read by every user: chmod o-r {0}",
            path.display()
        );
        return finding(FindingGrade::Warning, text);
    }
    read
}

/// Checks that the folder of a file can be written to.
fn writable_folder(what: &str, path: &Path) -> MachineFinding {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK) {
        Ok(()) => finding(
            FindingGrade::Good,
            format!(
                "the folder of the {what}, {}, can be written to",
                folder.display()
            ),
        ),
        Err(error) => finding(
            FindingGrade::Error,
            format!(
                "the folder of the {what}, {}, cannot be written to: {error}",
                folder.display()
            ),
        ),
    }
}

/// Checks the versions of the programs that run the config's servers.
async fn runtimes(config: &Config) -> Vec<MachineFinding> {
    let commands: BTreeSet<&str> = config
        .upstreams
        .iter()
        .filter_map(|plan| match &plan.settings.transport {
            TransportSettings::Stdio(stdio) => stdio.command.rsplit('/').next(),
            TransportSettings::Http(_) => None,
        })
        .collect();
    let needed = RUNTIMES.iter().filter(|runtime| {
        runtime
            .needed_by
            .iter()
            .any(|command| commands.contains(command))
    });
    futures_util::future::join_all(needed.map(version)).await
}

async fn version(runtime: &ServerRuntime) -> MachineFinding {
    let ServerRuntime {
        program, oldest, ..
    } = runtime;
    let output = Command::new(program)
        .arg("--version")
        .kill_on_drop(true)
        .output();
    let shown = match tokio::time::timeout(VERSION_TIME, output).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
            .trim()
            .to_owned(),
        Ok(Err(error)) => {
            return finding(
                FindingGrade::Error,
                format!("`{program}` cannot be run: {error}; install it"),
            );
        }
        Err(_) => {
            return finding(
                FindingGrade::Warning,
                format!("`{program} --version` did not finish"),
            );
        }
    };
    let shown: String =
        weir_core::log_text::sanitize_text(shown.lines().next().unwrap_or_default(), 80);
    match (oldest, parsed(&shown)) {
        (Some((major, minor)), Some(own)) if own < (*major, *minor) => finding(
            FindingGrade::Warning,
            format!(
                "{program} reports {shown}; current servers need {major}.{minor} or later: install a newer one"
            ),
        ),
        _ => finding(FindingGrade::Good, format!("{program}: {shown}")),
    }
}

/// Returns major and minor number of the first word that has them, such as `v22.1.0`.
fn parsed(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.trim_start_matches('v').split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_programs_print_them() {
        assert_eq!(parsed("v22.11.0"), Some((22, 11)));
        assert_eq!(parsed("Python 3.9.2"), Some((3, 9)));
        assert_eq!(parsed("uvx 0.5.1 (abc 2026)"), Some((0, 5)));
        assert_eq!(parsed("no version"), None);
    }

    #[test]
    fn proxies_that_weir_does_not_use_are_named() {
        assert!(unused_proxies(|_| false).is_none());
        let found = unused_proxies(|name| name.eq_ignore_ascii_case("https_proxy"));
        let found = found.expect("two variables are set");
        assert_eq!(found.grade, FindingGrade::Warning);
        assert!(
            found.text.contains("HTTPS_PROXY, https_proxy")
                && found.text.contains("`forward_proxy: environment`"),
            "{}",
            found.text
        );
        let found = unused_proxies(|name| name == "HTTP_PROXY");
        let found = found.expect("a variable is set");
        assert!(found.text.contains("{ url:"), "{}", found.text);
    }

    #[test]
    fn every_listener_of_a_config_is_examined() {
        let config = super::super::tests::config(
            "{ listen: \"127.0.0.1:1\", admin: { listen: \"127.0.0.1:2\" }, store: \"redis://127.0.0.1:4\", \
             keys: [{ id: 1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8 }], \
             cluster: { listen: \"127.0.0.1:3\", advertise: \"127.0.0.1:3\" }, upstreams: {} }",
        );
        let found: Vec<_> = listeners(&config)
            .map(|(whose, address)| (whose, address.port()))
            .collect();
        assert_eq!(
            found,
            [("clients", 1), ("operators", 2), ("other replicas", 3)]
        );
    }

    #[test]
    fn port_check_warns_if_in_use_and_fails_if_not_bindable() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("it is bound");
        assert_eq!(port("clients", address).grade, FindingGrade::Warning);
        assert_eq!(
            port("clients", SocketAddr::from(([192, 0, 2, 1], 80))).grade,
            FindingGrade::Error,
            "no address of this machine"
        );
        assert_eq!(
            port("clients", SocketAddr::from(([127, 0, 0, 1], 0))).grade,
            FindingGrade::Good
        );
    }
}
