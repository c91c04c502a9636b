//! Requests whose client disconnects before the answer begins: their labels in the metrics and the
//! log.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Weir, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_an_answer_keeps_its_labels_and_has_no_status() {
    let upstream = MockServer::modern()
        .tool("silent", MockBehaviour::hang())
        .start()
        .await;
    let config = json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "log": { "format": "json" },
    });
    let weir = Weir::with_log_filter(config, "weir_layers=debug");
    weir.wait_until_listed("/mcp", &["one__silent"]);
    for (count, (revision, era)) in [
        (Revision::MODERN, "modern"),
        (Revision::NEWEST_LEGACY, "legacy"),
    ]
    .into_iter()
    .enumerate()
    {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let calling =
            tokio::spawn(async move { client.start_call("one__silent", json!({}), None).await });
        upstream
            .wait_until("it runs", |server| server.executions("silent") == count + 1)
            .await;
        calling.abort();
        let labels = [
            r#"endpoint="/mcp""#,
            r#"mcp_method_name="tools/call""#,
            &format!(r#"era="{era}""#),
            r#"outcome="cancelled""#,
        ];
        wait_until("the request to be counted under its labels", || {
            let counted = weir.metric("mcp_server_operation_duration_seconds_count", &labels);
            (counted > 0.5).then_some(())
        });
        let line = wait_until("the log line of the request", || {
            let said = weir.process.output();
            let mut lines = said
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| {
                line["message"] == "request completed"
                    && line["outcome"] == "cancelled"
                    && line["era"] == era
            })
        });
        assert_eq!(line["method"], "tools/call", "{line}");
        assert!(line["ms"].is_u64(), "{line}");
        assert!(line.get("status").is_none(), "{line}");
    }
    let text = weir.get_admin_page("/metrics");
    let without_status: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("http_server_request_duration_seconds_count{"))
        .filter(|line| !line.contains("http_response_status_code"))
        .collect();
    let [only] = without_status[..] else {
        panic!("{without_status:?}")
    };
    assert!(
        only.contains(r#"http_route="/mcp""#) && only.ends_with(" 2"),
        "{only}"
    );
    let none = weir.metric(
        "mcp_server_operation_duration_seconds_count",
        &[r#"mcp_method_name="none""#, r#"outcome="cancelled""#],
    );
    assert!(none < 0.5, "{text}");
}
