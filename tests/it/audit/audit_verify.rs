//! `weir audit verify` over files that were tampered with, and its exit codes.

use std::path::Path;

use serde_json::json;
use weir_testkit::MockServer;

use super::{AuditFolder, assert_chain_whole, call, client, config, verify};
use crate::harness::Weir;

const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// Returns the lines of a file that a real weir wrote over this many calls.
async fn file(folder: &AuditFolder, calls: usize, audit: serde_json::Value) -> Vec<String> {
    let upstream = MockServer::modern().tools(1).start().await;
    let mut weir = Weir::with_config(config(&upstream, audit));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    for n in 0..calls {
        assert!(call(&client(&weir), json!({ "n": n })).await);
    }
    weir.process.stop_gracefully();
    std::fs::read_to_string(folder.file())
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn write(path: &Path, lines: &[String]) {
    std::fs::write(
        path,
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    )
    .unwrap();
}

// Proves F18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_verify_detects_changed_removed_and_missing_records() {
    let folder = AuditFolder::new("tamper");
    let path = folder.file();
    let lines = file(&folder, 10, json!({ "file": { "path": path } })).await;
    assert!(lines.len() >= 12, "{lines:?}");
    let said = assert_chain_whole(&[&path]);
    let last = said
        .lines()
        .find_map(|line| line.strip_prefix("last: "))
        .unwrap()
        .to_owned();
    let broken = |change: &dyn Fn(&mut Vec<String>), line: usize| {
        let mut lines = lines.clone();
        change(&mut lines);
        write(&path, &lines);
        let (code, text) = verify(&[], &[&path]);
        assert_eq!(code, 1, "{text}");
        assert!(
            text.contains(&format!("audit.jsonl:{line}: ")),
            "line {line}: {text}"
        );
    };
    broken(
        &|lines| lines[5] = lines[5].replace("allowed", "refused"),
        6,
    );
    broken(&|lines| drop(lines.remove(5)), 6);
    broken(&|lines| lines.swap(5, 6), 6);
    broken(&|lines| lines.insert(5, lines[4].clone()), 6);
    broken(&|lines| lines[5].truncate(100), 6);
    broken(&|lines| lines[0] = lines[0].replace("0.", "1."), 1);
    // The end cut off: visible to a reader that kept the last line.
    write(&path, &lines[..lines.len() - 1]);
    assert_eq!(verify(&[], &[&path]).0, 0);
    let (code, text) = verify(&["--expect", &last], &[&path]);
    assert!(code == 1 && text.contains("cut off"), "{text}");
    write(&path, &lines);
    assert_eq!(verify(&["--expect", &last, "--from-start"], &[&path]).0, 0);
    // Its parts, in any order.
    let parts = ["a", "b", "c"].map(|name| folder.0.file(name));
    write(&parts[2], &lines[..3]);
    write(&parts[0], &lines[3..7]);
    write(&parts[1], &lines[7..]);
    assert_chain_whole(&[&parts[0], &parts[1], &parts[2]]);
    assert_eq!(verify(&[], &[&parts[1], &parts[2]]).0, 1, "one is missing");
    assert_eq!(verify(&["--from-start"], &[&parts[0], &parts[1]]).0, 1);
    assert_eq!(verify(&[], &[&folder.0.file("nowhere")]).0, 3);
    std::fs::write(&path, "").unwrap();
    assert_eq!(verify(&[], &[&path]).0, 2);
    assert_eq!(verify(&[], &[]).0, 2);
}

// Proves F18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_file_is_verified_with_its_key_alone() {
    let folder = AuditFolder::new("signed");
    let audit = json!({ "file": { "path": folder.file() }, "key": { "id": 3, "secret": SECRET } });
    let lines = file(&folder, 3, audit).await;
    assert!(
        lines
            .iter()
            .all(|line| line.contains("\"key\":3,") && !line.contains(SECRET))
    );
    let key = format!("3:{SECRET}");
    assert_eq!(verify(&["--key", &key], &[&folder.file()]).0, 0);
    assert_eq!(verify(&[], &[&folder.file()]).0, 1);
    assert_eq!(
        verify(&["--key", &key.replace("AAEC", "AAED")], &[&folder.file()]).0,
        1
    );
    let (code, text) = verify(&["--key", "3:CANARY"], &[&folder.file()]);
    assert!(code == 2 && !text.contains("CANARY"), "{text}");
}
