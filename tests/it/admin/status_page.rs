//! The status page in a real browser, in front of an upstream that sends markup; and the admin API
//! under a property-based tester.

use std::process::Command;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::{MockBehaviour, MockServer};
use weir_testkit::{TestFolder, mock_server::MockTool};
use weir_wire::Revision;

use super::{OperatorClient, body, config_over, new_api_key};
use crate::harness::{
    CheckedClient, Weir, peers, peers_are_enabled, render_page, wait_until_async,
};

const MARKUP: &str =
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tables_of_the_status_page_say_that_they_are_cut() {
    let many = MockServer::modern()
        .tools(501)
        .tool("hang", MockBehaviour::hang())
        .start()
        .await;
    let weir = Weir::with_config(config_over(&[("many", &many)]));
    weir.wait_until_listed("/mcp", &["many__tool_0500", "many__hang"]);
    let ops = OperatorClient::of(&weir);
    assert!(!body(&ops.get("/").await).contains("are shown"));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let mut running = JoinSet::new();
    for _ in 0..11 {
        let calling = client.clone();
        running.spawn(async move { calling.start_call("many__hang", json!({}), None).await });
    }
    many.wait_until("all calls to run", |server| server.executions("hang") == 11)
        .await;
    let (front, one) = (
        body(&ops.get("/").await),
        body(&ops.get("/upstreams/many").await),
    );
    let calls = "/admin/calls?limit=1000";
    assert!(
        front.contains("Running calls: 11") && front.contains("10 of 11 are shown"),
        "{front}"
    );
    assert!(front.contains(&format!("href=\"{calls}\"")), "{front}");
    let tools = "/admin/catalog?endpoint=%2Fmcp&upstream=many&limit=1000";
    assert!(one.contains("500 of 502 are shown"), "{one}");
    assert!(
        one.contains(&format!("href=\"{}\"", tools.replace('&', "&amp;"))),
        "{one}"
    );
    assert!(!one.contains("of 11 are shown"), "all eleven are: {one}");
    assert_eq!(ops.get_json(calls).await["total"], 11);
    let items = ops.get_json(tools).await["items"].as_array().map(Vec::len);
    assert_eq!(items, Some(502));
}

// Proves R286.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn status_page_in_a_browser_escapes_upstream_text() {
    if !peers_are_enabled() {
        return;
    }
    let failing = MockBehaviour::error(-32000, MARKUP, json!(null));
    let tool = MockTool::new("fine").with("description", json!(MARKUP));
    let one = MockServer::modern()
        .named(MARKUP)
        .with(tool)
        .tool("bad", failing)
        .tool("hang", MockBehaviour::hang())
        .start()
        .await;
    let mut config = config_over(&[("hostile", &one)]);
    config["upstreams"]["gone"] = json!({ "url": "http://127.0.0.1:9/mcp" });
    let weir = Weir::with_config(config);
    weir.wait_until_listed("/mcp", &["hostile__fine"]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    client.call("hostile__bad", json!({})).await;
    let _running = client.start_call("hostile__hang", json!({}), None).await;
    let ops = OperatorClient::of(&weir);
    ops.change(
        "/admin/principals/block",
        json!({ "issuer": "i", "subject": MARKUP, "reason": MARKUP }),
    )
    .await;
    wait_until_async("the dead one", async || {
        let gone = ops.get_json("/admin/upstreams/gone").await;
        (gone["state"] == "down" && gone["last_error"].is_string()).then_some(())
    })
    .await;
    let admin = weir.admin_url();
    for path in ["/", "/upstreams/hostile", "/upstreams/gone"] {
        let document = render_page(&format!("{admin}{path}"));
        assert!(
            document.contains("<title>") && !document.contains("<title>owned"),
            "{document}"
        );
        assert!(
            !document.contains("<script") && !document.contains("<img"),
            "{document}"
        );
    }
    let front = render_page(&admin);
    for shown in [
        "hostile",
        "gone",
        "went down",
        "hostile__hang",
        "Tool list",
        "modern",
        "&lt;script&gt;",
    ] {
        assert!(front.contains(shown), "{shown}: {front}");
    }
    let one = render_page(&format!("{admin}/upstreams/hostile"));
    assert!(
        one.contains("hostile__fine") && one.contains("&lt;img"),
        "{one}"
    );
}

