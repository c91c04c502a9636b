//! A trace that a client began goes on at the server, one span further.

use serde_json::{Value, json};

use super::{BOTH, both_eras};
use crate::harness::{CheckedClient, Weir};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Returns the trace and the span of a `traceparent` of version 00 without the sampled flag: weir
/// decides if a trace is exported.
fn parts(parent: &str) -> (&str, &str) {
    let parts: Vec<_> = parent.split('-').collect();
    assert_eq!(
        (parts.len(), parts[0], parts[3]),
        (4, "00", "00"),
        "{parent}"
    );
    assert!(
        parts[2].len() == 16 && parts[2].bytes().any(|byte| byte != b'0'),
        "{parent}"
    );
    (parts[1], parts[2])
}

// Proves R139, F17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_of_headers_and_of_meta_go_on_upstream_with_a_span_of_weirs_own_and_baggage_where_it_may()
 {
    let parent = format!("00-{TRACE}-{SPAN}-01");
    for (era, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let url = upstream.url();
        let weir = Weir::with_upstreams(
            json!({ "one": { "url": url, "baggage": true }, "two": { "url": url } }),
        );
        weir.wait_until_listed("/mcp", &["one__tool_0000", "two__tool_0000"]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let by_header = client
                .clone()
                .with_header("traceparent", &parent)
                .with_header("tracestate", "a=b");
            let plain = json!({ "name": "one__tool_0000", "arguments": {} });
            let meta = json!({ "traceparent": parent, "tracestate": "a=b", "baggage": "k=v" });
            let by_meta = json!({ "name": "one__tool_0000", "arguments": {}, "_meta": meta });
            let bad = json!({ "name": "one__tool_0000", "_meta": { "traceparent": "no trace", "baggage": 7 } });
            for params in [plain.clone(), by_meta, bad] {
                let client = if params == plain { &by_header } else { &client };
                assert!(
                    client
                        .ask("tools/call", params.clone())
                        .await
                        .result()
                        .is_object()
                );
                let seen = upstream.requests_of("tools/call").pop().unwrap();
                let given = seen.meta()["traceparent"].as_str().map(str::to_owned);
                assert_eq!(
                    seen.header("traceparent").map(str::to_owned),
                    given,
                    "{era:?} {revision:?}"
                );
                if params["_meta"]["baggage"] == 7 {
                    assert_eq!((given, seen.meta().get("baggage")), (None, None));
                    continue;
                }
                let given = given.unwrap();
                let (trace, span) = parts(&given);
                assert!(trace == TRACE && span != SPAN, "{given}");
                assert_eq!(seen.meta()["tracestate"], "a=b");
                let baggage = if params["_meta"].is_null() {
                    Value::Null
                } else {
                    json!("k=v")
                };
                assert_eq!(
                    seen.meta().get("baggage").cloned().unwrap_or_default(),
                    baggage
                );
                let elsewhere =
                    json!({ "name": "two__tool_0000", "arguments": {}, "_meta": params["_meta"] });
                if params["_meta"].is_object() {
                    assert!(
                        client
                            .ask("tools/call", elsewhere)
                            .await
                            .result()
                            .is_object()
                    );
                    let seen = upstream.requests_of("tools/call").pop().unwrap();
                    assert_eq!(
                        seen.meta().get("baggage"),
                        None,
                        "nobody said that it may go there"
                    );
                    assert_eq!(parts(seen.meta()["traceparent"].as_str().unwrap()).0, TRACE);
                }
            }
        }
    }
}
