//! Collectors: one that reads with the official types, one that keeps the raw requests, and one
//! that never answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::harness::{TestProcess, peers, wait_until};

/// A collector on the official Python types, as a process.
pub struct TypedCollector {
    pub process: TestProcess,
    grpc: String,
    http: String,
}

impl TypedCollector {
    pub fn start(flags: &[&str]) -> Self {
        let python = peers().join("python");
        let mut command = Command::new(python.join(".venv-otlp/bin/python"));
        command.arg(python.join("otlp_receiver.py")).args(flags);
        let mut process = TestProcess::start(command);
        let (grpc, http) = (
            process.wait_for_line("grpc "),
            process.wait_for_line("http "),
        );
        Self {
            process,
            grpc,
            http,
        }
    }

    pub fn url(&self, protocol: &str) -> &str {
        if protocol == "grpc" {
            &self.grpc
        } else {
            &self.http
        }
    }

    /// Returns the requests of a signal so far.
    pub fn requests(&self, signal: &str) -> Vec<Value> {
        let said = self.process.output();
        let all = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|request| request["signal"] == signal).collect()
    }

    /// Returns the spans so far.
    pub fn spans(&self) -> Vec<Value> {
        let of = |request: &Value| {
            request["message"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
                .as_array()
                .cloned()
        };
        self.requests("traces")
            .iter()
            .flat_map(|request| of(request).unwrap())
            .collect()
    }

    /// Returns the newest points of an instrument, once some of them fit.
    pub fn points(&self, name: &str, kind: &str, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        wait_until(name, || {
            let last = self.requests("metrics").pop()?;
            let metrics = last["message"]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
                .as_array()?
                .clone();
            let own = metrics.into_iter().find(|metric| metric["name"] == name)?;
            let points: Vec<Value> = own[kind]["dataPoints"]
                .as_array()?
                .iter()
                .filter(|p| fits(p))
                .cloned()
                .collect();
            (!points.is_empty()).then_some(points)
        })
    }
}

/// Returns an attribute of a span, a point or a resource, as text.
pub fn attribute(of: &Value, name: &str) -> Option<String> {
    let own = of["attributes"]
        .as_array()?
        .iter()
        .find(|pair| pair["key"] == name)?;
    let value = &own["value"];
    value["stringValue"]
        .as_str()
        .or(value["intValue"].as_str())
        .map(str::to_owned)
}

/// A collector of HTTP in this process that keeps the raw requests. It ends with the test.
#[derive(Clone)]
pub struct RawCollector {
    url: String,
    got: Arc<Mutex<Vec<u8>>>,
}

impl RawCollector {
    pub fn start() -> Self {
        Self::serve(true)
    }

    /// Starts a collector that accepts connections and never answers.
    pub fn silent() -> Self {
        Self::serve(false)
    }

    fn serve(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::<Mutex<Vec<u8>>>::default();
        let kept = got.clone();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if answers {
                    let kept = kept.clone();
                    std::thread::spawn(move || converse(stream, &kept));
                } else {
                    held.push(stream);
                }
            }
        });
        Self { url, got }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns all bytes of all bodies so far, as text: Protocol Buffers write texts verbatim.
    pub fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock()).into_owned()
    }
}

fn converse(stream: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        kept.lock().extend(body);
        if reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}
