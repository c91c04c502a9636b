//! Compromised identity services: introspection endpoints (RFC 7662), authorization servers that
//! exchange tokens (RFC 8693), key sets and their metadata. For every answer, weir accepts only
//! principals that the service confirmed in the exact form. No upstream gets a value that is not a
//! token for it, and the cost is bounded.

mod token_exchange;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::identity_provider::now;
use weir_testkit::scripted_server::ServerAct;
use weir_testkit::{
    IdentityProvider, MockBehaviour, MockServer, RawClient, ScriptedRequest, ScriptedServer,
    TokenSigner,
};

use crate::auth::{api_key, bearer};
use crate::harness::{Bystander, Weir, wait_until_async, within_test_timeout};

/// The bytes that weir may read of one endless answer: the buffers of the sockets, and weir's own
/// bound.
const MAX_TAKEN: usize = 16 << 20;
/// The bytes that weir may grow by.
const MAX_GROWN: usize = 64 << 20;

fn text(status: &str, headers: &str, body: &str) -> Vec<ServerAct> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    vec![ServerAct::Write((head + body).into())]
}

fn said(body: &str) -> Vec<ServerAct> {
    text("200 OK", "content-type: application/json\r\n", body)
}

fn raw(bytes: &'static [u8]) -> ServerAct {
    ServerAct::Write(bytes.into())
}

fn begun(more: ServerAct) -> Vec<ServerAct> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    vec![raw(head.as_bytes()), raw(b"{\"a\":\""), more]
}

fn redirect(status: &str, to: &str) -> Vec<ServerAct> {
    text(status, &format!("location: {to}\r\n"), "")
}

/// Returns answers that never end.
fn endless_answers() -> Vec<(&'static str, Vec<ServerAct>)> {
    let many = |bytes: &[u8]| ServerAct::Endless(bytes.repeat((16 << 10) / bytes.len() + 1).into());
    let chunked =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        ("endless", begun(many(b"x"))),
        (
            "endless-chunks",
            vec![ServerAct::Write(chunked.into()), many(b"1\r\nx\r\n")],
        ),
        (
            "endless-interim",
            vec![many(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")],
        ),
        (
            "endless-head",
            vec![
                ServerAct::Write("HTTP/1.1 200 OK\r\n".into()),
                many(b"x: y\r\n"),
            ],
        ),
        (
            "endless-line",
            vec![
                ServerAct::Write("HTTP/1.1 200 OK\r\nx: ".into()),
                many(b"y"),
            ],
        ),
        (
            "drip",
            begun(ServerAct::Drip("x".into(), Duration::from_millis(100))),
        ),
        (
            "drip-interim",
            vec![ServerAct::Drip(
                "HTTP/1.1 100 Continue\r\n\r\n".into(),
                Duration::from_millis(20),
            )],
        ),
    ]
}

/// Returns misbehaviours that any of the services may show instead of an answer. weir must not
/// follow a redirect to `decoy`.
fn misdeeds(decoy: &str) -> Vec<(&'static str, Vec<ServerAct>)> {
    let mut misdeeds = endless_answers();
    misdeeds.extend([
        (
            "huge",
            said(&format!(
                "{{\"active\":true,\"a\":\"{}\"}}",
                "x".repeat(4 << 20)
            )),
        ),
        (
            "deep",
            said(&format!(
                "{{\"active\":true,\"a\":{}{}}}",
                "[".repeat(20_000),
                "]".repeat(20_000)
            )),
        ),
        (
            "wide",
            said(&format!(
                "{{\"active\":true,\"a\":[{}1]}}",
                "1,".repeat(25_000)
            )),
        ),
        (
            "html",
            text(
                "200 OK",
                "content-type: text/html\r\n",
                "<html>{\"active\":true}</html>",
            ),
        ),
        ("nothing", said("")),
        ("list", said("[]")),
        (
            "not-utf8",
            vec![raw(
                b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\"\xff\xfe\"",
            )],
        ),
        (
            "two-lengths",
            vec![ServerAct::Write(
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}".into(),
            )],
        ),
        (
            "no-http",
            vec![
                ServerAct::Write("SSH-2.0-OpenSSH_9.9\r\n".into()),
                ServerAct::Close,
            ],
        ),
        (
            "half",
            vec![
                ServerAct::Write(
                    "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"active\":true".into(),
                ),
                ServerAct::Close,
            ],
        ),
        ("close", vec![ServerAct::Close]),
        ("hang", vec![ServerAct::Hang]),
    ]);
    misdeeds.extend(bad_statuses(decoy));
    misdeeds
}