// Proves R286.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_api_matches_its_openapi_document() {
    if !peers_are_enabled() {
        return;
    }
    let one = MockServer::modern().tools(3).start().await;
    let mut config = config_over(&[("one", &one)]);
    config["admin"] = json!({ "auth": { "token": "weir_0123456789_of-the-operators" } });
    let weir = Weir::with_config(config);
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let _open = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
    let bin = peers().join("python/.venv-api/bin/schemathesis");
    let admin = weir.admin_url();
    // As many examples as fit into half a minute, the same in every run.
    let mut command = Command::new(bin);
    command.args(["run", &format!("{admin}/openapi.yaml"), "--url", &admin]);
    command.args([
        "--header",
        "Authorization: Bearer weir_0123456789_of-the-operators",
    ]);
    command.args([
        "--include-path-regex",
        "^/(healthz|readyz|openapi.yaml|upstreams|admin|$)",
    ]);
    command.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "8",
        "--seed",
        "7",
        "--no-color",
    ]);
    command.args([
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    ]);
    let folder = TestFolder::new("api");
    command.current_dir(folder.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(weir.get_admin_page("/healthz").starts_with("HTTP/1.1 200"));
}

/// Adds the members of a value that a schema of the document does not declare.
fn add_undeclared(
    document: &Value,
    schema: &Value,
    value: &Value,
    at: &str,
    found: &mut Vec<String>,
) {
    let declared = declared_members(document, schema);
    let items = schemas_of(document, schema)
        .into_iter()
        .find_map(|schema| schema.get("items"));
    let members = value.as_object().filter(|_| !declared.is_empty());
    for (name, value) in members.into_iter().flatten() {
        let at = format!("{at}.{name}");
        match declared.iter().find(|(declared, _)| *declared == name) {
            Some((_, schema)) => add_undeclared(document, schema, value, &at, found),
            None => found.push(at),
        }
    }
    for value in value.as_array().into_iter().flatten() {
        let schema = items.unwrap_or(&Value::Null);
        add_undeclared(document, schema, value, &format!("{at}[]"), found);
    }
}

fn declared_members<'a>(document: &'a Value, schema: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let all = schemas_of(document, schema);
    all.into_iter()
        .filter_map(|schema| schema["properties"].as_object())
        .flatten()
        .collect()
}

