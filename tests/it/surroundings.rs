//! Unusual machines: without a writable disk, with a far-off year, or with another language.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use crate::admin::Operator;
use crate::audit::{Folder, of_kind, whole};
use crate::auth::faketime;
use crate::harness::{Checked, Weir};

const HUGE: usize = 3_000_000;

/// Checks that clients of both eras, each by its newest revision, list, call and get a result
/// larger than any buffer.
async fn serves(weir: &Weir) {
    for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
        let client = Checked::open(&weir.url("/mcp"), revision).await;
        assert!(client.names().await.contains(&"one__echo".to_owned()));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_where_nothing_can_be_written_weir_serves_reloads_and_ends() {
    let one = upstream().await;
    let config = |upstreams: Value| json!({ "upstreams": upstreams, "audit": { "file": { "path": "/dev/full" } } });
    // Every write to a file fails, as on a full or read-only disk; and there is no folder for
    // temporary files.
    let bare =
        "trap '' XFSZ; ulimit -f 0; cd /; TMPDIR=/nonexistent HOME=/nonexistent exec \"$0\" \"$@\"";
    let mut weir = Weir::within(
        &["sh", "-c", bare],
        config(json!({ "one": { "url": one.url() } })),
    );
    weir.until_listed("/mcp", &["one__echo"]);
    serves(&weir).await;
    weir.rewrite(config(
        json!({ "one": { "url": one.url() }, "two": { "url": one.url() } }),
    ));
    weir.until_listed("/mcp", &["two__echo"]);
    serves(&weir).await;
    assert!(weir.admin("/metrics").contains("weir_audit_failing 1"));
    assert!(weir.admin("/").contains("upstreams up"));
    weir.process.signal("TERM");
    assert_eq!(weir.process.ended(), Some(0), "{}", weir.process.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g15_neither_zone_nor_language_nor_a_far_year_change_anything() {
    let Some(library) = faketime() else { return };
    let one = upstream().await;
    // In the middle of the second before a leap second, before 32 bits are full, and before 33 are.
    for (zone, language, moment, year) in [
        (
            "Pacific/Kiritimati",
            "tr_TR.UTF-8",
            "2017-01-01 13:59:58",
            "2016-12-31T23:59:5",
        ),
        (
            "America/St_Johns",
            "ar_SA.UTF-8",
            "2038-01-18 23:44:06",
            "2038-01-19T03:14:",
        ),
        ("UTC", "C", "2106-02-07 06:28:14", "2106-02-07T06:28:"),
    ] {
        let folder = Folder::new("far-year");
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
        let mut weir = Weir::within(
            &wrapper,
            json!({ "upstreams": { "one": { "url": one.url() } }, "audit": audit }),
        );
        weir.until_listed("/mcp", &["one__echo"]);
        serves(&weir).await;
        let started = Operator::of(&weir).see("/admin/config").await["started"].clone();
        assert!(
            started.as_str().unwrap().starts_with(&year[..10]),
            "{zone}: {started}"
        );
        weir.process.signal("TERM");
        assert_eq!(weir.process.ended(), Some(0), "{}", weir.process.said());
        let first = of_kind(&folder.file(), "started").remove(0)["time"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            first.starts_with(year) && first.ends_with('Z'),
            "{zone}: {first}"
        );
        assert_eq!(of_kind(&folder.file(), "call").len(), 4);
        whole(&[&folder.file()]);
    }
}
