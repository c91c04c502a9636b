//! The records on disk after weir is killed in the middle of its work.

use std::collections::HashSet;

use serde_json::json;
use weir_testkit::MockServer;

use super::{AuditFolder, assert_chain_whole, call, client, config, of_kind};
use crate::harness::{Weir, wait_until};

/// Makes calls until weir is killed under them; returns the number of answered ones.
async fn answered(weir: &Weir, calls: usize) -> usize {
    let clients = (0..8).map(|_| client(weir)).collect::<Vec<_>>();
    let each = calls / clients.len();
    let work = clients.into_iter().map(|client| {
        tokio::spawn(async move {
            let mut well = 0;
            for n in 0..each {
                well += usize::from(call(&client, json!({ "n": n })).await);
            }
            well
        })
    });
    let mut well = 0;
    for task in work.collect::<Vec<_>>() {
        well += task.await.unwrap();
    }
    well
}

async fn killed_again_and_again(rounds: usize, calls: usize) {
    let folder = AuditFolder::new(&format!("kill-{calls}"));
    let file = folder.file();
    let upstream = MockServer::modern().tools(1).start().await;
    let config = config(
        &upstream,
        json!({ "file": { "path": file, "rotate": { "size": "1GiB" } }, "sync": "10ms" }),
    );
    let mut made = 0;
    for round in 0..rounds {
        let weir = Weir::with_config(config.clone());
        weir.wait_until_listed("/mcp", &["one__tool_0000"]);
        made += answered(&weir, calls).await;
        // The last of them reach the disk.
        wait_until("the records", || {
            (of_kind(&file, "call").len() >= made).then_some(())
        });
        // weir is killed in the middle of further calls.
        let clients = [client(&weir), client(&weir)];
        let busy = clients.map(|client| {
            tokio::spawn(async move {
                let mut well = 0;
                while call(&client, json!({})).await {
                    well += 1;
                }
                well
            })
        });
        wait_until("calls under way", || {
            (of_kind(&file, "call").len() > made + 20).then_some(())
        });
        weir.process.signal("KILL");
        drop(weir);
        for task in busy {
            made += task.await.unwrap();
        }
        // At most the records are missing that were in the queue or in the kernel's buffers when it
        // was killed.
        let kept = of_kind(&file, "call").len();
        println!("round {round}: {made} calls answered, {kept} on record");
        assert!(kept + 500 > made, "{kept} of {made}");
        made = kept;
    }
    let last = Weir::with_config(config);
    drop(last);
    println!("{}", assert_chain_whole(&[&file]));
    let calls = of_kind(&file, "call");
    let requests: HashSet<String> = calls
        .iter()
        .map(|record| record["request"].to_string())
        .collect();
    assert_eq!(requests.len(), calls.len(), "each has exactly one");
    for record in &calls {
        assert_eq!(
            (&record["upstream"], &record["native"]),
            (&json!("one"), &json!("tool_0000"))
        );
        assert_eq!(
            (&record["decision"], &record["tool"]),
            (&json!("allowed"), &json!("one__tool_0000"))
        );
        assert!(
            record["outcome"].is_string()
                && record["took_ms"].is_number()
                && record["bytes"].is_number()
        );
        assert_eq!(record["arguments"]["sha256"].as_str().unwrap().len(), 64);
    }
    let started = of_kind(&file, "started");
    assert_eq!(started.len(), rounds + 1);
    assert!(
        started[1..].iter().all(|record| record["unclean"] == true),
        "G10: the gap is on record"
    );
}

// Proves F18, G10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chain_holds_however_often_weir_is_killed() {
    killed_again_and_again(2, 2000).await;
}

// Proves F18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn the_chain_holds_over_100_000_calls_and_kills() {
    killed_again_and_again(5, 20_000).await;
}