/// Returns a schema, those that it refers to, and those that it consists of.
fn schemas_of<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let referred = schema["$ref"]
        .as_str()
        .map(|place| document.pointer(place.trim_start_matches('#')).unwrap());
    let parts = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| schema[key].as_array())
        .flatten();
    let further: Vec<_> = referred.into_iter().chain(parts).collect();
    let further = further
        .into_iter()
        .flat_map(|schema| schemas_of(document, schema));
    std::iter::once(schema).chain(further).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_document_declares_every_member_of_the_admin_api() {
    let document = include_str!("../../../openapi/weir.yaml");
    let document: Value = serde_saphyr::from_str(document).unwrap();
    let (key, digest) = new_api_key("ci");
    let one = MockServer::modern().tools(1).start().await;
    let mut config = config_over(&[("one", &one)]);
    config["auth"] = json!({ "mode": "required", "api_keys": [{ "id": key_id(&key), "subject": "ci", "sha256": digest }] });
    let weir = Weir::with_config(config);
    let ops = OperatorClient::of(&weir);
    wait_until_async("the list of tools", async || {
        let one = ops.get_json("/admin/upstreams/one").await;
        (one["catalog"]["tools"] == 1).then_some(())
    })
    .await;
    let header = format!("Bearer {key}");
    let header = ("authorization", header.as_str());
    let newest = Revision::NEWEST_LEGACY;
    let _session = CheckedClient::open_with_header(&weir.url("/mcp"), newest, header).await;
    ops.change("/admin/upstreams/one/drain", json!({ "reason": "x" }))
        .await;
    let principal = format!("%7B%22api_key%22%3A%22{}%22%7D", key_id(&key));
    let explained = format!("?tool=one__tool_0000&as={principal}");
    let mut found = Vec::new();
    for (path, query) in [
        ("/admin/explain", explained.as_str()),
        ("/admin/upstreams", ""),
        ("/admin/catalog", ""),
        ("/admin/calls", ""),
        ("/admin/config", ""),
        ("/admin/sessions", ""),
        ("/admin/clients", ""),
        ("/admin/limits", ""),
        ("/admin/replicas", ""),
    ] {
        let answer = ops.get_json(&format!("{path}{query}")).await;
        let done = &document["paths"][path]["get"]["responses"]["200"];
        let schema = &done["content"]["application/json"]["schema"];
        assert!(!declared_members(&document, schema).is_empty(), "{path}");
        add_undeclared(&document, schema, &answer, path, &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_page_shows_actor_reason_and_expiry_of_a_disabled_upstream() {
    let one = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let ops = OperatorClient::of(&weir);
    ops.change(
        "/admin/upstreams/one/disable",
        json!({ "reason": "moves <b>", "ttl": "10m" }),
    )
    .await;
    let front = body(&ops.get("/").await);
    let words = "was disabled <time";
    for part in [
        words,
        "by a local operator, and is enabled again",
        "in 9 min",
        "moves &lt;b&gt;",
    ] {
        assert!(front.contains(part), "{part}: {front}");
    }
    // Once in the list of upstreams that need a look, and once beside the upstream.
    assert_eq!(front.matches(words).count(), 2, "{front}");
    // Every time is in words, with the exact time in a title.
    for time in front.split("<time ").skip(1) {
        let (tag, rest) = time.split_once('>').unwrap();
        let shown = rest.split_once('<').unwrap().0;
        assert!(tag.contains("title=\"20") && !shown.contains('-'), "{time}");
    }
    let page = body(&ops.get("/upstreams/one").await);
    assert!(
        page.contains("a local operator") && page.contains("moves &lt;b&gt;"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_page_counts_refused_credentials() {
    let (key, digest) = new_api_key("ci");
    let one = MockServer::modern().tools(1).start().await;
    let mut config = config_over(&[("one", &one)]);
    config["auth"] = json!({ "mode": "required", "api_keys": [{ "id": key_id(&key), "subject": "ci", "sha256": digest }] });
    let weir = Weir::with_config(config);
    let ops = OperatorClient::of(&weir);
    let refused = async || ops.get_json("/admin/config").await["auth"]["refused"].as_u64();
    assert_eq!(refused().await, Some(0));
    let client = || {
        OperatorClient::at(&weir.url(""))
            .with("mcp-session-id", "none-of-ours")
            .with("accept", "text/event-stream")
    };
    assert_eq!(client().get("/mcp").await.status, 401);
    for wrong in ["weir_00000000_wrong", "a.b.c"] {
        assert_eq!(
            client()
                .with("authorization", &format!("Bearer {wrong}"))
                .get("/mcp")
                .await
                .status,
            401,
            "{wrong}"
        );
    }
    let known = client()
        .with("authorization", &format!("Bearer {key}"))
        .get("/mcp")
        .await;
    assert_ne!(known.status, 401, "{}", body(&known));
    assert_eq!(refused().await, Some(2));
    let front = body(&ops.get("/").await);
    assert!(
        front.contains("<b>2</b> credentials refused")
            && front.contains("credentials are required"),
        "{front}"
    );
}

/// Returns the id in an API key.
fn key_id(key: &str) -> String {
    key.split('_').nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_page_connects_clients_to_every_endpoint() {
    let one = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let ops = OperatorClient::of(&weir);
    let front = body(&ops.get("/").await);
    for path in ["/mcp", "/mcp/one"] {
        assert!(
            front.contains(&format!("<code>{}</code>", weir.url(path))),
            "{path}: {front}"
        );
        let link = format!("/?endpoint={path}#connect");
        assert!(front.contains(&format!("href=\"{link}\"")), "{front}");
        let page = body(&ops.get(link.trim_end_matches("#connect")).await);
        assert!(
            page.contains(&format!("Connect a client to {path}</h2>")),
            "{page}"
        );
        assert!(
            page.contains(&format!(
                "claude mcp add --transport http weir {}</pre>",
                weir.url(path)
            )),
            "{page}"
        );
    }
    // An unknown path is not repeated.
    let other = body(&ops.get("/?endpoint=/canary%3Cb%3E").await);
    assert!(
        other.contains("Connect a client to /mcp</h2>") && !other.contains("canary"),
        "{other}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_page_links_back_to_the_status_page() {
    let one = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    let browser = OperatorClient::of(&weir).with("accept", "text/html,*/*;q=0.8");
    for path in ["/canary", "/upstreams/canary", "/admin/canary"] {
        let answer = browser.get(path).await;
        let page = body(&answer);
        assert_eq!(answer.status, 404, "{path}: {page}");
        assert!(
            page.contains("<a href=\"/\">Status of weir</a>") && !page.contains("canary"),
            "{path}: {page}"
        );
    }
    let program = OperatorClient::of(&weir)
        .with("accept", "application/json")
        .get("/admin/nothing")
        .await;
    assert_eq!(
        (program.status.as_u16(), body(&program)),
        (
            404,
            "{\"error\":\"there is no such path; /openapi.yaml lists all paths\"}".to_owned()
        )
    );
}
