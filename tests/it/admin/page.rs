//! The status page in a real browser, in front of an upstream that would like to be markup; and the API before a prober.

use std::process::Command;

use serde_json::json;
use weir_testkit::mockup::Tool;
use weir_testkit::{Behaviour, Mockup};
use weir_wire::Revision;

use super::{Operator, over};
use crate::harness::{Checked, Weir, browse, fresh_path, needs_peers, peers, until_it};

const MARKUP: &str = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r286_the_status_page_in_a_browser_shows_what_upstreams_say_as_text() {
    if !needs_peers() {
        return;
    }
    let failing = Behaviour::error(-32000, MARKUP, json!(null));
    let tool = Tool::new("fine").with("description", json!(MARKUP));
    let one =
        Mockup::modern().named(MARKUP).with(tool).tool("bad", failing).tool("hang", Behaviour::hang()).start().await;
    let mut config = over(&[("hostile", &one)]);
    config["upstreams"]["gone"] = json!({ "url": "http://127.0.0.1:9/mcp" });
    let weir = Weir::with(config);
    weir.until_listed("/mcp", &["hostile__fine"]);
    let client = Checked::open(&weir.url("/mcp"), Revision::MODERN).await;
    client.call("hostile__bad", json!({})).await;
    let _running = client.start_call("hostile__hang", json!({}), None).await;
    let ops = Operator::of(&weir);
    ops.change("/admin/principals/block", json!({ "issuer": "i", "subject": MARKUP, "reason": MARKUP })).await;
    until_it("the dead one", async || {
        let gone = ops.see("/admin/upstreams/gone").await;
        (gone["state"] == "down" && gone["last_error"].is_string()).then_some(())
    })
    .await;
    let admin = weir.admin_url();
    for path in ["/", "/upstreams/hostile", "/upstreams/gone"] {
        let document = browse(&format!("{admin}{path}"));
        assert!(document.contains("<title>") && !document.contains("<title>owned"), "{document}");
        assert!(!document.contains("<script") && !document.contains("<img"), "{document}");
    }
    let front = browse(&admin);
    for shown in ["hostile", "gone", "is down since", "hostile__hang", "Last error", "modern", "&lt;script&gt;"] {
        assert!(front.contains(shown), "{shown}: {front}");
    }
    let one = browse(&format!("{admin}/upstreams/hostile"));
    assert!(one.contains("hostile__fine") && one.contains("&lt;img"), "{one}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r286_the_api_is_as_its_description_says() {
    if !needs_peers() {
        return;
    }
    let one = Mockup::modern().tools(3).start().await;
    let mut config = over(&[("one", &one)]);
    config["admin"] = json!({ "auth": { "token": "weir_0123456789_of-the-operators" } });
    let weir = Weir::with(config);
    weir.until_listed("/mcp", &["one__tool_0000"]);
    let _open = Checked::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
    let bin = peers().join("python/.venv-api/bin/schemathesis");
    let admin = weir.admin_url();
    // As many examples as fit into half a minute, the same in every run.
    let mut command = Command::new(bin);
    command.args(["run", &format!("{admin}/openapi.yaml"), "--url", &admin]);
    command.args(["--header", "Authorization: Bearer weir_0123456789_of-the-operators"]);
    command.args(["--include-path-regex", "^/(healthz|readyz|openapi.yaml|upstreams|admin|$)"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "8", "--seed", "7", "--no-color"]);
    command.args([
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    ]);
    let folder = fresh_path("api");
    std::fs::create_dir_all(&folder).unwrap();
    let output = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || command.current_dir(folder).output().unwrap()
    });
    let output = output.await.unwrap();
    let _gone = std::fs::remove_dir_all(&folder);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(weir.admin("/healthz").starts_with("HTTP/1.1 200"));
}
