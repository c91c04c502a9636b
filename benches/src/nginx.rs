//! nginx as a plain reverse proxy in front of the upstream: a yardstick that people know.
//!
//! One location, kept connections on both sides, no access log, a worker for each processor as weir
//! has. It is measured where it is installed; the bench installs none.

use crate::machine::find_program;
use crate::process::ChildProcess;
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The most time until it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of attempts to connect.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The folders of a program for administrators, which need not be on PATH.
const FURTHER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Directives with folders of temporary files, outside of which nginx writes none.
const TEMPORARY: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

/// The path of nginx, if it is installed.
pub(crate) fn program() -> Option<PathBuf> {
    find_program("nginx", &FURTHER_FOLDERS)
}

/// Starts `program` on `listen` with all its files in `folder`, and waits until it listens.
///
/// # Errors
/// It cannot be started, or does not listen.
pub(crate) async fn start(
    program: &Path,
    listen: SocketAddr,
    upstream: SocketAddr,
    folder: &Path,
) -> Result<ChildProcess> {
    fs::create_dir_all(folder)?;
    let config = folder.join("nginx.conf");
    let workers = thread::available_parallelism()?.get();
    fs::write(&config, nginx_config(listen, upstream, folder, workers))?;
    let log = folder.join("nginx.log");
    let args = [Path::new("-p"), folder, Path::new("-c"), &config];
    let mut process = ChildProcess::spawn("nginx", program, args, &log)?.with_workers();
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    while TcpStream::connect(listen).await.is_err() {
        process.check().with_context(|| last_line(&log))?;
        ensure!(Instant::now() < deadline, "nginx does not listen");
        sleep(LISTEN_POLL_INTERVAL).await;
    }
    Ok(process)
}

/// The last line of its log, which has the reason.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("no log").to_owned()
}

/// The config: a proxy without any further feature, whose connections do not end during a run.
fn nginx_config(listen: SocketAddr, upstream: SocketAddr, folder: &Path, workers: usize) -> String {
    let folder = folder.display();
    let mut temporary = String::new();
    for name in TEMPORARY {
        // Writing into a String cannot fail.
        let _ = writeln!(temporary, "    {name}_temp_path \"{folder}/{name}\";");
    }
    format!(
        "daemon off;
worker_processes {workers};
pid \"{folder}/nginx.pid\";
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
{temporary}    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    upstream mcp {{
        server {upstream};
        keepalive 512;
        keepalive_timeout 1h;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://mcp;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_names_both_addresses_and_writes_in_its_folder_alone() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let config = nginx_config(address(1), address(2), Path::new("/folder"), 3);
        for line in [
            "worker_processes 3;",
            "        listen 127.0.0.1:1;",
            "        server 127.0.0.1:2;",
            "    proxy_temp_path \"/folder/proxy\";",
        ] {
            assert!(config.lines().any(|found| found == line), "{config}");
        }
    }
}
