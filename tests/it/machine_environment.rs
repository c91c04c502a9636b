//! Unusual machines: without a writable disk, with a far-off year, or with another language.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use crate::admin::OperatorClient;
use crate::audit::{AuditFolder, assert_chain_whole, of_kind};
use crate::auth::faketime;
use crate::harness::{CheckedClient, Weir};

const HUGE: usize = 3_000_000;

/// Checks that clients of both eras, each by its newest revision, list, call and get a result
/// larger than any buffer.
async fn serves(weir: &Weir) {
    for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        assert!(
            client
                .list_tool_names()
                .await
                .contains(&"one__echo".to_owned())
        );
        assert_eq!(
            client.call("one__echo", json!({ "n": 1 })).await.text(),
            r#"{"n":1}"#
        );
        assert!(client.call("one__huge", json!({})).await.text().len() >= HUGE);
    }
}

async fn upstream() -> MockServer {
    MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .tool("huge", MockBehaviour::huge(HUGE))
        .start()
        .await
}

// Proves G11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_serves_reloads_and_ends_without_a_writable_disk() {
    let one = upstream().await;
    let config = |upstreams: Value| json!({ "upstreams": upstreams, "audit": { "file": { "path": "/dev/full" } } });
    // Every write to a file fails, as on a full or read-only disk; and there is no folder for
    // temporary files.
    let bare =
        "trap '' XFSZ; ulimit -f 0; cd /; TMPDIR=/nonexistent HOME=/nonexistent exec \"$0\" \"$@\"";
    let mut weir = Weir::start_with_wrapper(
        &["sh", "-c", bare],
        config(json!({ "one": { "url": one.url() } })),
    );
    weir.wait_until_listed("/mcp", &["one__echo"]);
    serves(&weir).await;
    weir.rewrite_config(config(
        json!({ "one": { "url": one.url() }, "two": { "url": one.url() } }),
    ));
    weir.wait_until_listed("/mcp", &["two__echo"]);
    serves(&weir).await;
    assert!(
        weir.get_admin_page("/metrics")
            .contains("weir_audit_failing 1")
    );
    assert!(weir.get_admin_page("/").contains("upstreams up"));
    weir.process.stop_gracefully();
}

// Proves G15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_zone_locale_and_year_have_no_effect() {
    let Some(library) = faketime() else { return };
    let one = upstream().await;
    // In the middle of the second before a leap second, before 32 bits are full, and before 33 are.
    // A slow start of weir may be after it.
    let moments: [(&str, &str, &str, &[&str]); 3] = [
        (
            "Pacific/Kiritimati",
            "tr_TR.UTF-8",
            "2017-01-01 13:59:58",
            &["2016-12-31T23:59:5", "2017-01-01T00:00:"],
        ),
        (
            "America/St_Johns",
            "ar_SA.UTF-8",
            "2038-01-18 23:44:06",
            &["2038-01-19T03:14:"],
        ),
        ("UTC", "C", "2106-02-07 06:28:14", &["2106-02-07T06:28:"]),
    ];
    for (zone, language, moment, times) in moments {
        let folder = AuditFolder::new("far-year");
        let environment = [
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME=@{moment}"),
            format!("TZ={zone}"),
            format!("LC_ALL={language}"),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ];
        let wrapper: Vec<&str> = std::iter::once("env")
            .chain(environment.iter().map(String::as_str))
            .collect();
        let audit = json!({ "file": { "path": folder.file() } });
        let mut weir = Weir::start_with_wrapper(
            &wrapper,
            json!({ "upstreams": { "one": { "url": one.url() } }, "audit": audit }),
        );
        weir.wait_until_listed("/mcp", &["one__echo"]);
        serves(&weir).await;
        let started = OperatorClient::of(&weir).get_json("/admin/config").await["started"].clone();
        let started = started.as_str().unwrap();
        assert!(
            times.iter().any(|time| started.starts_with(&time[..10])),
            "{zone}: {started}"
        );
        weir.process.stop_gracefully();
        let first = of_kind(&folder.file(), "started").remove(0)["time"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            times.iter().any(|time| first.starts_with(time)) && first.ends_with('Z'),
            "{zone}: {first}"
        );
        assert_eq!(of_kind(&folder.file(), "call").len(), 4);
        assert_chain_whole(&[&folder.file()]);
    }
}