/// Returns answers with a status that gives no result: redirects, failures and empty ones.
fn bad_statuses(decoy: &str) -> Vec<(&'static str, Vec<ServerAct>)> {
    vec![
        ("status-301", redirect("301 Moved", decoy)),
        (
            "status-302",
            redirect("302 Found", "http://169.254.169.254/latest/meta-data/"),
        ),
        ("status-307", redirect("307 Again", decoy)),
        ("status-308", redirect("308 There", decoy)),
        ("status-500", text("500 No", "", "{\"active\":true}")),
        (
            "status-503",
            text("503 No", "retry-after: 100000000\r\n", ""),
        ),
        (
            "status-204",
            vec![ServerAct::Write("HTTP/1.1 204 No Content\r\n\r\n".into())],
        ),
        (
            "status-101",
            vec![ServerAct::Write(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
                    .into(),
            )],
        ),
    ]
}

/// Returns the value of a form's field, up to the next field.
fn field<'a>(form: &'a str, name: &str) -> &'a str {
    form.split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_default()
}

/// Returns the path of a request, up to a `?`.
fn path(request: &ScriptedRequest) -> &str {
    request
        .head
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .split('?')
        .next()
        .unwrap_or_default()
}

async fn decoy() -> ScriptedServer {
    ScriptedServer::start(|_| said("{\"active\":true,\"sub\":\"eve\",\"aud\":\"weir\"}")).await
}

async fn good() -> MockServer {
    MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await
}

/// Waits until a token is accepted, which takes as long as the tool takes to be listed.
async fn gets_in(client: &RawClient, tool: &str) {
    wait_until_async("a good call", async || {
        let answer = client.call(tool, json!({})).await.unwrap();
        (answer.status == 200
            && answer.last()["result"]["isError"] != json!(true)
            && !answer.last()["result"].is_null())
        .then_some(())
    })
    .await;
}

/// Returns values of claims that are invalid for an active token; `far` is a time to come.
fn odd_claims(far: u64) -> Vec<(&'static str, Vec<Value>)> {
    vec![
        (
            "active",
            vec![
                json!("true"),
                json!(1),
                json!(null),
                json!(false),
                json!([true]),
                json!({}),
            ],
        ),
        (
            "exp",
            vec![
                json!(1),
                json!(-1),
                json!(far.to_string()),
                json!(1.5e300),
                json!(far as f64 + 0.5),
                json!(null),
            ],
        ),
        ("nbf", vec![json!(far), json!("now")]),
        ("iat", vec![json!(far + 10)]),
        (
            "sub",
            vec![
                json!(""),
                json!(7),
                json!(null),
                json!(["ada"]),
                json!("x".repeat(50_000)),
            ],
        ),
        (
            "aud",
            vec![
                json!("other"),
                json!(null),
                json!(["weir", 7]),
                json!({ "weir": 1 }),
                json!(vec!["weir"; 1000]),
            ],
        ),
        (
            "iss",
            vec![json!("https://other.example"), json!(7), json!([])],
        ),
        (
            "scope",
            vec![
                json!(7),
                json!(true),
                json!({ "read": 1 }),
                json!(["read", 7]),
                json!(vec!["a b"; 5]),
            ],
        ),
        (
            "groups",
            vec![json!(7), json!((0..300).collect::<Vec<_>>())],
        ),
    ]
}

