//! A server and a client on the official Rust SDK (`rmcp`), as a foreign peer of weir.
//!
//! `rmcp-peer serve --era modern|legacy [--stdio]` prints `listening <url>` once it serves over
//! HTTP, and so does `rmcp-peer conformance [--completions]`, which speaks both eras. `rmcp-peer
//! client URL SCENARIO [TOOL] [JSON] [--era modern|legacy|auto] [--trigger TOOL] [--level L]
//! [--bearer TOKEN] [--asks]` prints one JSON object a line for each event, like the drivers of the
//! other SDKs.

#![allow(
    clippy::print_stdout,
    reason = "a program that prints one line for each event"
)]
#![expect(
    deprecated,
    reason = "log messages are deprecated in the newest revision, and still part of it"
)]

mod client;
mod conformance;
mod server;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words) = split(words);
    let done = match words.first().map(String::as_str) {
        Some("serve") => server::serve(&flags).await,
        Some("conformance") => conformance::serve(&flags).await,
        Some("client") => client::run(&words[1..], &flags).await,
        _ => {
            eprintln!("usage: rmcp-peer serve | conformance | client URL SCENARIO [TOOL] [JSON]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!(
                "{}",
                serde_json::json!({ "event": "error", "message": format!("{error:#}") })
            );
            ExitCode::FAILURE
        }
    }
}

/// The `--name value` pairs; `--stdio`, `--asks` and `--completions` have no value.
#[derive(Default)]
struct PeerFlags(Vec<(String, String)>);

impl PeerFlags {
    fn text<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        self.0
            .iter()
            .find(|(flag, _)| flag == name)
            .map_or(otherwise, |(_, value)| value)
    }

    fn maybe(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(flag, _)| flag == name)
            .map(|(_, value)| value.as_str())
    }
}

fn split(words: Vec<String>) -> (PeerFlags, Vec<String>) {
    let mut flags = PeerFlags::default();
    let mut rest = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--") {
            Some(alone @ ("stdio" | "asks" | "completions")) => {
                flags.0.push((alone.to_owned(), String::new()))
            }
            Some(name) => flags
                .0
                .push((name.to_owned(), words.next().unwrap_or_default())),
            None => rest.push(word),
        }
    }
    (flags, rest)
}
