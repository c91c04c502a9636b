//! The audit of a real weir: killed, without disk space, unread, tampered with, and verified.

mod audit_verify;
mod full_disk;
mod killed_process;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weir_testkit::{MockServer, RawClient, TestFolder};

use crate::harness::{Weir, weir_binary};

/// A folder for audit records.
pub struct AuditFolder(pub TestFolder);

impl AuditFolder {
    pub fn new(name: &str) -> Self {
        Self(TestFolder::in_memory(name))
    }

    pub fn file(&self) -> PathBuf {
        self.0.file("audit.jsonl")
    }
}

/// Returns a config with one upstream, `one`.
pub fn config(upstream: &MockServer, audit: Value) -> Value {
    let mut config = json!({ "upstreams": { "one": { "url": upstream.url() } } });
    config["audit"] = audit;
    config
}

pub fn client(weir: &Weir) -> RawClient {
    RawClient::new(&weir.url("/mcp")).modern()
}

/// Makes a call; returns if it succeeded.
pub async fn call(client: &RawClient, arguments: Value) -> bool {
    let answer = client.call("one__tool_0000", arguments).await;
    answer.is_ok_and(|answer| {
        answer.status.is_success()
            && answer.last()["result"]["isError"] != json!(true)
            && answer.last().get("error").is_none()
    })
}

/// Returns the records of a file; lines that are not JSON are left out.
pub fn records(file: &Path) -> Vec<Value> {
    let bytes = std::fs::read(file).unwrap();
    bytes
        .split(|b| *b == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

pub fn of_kind(file: &Path, kind: &str) -> Vec<Value> {
    records(file)
        .into_iter()
        .filter(|record| record["kind"] == kind)
        .collect()
}

/// Runs `weir audit verify`; returns its exit code and its output.
pub fn verify(arguments: &[&str], files: &[&Path]) -> (i32, String) {
    let output = Command::new(weir_binary())
        .args(["audit", "verify"])
        .args(arguments)
        .args(files)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

/// Asserts that the chain of these files is whole; returns the output of `verify`.
pub fn assert_chain_whole(files: &[&Path]) -> String {
    let (code, text) = verify(&[], files);
    assert_eq!(code, 0, "{text}");
    text
}