/// Returns answers about a token of `eve`, all of them invalid for an active token; and a good one
/// about one of `ada`.
fn introspections(decoy: &str) -> (Vec<(String, Vec<ServerAct>)>, String) {
    let far = now() + 3600;
    let claims = |name: &str, value: Value| {
        let mut claims = json!({ "active": true, "sub": "eve", "aud": "weir", "exp": far });
        claims[name] = value;
        claims.to_string()
    };
    let mut cases: Vec<(String, Vec<ServerAct>)> = misdeeds(decoy)
        .into_iter()
        .map(|(name, acts)| (name.to_owned(), acts))
        .collect();
    for (name, values) in odd_claims(far) {
        for (number, value) in values.into_iter().enumerate() {
            // A list of words is also a list of strings, a valid form of scopes.
            if name == "scope" && number == 4 {
                continue;
            }
            cases.push((format!("{name}-{number}"), said(&claims(name, value))));
        }
    }
    for (name, body) in [
        (
            "twice",
            "{\"active\":false,\"active\":true,\"sub\":\"eve\",\"aud\":\"weir\"}".to_owned(),
        ),
        (
            "subject-twice",
            claims("x", json!(1))
                .replace("\"sub\":\"eve\"", "\"sub\":\"eve\",\"s\\u0075b\":\"ada\""),
        ),
        (
            "infinite",
            claims("exp", json!("HERE")).replace("\"HERE\"", "1e999"),
        ),
        ("trailing", claims("x", json!(1)) + "}"),
        (
            "two-objects",
            claims("active", json!(false)) + &claims("x", json!(1)),
        ),
    ] {
        cases.push((name.to_owned(), said(&body)));
    }
    (cases, claims("sub", json!("ada")))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_introspection_answers_only_an_active_token_in_its_exact_form_gets_in() {
    let decoy = decoy().await;
    let (cases, good_claims) = introspections(&decoy.origin());
    let names: Vec<String> = cases.iter().map(|(name, _)| name.clone()).collect();
    let cases: HashMap<String, Vec<ServerAct>> = cases.into_iter().collect();
    let endless = cases
        .keys()
        .filter(|name| name.starts_with("endless"))
        .count();
    let server = ScriptedServer::start(move |request| {
        let token = field(&request.text, "token");
        cases
            .get(token)
            .cloned()
            .unwrap_or_else(|| said(&good_claims))
    })
    .await;
    let (good, victim) = (good().await, MockServer::modern().tools(1).start().await);
    let (key, entry) = api_key("bystander");
    let introspection = json!({ "url": format!("{}/introspect", server.origin()), "client_id": "weir", "client_secret": "s-0123456789" });
    let weir = tokio::task::block_in_place(|| {
        Weir::with_config(json!({
            "auth": {
                "mode": "required", "api_keys": [entry],
                "issuers": [{ "issuer": server.origin(), "introspection": introspection, "audience": ["weir"] }],
            },
            "upstreams": { "good": { "url": good.url() }, "victim": { "url": victim.url() } },
            "endpoints": { "/good": { "upstream": "good" }, "/mcp": { "upstream": "victim" } },
        }))
    });
    let url = weir.url("/mcp");
    gets_in(&bearer(&url, "of-ada").modern(), "tool_0000").await;
    let before = victim.total_executions();
    let bystander = Bystander::start_beside(
        &weir,
        RawClient::new(&weir.url("/good"))
            .modern()
            .with_header("X-API-Key", &key),
    );
    let mut calls = JoinSet::new();
    for name in names {
        let client = bearer(&url, &name).modern();
        calls.spawn(async move { (name, client.call("tool_0000", json!({})).await) });
    }
    for (name, answer) in within_test_timeout("every answer", calls.join_all()).await {
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            [401, 503].contains(&answer.status.as_u16()),
            "{name}: {} {:?}",
            answer.status,
            answer.body
        );
        let body = String::from_utf8_lossy(&answer.body);
        assert!(
            !body.contains("eve") && !body.contains('\u{1b}'),
            "{name}: {body}"
        );
    }
    // A good token is introspected again and is as good as before.
    gets_in(&bearer(&url, "of-ada-2").modern(), "tool_0000").await;
    let figures = bystander
        .finish("an introspection endpoint that answers all it can think of")
        .await;
    figures.assert_none_refused();
    assert!(
        figures.grown <= MAX_GROWN,
        "{} MiB more",
        figures.grown >> 20
    );
    assert_eq!(victim.total_executions(), before + 1);
    assert_eq!(decoy.accepted(), 0, "a redirect was followed");
    assert!(
        server.written() <= endless * MAX_TAKEN,
        "weir took {} MiB",
        server.written() >> 20
    );
    let log = weir.process.output();
    assert!(!log.contains("panicked") && !log.contains('\u{1b}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_introspected_token_ends_when_it_says_whatever_becomes_of_its_issuer() {
    let hangs = Arc::new(AtomicBool::new(false));
    let end = Arc::new(OnceLock::new());
    let server = ScriptedServer::start({
        let (hangs, end) = (hangs.clone(), end.clone());
        move |_| {
            if hangs.load(Ordering::SeqCst) {
                return vec![ServerAct::Hang];
            }
            let end = end.get_or_init(|| now() + 4);
            said(&json!({ "active": true, "sub": "ada", "aud": "weir", "exp": end }).to_string())
        }
    })
    .await;
    let upstream = MockServer::modern().tools(1).start().await;
    let introspection =
        json!({ "url": server.origin(), "client_id": "weir", "client_secret": "s-0123456789" });
    let weir = tokio::task::block_in_place(|| {
        Weir::with_config(json!({
            "auth": {
                "mode": "oauth", "leeway": "0s",
                "issuers": [{ "issuer": server.origin(), "introspection": introspection, "audience": ["weir"] }],
            },
            "upstreams": { "one": { "url": upstream.url() } },
        }))
    });
    let client = bearer(&weir.url("/mcp"), "short").modern();
    let status = async || {
        client
            .ask("tools/list", json!({}))
            .await
            .unwrap()
            .status
            .as_u16()
    };
    assert_eq!(status().await, 200);
    hangs.store(true, Ordering::SeqCst);
    wait_until_async("the end of the token", async || {
        (status().await != 200).then_some(())
    })
    .await;
    assert!(now() >= *end.get().unwrap(), "it was remembered until then");
    for _ in 0..3 {
        assert!([401, 503].contains(&status().await));
    }
}

/// Returns bad answers in place of an issuer's keys.
fn key_sets(decoy: &str, forger: &TokenSigner) -> HashMap<String, Vec<ServerAct>> {
    let mut cases: HashMap<String, Vec<ServerAct>> = misdeeds(decoy)
        .into_iter()
        .map(|(name, acts)| (name.to_owned(), acts))
        .collect();
    let jwk = forger.jwk();
    let mut private = jwk.clone();
    private["d"] = json!("AAAA");
    cases.insert(
        "private".to_owned(),
        said(&json!({ "keys": [private] }).to_string()),
    );
    cases.insert(
        "no-list".to_owned(),
        said(&json!({ "keys": jwk }).to_string()),
    );
    cases.insert(
        "twins".to_owned(),
        said(&json!({ "keys": [jwk, TokenSigner::es256("key-1").jwk()] }).to_string()),
    );
    // weir keeps the first 32 usable keys.
    let many: Vec<Value> = (0..40)
        .map(|number| TokenSigner::es256(&format!("other-{number}")).jwk())
        .chain([jwk.clone()])
        .collect();
    cases.insert(
        "behind-many".to_owned(),
        said(&json!({ "keys": many }).to_string()),
    );
    cases
}

/// Returns issuers at `origin` with these names, some with keys that are found by metadata; and a
/// good one.
fn issuers(origin: &str, names: &[String], idp: &IdentityProvider) -> Vec<Value> {
    names
        .iter()
        .map(|name| {
            let issuer = format!("{}/{name}", origin);
            let by_metadata = name.starts_with("at-") || name == "of-another";
            let mut one = json!({ "issuer": issuer, "audience": ["weir"] });
            if !by_metadata {
                one["jwks_uri"] = json!(issuer);
            }
            one
        })
        .chain([json!({ "issuer": idp.issuer(), "audience": ["weir"] })])
        .collect()
}

/// Starts a server of these key sets, and of metadata that points to the URLs of `elsewhere`.
async fn key_server(
    cases: HashMap<String, Vec<ServerAct>>,
    elsewhere: [(&'static str, String); 4],
    forger: Arc<TokenSigner>,
) -> ScriptedServer {
    let origin = Arc::new(std::sync::OnceLock::<String>::new());
    let server = ScriptedServer::start({
        let origin = origin.clone();
        move |request| {
            let origin = origin.get().cloned().unwrap_or_default();
            let path = path(request);
            let name = path.trim_start_matches("/.well-known/oauth-authorization-server/").trim_start_matches('/');
            if let Some((_, at)) = elsewhere.iter().find(|(known, _)| *known == name) {
                return said(&json!({ "issuer": format!("{origin}/{name}"), "jwks_uri": at }).to_string());
            }
            if name == "of-another" {
                return said(
                    &json!({ "issuer": format!("{origin}/x"), "jwks_uri": format!("{origin}/keys") }).to_string(),
                );
            }
            if name == "keys" {
                return said(&json!({ "keys": [forger.jwk()] }).to_string());
            }
            // The URL of keys, as the config has it, and every other URL of metadata.
            cases.get(name).cloned().unwrap_or_else(|| text("404 None", "", ""))
        }
    })
    .await;
    origin.set(server.origin()).unwrap();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_key_sets_admit_no_token_and_other_issuers_keep_working() {
    let decoy = decoy().await;
    let (idp, forger) = (
        IdentityProvider::start().await,
        Arc::new(TokenSigner::es256("key-1")),
    );
    let cases = key_sets(&decoy.origin(), &forger);
    let mut names: Vec<String> = cases.keys().cloned().collect();
    // Metadata that points elsewhere, or belongs to another issuer.
    let elsewhere = [
        ("at-link-local", "http://169.254.169.254/keys".to_owned()),
        ("at-decoy", format!("{}/keys", decoy.origin())),
        ("at-file", "file:///etc/passwd".to_owned()),
        (
            "at-nowhere",
            "http://user:password@127.0.0.1/keys".to_owned(),
        ),
    ];
    names.extend(elsewhere.iter().map(|(name, _)| (*name).to_owned()));
    names.push("of-another".to_owned());
    let endless = names
        .iter()
        .filter(|name| name.starts_with("endless"))
        .count();
    let server = key_server(cases, elsewhere, forger.clone()).await;
    let (good, victim) = (good().await, MockServer::modern().tools(1).start().await);
    let issuers = issuers(&server.origin(), &names, &idp);
    let (key, entry) = api_key("bystander");
    let weir = tokio::task::block_in_place(|| {
        Weir::start_unready(json!({
            "auth": { "mode": "required", "issuers": issuers, "api_keys": [entry] },
            "upstreams": { "good": { "url": good.url() }, "victim": { "url": victim.url() } },
            "endpoints": { "/good": { "upstream": "good" }, "/mcp": { "upstream": "victim" } },
        }))
    });
    let url = weir.url("/mcp");
    gets_in(
        &bearer(&url, &idp.token("ada", "weir")).modern(),
        "tool_0000",
    )
    .await;
    let before = victim.total_executions();
    let as_bystander = RawClient::new(&weir.url("/good"))
        .modern()
        .with_header("X-API-Key", &key);
    gets_in(&as_bystander, "echo").await;
    let bystander = Bystander::start_beside(&weir, as_bystander);
    let mut calls = JoinSet::new();
    for name in names {
        let mut claims = idp.claims("eve", "weir");
        claims["iss"] = json!(format!("{}/{name}", server.origin()));
        let client = bearer(&url, &forger.token(&claims)).modern();
        calls.spawn(async move { (name, client.call("tool_0000", json!({})).await) });
    }
    for (name, answer) in within_test_timeout("every answer", calls.join_all()).await {
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            [401, 503].contains(&answer.status.as_u16()),
            "{name}: {} {:?}",
            answer.status,
            answer.body
        );
    }
    gets_in(
        &bearer(&url, &idp.token("bob", "weir")).modern(),
        "tool_0000",
    )
    .await;
    let figures = bystander
        .finish("key sets and metadata that are all they can be but good")
        .await;
    figures.assert_none_refused();
    assert!(
        figures.grown <= MAX_GROWN,
        "{} MiB more",
        figures.grown >> 20
    );
    assert_eq!(victim.total_executions(), before + 1);
    assert_eq!(decoy.accepted(), 0, "weir went where it was pointed");
    // A failed fetch is retried after a second, then after longer and longer pauses.
    assert!(
        server.written() <= 8 * endless * MAX_TAKEN,
        "weir took {} MiB",
        server.written() >> 20
    );
    assert!(!weir.process.output().contains("panicked"));
}
