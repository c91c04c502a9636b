//! A real Prometheus on a free port: its targets, the rules of `deploy/prometheus`, and queries.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde_json::{Value, json};
use weir_testkit::TestFolder;

use super::read;
use crate::harness::{TestProcess, wait_until};

/// A running Prometheus that scrapes every second.
pub struct Prometheus {
    process: TestProcess,
    port: u16,
    folder: TestFolder,
}

/// A value and its labels.
#[derive(Clone, Debug)]
pub struct QuerySample {
    pub labels: Value,
    pub value: f64,
}

impl Prometheus {
    /// Starts it over these addresses, with a past in which all tools were fast. Its alerts are
    /// those of `deploy/prometheus`, but with shorter times before one fires.
    pub fn over(targets: &[String]) -> Self {
        let folder = TestFolder::new("prometheus");
        let (mut hasty, mut alert) = (String::new(), String::new());
        for line in read("deploy/prometheus/alerts.yml").lines() {
            if let Some(name) = line.trim_start().strip_prefix("- alert: ") {
                name.clone_into(&mut alert);
            }
            let line = match alert.as_str() {
                _ if !line.starts_with("        for: ") => line,
                // A busy machine may be late with one scrape.
                "WeirDown" => "        for: 5s",
                _ => "        for: 0s",
            };
            let _ = writeln!(hasty, "{line}");
        }
        let write = |name: &str, text: &str| folder.write(name, text);
        write("alerts.yml", &hasty);
        write(
            "recording.yml",
            &read("deploy/prometheus/recording.yml").replace("    interval: 3m\n", ""),
        );
        write("past.txt", &past());
        promtool(
            &["tsdb", "create-blocks-from", "openmetrics"],
            &[&folder.file("past.txt"), &folder.file("data")],
        );
        write(
            "prometheus.yml",
            &CONFIG.replace("FOLDER", &folder.path().display().to_string()),
        );
        let mut command = Command::new("prometheus");
        command.arg(format!(
            "--config.file={}",
            folder.file("prometheus.yml").display()
        ));
        command.arg(format!(
            "--storage.tsdb.path={}",
            folder.file("data").display()
        ));
        command.args(["--web.listen-address=127.0.0.1:0", "--log.level=warn"]);
        command.arg("--enable-feature=exemplar-storage");
        let mut process = TestProcess::start(command);
        let port = process.listening_port();
        let mut started = Self {
            process,
            port,
            folder,
        };
        started.watch(targets);
        wait_until("Prometheus to be ready", || {
            assert!(
                !started.process.has_exited(),
                "Prometheus (Debian package prometheus): {}",
                started.process.output()
            );
            started
                .asked("GET", "/-/ready", "")
                .ok()
                .filter(|answer| answer.starts_with("HTTP/1.0 200"))
        });
        started
    }

    /// Scrapes these from now on.
    pub fn watch(&self, targets: &[String]) {
        let groups = json!([{ "targets": targets }]);
        let next = self.folder.file("targets.json.next");
        std::fs::write(&next, groups.to_string()).unwrap();
        std::fs::rename(next, self.folder.file("targets.json")).unwrap();
    }

    /// Returns the current result of a query.
    ///
    /// # Panics
    ///
    /// If Prometheus does not accept it.
    pub fn query(&self, query: &str) -> Vec<QuerySample> {
        let answer = self.api("query", &format!("query={}", encoded(query)));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let series = answer["data"]["result"]
            .as_array()
            .unwrap_or_else(|| panic!("{query}: {answer}"));
        series
            .iter()
            .map(|one| QuerySample {
                labels: one["metric"].clone(),
                value: one["value"][1]
                    .as_str()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(f64::NAN),
            })
            .collect()
    }

    /// Returns the results of a query over a time, each second: series with `values` of
    /// `[time, text]`.
    pub fn range(&self, query: &str, begin: f64, end: f64) -> Value {
        let form = format!("query={}&start={begin}&end={end}&step=1", encoded(query));
        self.api("query_range", &form)["data"]["result"].clone()
    }

    /// Returns the exemplars of the series as a list: of each series `seriesLabels` and
    /// `exemplars`.
    pub fn exemplars(&self, query: &str) -> Value {
        let form = format!("query={}&start=0&end=9999999999", encoded(query));
        self.api("query_exemplars", &form)["data"].clone()
    }

    /// Returns the names of the alerts that fire, with their labels.
    pub fn firing(&self) -> Vec<QuerySample> {
        self.query(r#"ALERTS{alertstate="firing"}"#)
    }

    /// Returns the rules as Prometheus has them: each group's, with `health` and `lastError`.
    pub fn rules(&self) -> Value {
        let text = self.asked("GET", "/api/v1/rules", "").unwrap();
        serde_json::from_str::<Value>(body(&text)).unwrap()["data"]["groups"].clone()
    }

    fn api(&self, what: &str, form: &str) -> Value {
        let text = self
            .asked("POST", &format!("/api/v1/{what}"), form)
            .unwrap();
        serde_json::from_str(body(&text)).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Sends a request as HTTP/1.0: the answer ends with the connection, in one piece.
    fn asked(&self, method: &str, path: &str, form: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let length = form.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\n\r\n{form}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

const CONFIG: &str = "
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [FOLDER/recording.yml, FOLDER/alerts.yml]
scrape_configs:
  - job_name: weir
    file_sd_configs: [{ files: [FOLDER/targets.json], refresh_interval: 1s }]
";

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn encoded(text: &str) -> String {
    let mut form = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            form.push(byte.into());
        } else {
            let _ = write!(form, "%{byte:02X}");
        }
    }
    form
}

/// Returns nine days up to yesterday of the recorded series of two tools, at the times that the
/// rules of a week read.
fn past() -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let (day, step) = (24 * 60 * 60, 600);
    let mut text = "# TYPE tool:weir_call_duration_seconds:p95_5m gauge\n".to_owned();
    for (upstream, tool) in [("search", "query"), ("files", "read")] {
        for time in
            ((now - 9 * day) / step..(now - day / 2) / step).map(|step_number| step_number * step)
        {
            let labels = format!(r#"job="weir",upstream="{upstream}",gen_ai_tool_name="{tool}""#);
            let _ = writeln!(
                text,
                "tool:weir_call_duration_seconds:p95_5m{{{labels}}} 0.05 {time}"
            );
        }
    }
    text + "# EOF\n"
}

/// Runs promtool, which comes with Prometheus; it must succeed.
pub fn promtool(arguments: &[&str], files: &[&Path]) {
    let output = Command::new("promtool")
        .args(arguments)
        .args(files)
        .output();
    let output =
        output.unwrap_or_else(|error| panic!("promtool (Debian package prometheus): {error}"));
    assert!(output.status.success(), "{}", super::whole_output(&output));
}
