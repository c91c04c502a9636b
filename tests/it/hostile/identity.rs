//! Those whom weir asks about identities, gone bad: introspection endpoints (RFC 7662), authorization servers that exchange tokens
//! (RFC 8693), key sets and their metadata. Whatever they answer, nobody gets in whom they did not vouch for in the exact form, no
//! upstream gets what is no token for it, and what they cost is bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::idp::now;
use weir_testkit::scripted::Act;
use weir_testkit::{Behaviour, Idp, Mockup, RawClient, ScriptedRequest, ScriptedServer, Signer};

use crate::auth::{api_key, bearer};
use crate::harness::{Bystander, Weir, soon, until_it};

/// What weir may take of one answer without end: what fits into the buffers of the sockets, and its own bound.
const MOST_TAKEN: usize = 16 << 20;
/// By how much weir may grow.
const MOST_GROWN: usize = 64 << 20;

fn text(status: &str, headers: &str, body: &str) -> Vec<Act> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    vec![Act::Write((head + body).into())]
}

fn said(body: &str) -> Vec<Act> {
    text("200 OK", "content-type: application/json\r\n", body)
}

fn raw(bytes: &'static [u8]) -> Act {
    Act::Write(bytes.into())
}

fn begun(more: Act) -> Vec<Act> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    vec![raw(head.as_bytes()), raw(b"{\"a\":\""), more]
}

fn redirect(status: &str, to: &str) -> Vec<Act> {
    text(status, &format!("location: {to}\r\n"), "")
}

/// What any of them may do instead of answering. `decoy` is a place that nobody may be sent to.
fn misdeeds(decoy: &str) -> Vec<(&'static str, Vec<Act>)> {
    let many = |bytes: &[u8]| Act::Endless(bytes.repeat((16 << 10) / bytes.len() + 1).into());
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        ("endless", begun(many(b"x"))),
        ("endless-chunks", vec![Act::Write(chunked.into()), many(b"1\r\nx\r\n")]),
        ("endless-interim", vec![many(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")]),
        ("endless-head", vec![Act::Write("HTTP/1.1 200 OK\r\n".into()), many(b"x: y\r\n")]),
        ("endless-line", vec![Act::Write("HTTP/1.1 200 OK\r\nx: ".into()), many(b"y")]),
        ("drip", begun(Act::Drip("x".into(), Duration::from_millis(100)))),
        ("drip-interim", vec![Act::Drip("HTTP/1.1 100 Continue\r\n\r\n".into(), Duration::from_millis(20))]),
        ("huge", said(&format!("{{\"active\":true,\"a\":\"{}\"}}", "x".repeat(4 << 20)))),
        ("deep", said(&format!("{{\"active\":true,\"a\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000)))),
        ("wide", said(&format!("{{\"active\":true,\"a\":[{}1]}}", "1,".repeat(25_000)))),
        ("html", text("200 OK", "content-type: text/html\r\n", "<html>{\"active\":true}</html>")),
        ("nothing", said("")),
        ("list", said("[]")),
        ("not-utf8", vec![raw(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\"\xff\xfe\"")]),
        ("status-301", redirect("301 Moved", decoy)),
        ("status-302", redirect("302 Found", "http://169.254.169.254/latest/meta-data/")),
        ("status-307", redirect("307 Again", decoy)),
        ("status-308", redirect("308 There", decoy)),
        ("status-500", text("500 No", "", "{\"active\":true}")),
        ("status-503", text("503 No", "retry-after: 100000000\r\n", "")),
        ("status-204", vec![Act::Write("HTTP/1.1 204 No Content\r\n\r\n".into())]),
        (
            "status-101",
            vec![Act::Write("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".into())],
        ),
        ("two-lengths", vec![Act::Write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}".into())]),
        ("no-http", vec![Act::Write("SSH-2.0-OpenSSH_9.9\r\n".into()), Act::Close]),
        ("half", vec![Act::Write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"active\":true".into()), Act::Close]),
        ("close", vec![Act::Close]),
        ("hang", vec![Act::Hang]),
    ]
}

/// The part of a form's field up to the next one.
fn field<'a>(form: &'a str, name: &str) -> &'a str {
    form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

/// The path of a request, up to a `?`.
fn path(request: &ScriptedRequest) -> &str {
    request.head.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default()
}

async fn decoy() -> ScriptedServer {
    ScriptedServer::start(|_| said("{\"active\":true,\"sub\":\"eve\",\"aud\":\"weir\"}")).await
}

async fn good() -> Mockup {
    Mockup::modern().tool("echo", Behaviour::echo()).start().await
}

/// Waits until a token gets in, which takes as long as the tool takes to be listed.
async fn gets_in(client: &RawClient, tool: &str) {
    until_it("a good call", async || {
        let answer = client.call(tool, json!({})).await.unwrap();
        (answer.status == 200
            && answer.last()["result"]["isError"] != json!(true)
            && !answer.last()["result"].is_null())
        .then_some(())
    })
    .await;
}

/// Answers about a token of `eve`, none of which is one about an active token; and a good one about one of `ada`.
fn introspections(decoy: &str) -> (Vec<(String, Vec<Act>)>, String) {
    let far = now() + 3600;
    let claims = |name: &str, value: Value| {
        let mut claims = json!({ "active": true, "sub": "eve", "aud": "weir", "exp": far });
        claims[name] = value;
        claims.to_string()
    };
    let mut cases: Vec<(String, Vec<Act>)> =
        misdeeds(decoy).into_iter().map(|(name, acts)| (name.to_owned(), acts)).collect();
    let odd = [
        ("active", vec![json!("true"), json!(1), json!(null), json!(false), json!([true]), json!({})]),
        (
            "exp",
            vec![json!(1), json!(-1), json!(far.to_string()), json!(1.5e300), json!(far as f64 + 0.5), json!(null)],
        ),
        ("nbf", vec![json!(far), json!("now")]),
        ("iat", vec![json!(far + 10)]),
        ("sub", vec![json!(""), json!(7), json!(null), json!(["ada"]), json!("x".repeat(50_000))]),
        ("aud", vec![json!("other"), json!(null), json!(["weir", 7]), json!({ "weir": 1 }), json!(vec!["weir"; 1000])]),
        ("iss", vec![json!("https://other.example"), json!(7), json!([])]),
        ("scope", vec![json!(7), json!(true), json!({ "read": 1 }), json!(["read", 7]), json!(vec!["a b"; 5])]),
        ("groups", vec![json!(7), json!((0..300).collect::<Vec<_>>())]),
    ];
    for (name, values) in odd {
        for (number, value) in values.into_iter().enumerate() {
            // A list of words is a list of texts, which is one of scopes.
            if name == "scope" && number == 4 {
                continue;
            }
            cases.push((format!("{name}-{number}"), said(&claims(name, value))));
        }
    }
    for (name, body) in [
        ("twice", "{\"active\":false,\"active\":true,\"sub\":\"eve\",\"aud\":\"weir\"}".to_owned()),
        ("subject-twice", claims("x", json!(1)).replace("\"sub\":\"eve\"", "\"sub\":\"eve\",\"s\\u0075b\":\"ada\"")),
        ("infinite", claims("exp", json!("HERE")).replace("\"HERE\"", "1e999")),
        ("trailing", claims("x", json!(1)) + "}"),
        ("two-objects", claims("active", json!(false)) + &claims("x", json!(1))),
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
    let cases: HashMap<String, Vec<Act>> = cases.into_iter().collect();
    let endless = cases.keys().filter(|name| name.starts_with("endless")).count();
    let server = ScriptedServer::start(move |request| {
        let token = field(&request.text, "token");
        cases.get(token).cloned().unwrap_or_else(|| said(&good_claims))
    })
    .await;
    let (good, victim) = (good().await, Mockup::modern().tools(1).start().await);
    let (key, entry) = api_key("bystander");
    let introspection = json!({ "url": format!("{}/introspect", server.origin()), "client_id": "weir", "client_secret": "s-0123456789" });
    let weir = tokio::task::block_in_place(|| {
        Weir::with(json!({
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
    let bystander =
        Bystander::beside(&weir, RawClient::new(&weir.url("/good")).modern().with_header("X-API-Key", &key));
    let mut calls = JoinSet::new();
    for name in names {
        let client = bearer(&url, &name).modern();
        calls.spawn(async move { (name, client.call("tool_0000", json!({})).await) });
    }
    for (name, answer) in soon("every answer", calls.join_all()).await {
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!([401, 503].contains(&answer.status.as_u16()), "{name}: {} {:?}", answer.status, answer.body);
        let body = String::from_utf8_lossy(&answer.body);
        assert!(!body.contains("eve") && !body.contains('\u{1b}'), "{name}: {body}");
    }
    // One that was good is asked about again and is as good as before.
    gets_in(&bearer(&url, "of-ada-2").modern(), "tool_0000").await;
    let figures = bystander.finish("an introspection endpoint that answers all it can think of").await;
    figures.none_refused();
    assert!(figures.grown <= MOST_GROWN, "{} MiB more", figures.grown >> 20);
    assert_eq!(victim.total_executions(), before + 1);
    assert_eq!(decoy.accepted(), 0, "a redirect was followed");
    assert!(server.written() <= endless * MOST_TAKEN, "weir took {} MiB", server.written() >> 20);
    let log = weir.process.said();
    assert!(!log.contains("panicked") && !log.contains('\u{1b}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_introspected_token_ends_when_it_says_whatever_becomes_of_its_issuer() {
    let hangs = Arc::new(AtomicBool::new(false));
    let end = now() + 4;
    let server = ScriptedServer::start({
        let hangs = hangs.clone();
        move |_| {
            if hangs.load(Ordering::SeqCst) {
                return vec![Act::Hang];
            }
            said(&json!({ "active": true, "sub": "ada", "aud": "weir", "exp": end }).to_string())
        }
    })
    .await;
    let upstream = Mockup::modern().tools(1).start().await;
    let introspection = json!({ "url": server.origin(), "client_id": "weir", "client_secret": "s-0123456789" });
    let weir = tokio::task::block_in_place(|| {
        Weir::with(json!({
            "auth": {
                "mode": "oauth", "leeway": "0s",
                "issuers": [{ "issuer": server.origin(), "introspection": introspection, "audience": ["weir"] }],
            },
            "upstreams": { "one": { "url": upstream.url() } },
        }))
    });
    let client = bearer(&weir.url("/mcp"), "short").modern();
    let status = async || client.ask("tools/list", json!({})).await.unwrap().status.as_u16();
    assert_eq!(status().await, 200);
    hangs.store(true, Ordering::SeqCst);
    until_it("the end of the token", async || (status().await != 200).then_some(())).await;
    assert!(now() >= end, "it was remembered until then");
    for _ in 0..3 {
        assert!([401, 503].contains(&status().await));
    }
}

const SECRET: &str = "CANARY-of-the-oauth-client";

fn granted(token: &str) -> Value {
    json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 })
}

/// Answers to an exchange: such as are no token, and such as are one and lie about its time.
fn exchanges(decoy: &str) -> [Vec<(String, Vec<Act>)>; 2] {
    let with = |name: &str, value: Value| {
        let mut granted = granted("CANARY-of-a-bad-answer");
        granted[name] = value;
        said(&granted.to_string())
    };
    let mut bad: Vec<(String, Vec<Act>)> =
        misdeeds(decoy).into_iter().map(|(name, acts)| (name.to_owned(), acts)).collect();
    let own = [
        (
            "access_token",
            vec![json!("a\r\nx-injected: 1"), json!("a\u{1b}[2Jb"), json!("x".repeat(500_000)), json!("")],
        ),
        (
            "access_token",
            vec![json!("a b"), json!("t\u{f6}ken"), json!(7), json!(null), json!(["a"]), json!("a\u{0}b")],
        ),
        ("token_type", vec![json!("N_A"), json!("DPoP"), json!("mac"), json!(null), json!(7), json!("Bearer ")]),
        (
            "issued_token_type",
            vec![
                json!("urn:ietf:params:oauth:token-type:refresh_token"),
                json!("urn:ietf:params:oauth:token-type:id_token"),
                json!("urn:ietf:params:oauth:token-type:saml2"),
                json!(7),
            ],
        ),
    ];
    for (number, (name, value)) in
        own.into_iter().flat_map(|(name, values)| values.into_iter().map(move |value| (name, value))).enumerate()
    {
        bad.push((format!("{}-{number}", name.replace('_', "-")), with(name, value)));
    }
    bad.push(("error".to_owned(), text("400 No", "", "{\"error\":\"invalid_grant\",\"access_token\":\"x\"}")));
    bad.push(("twice".to_owned(), said("{\"access_token\":\"a\",\"access_token\":\"b\",\"token_type\":\"Bearer\"}")));
    // What weir showed itself, as if it were the answer: the caller's token, and weir's own secret.
    for name in ["echo-of-the-token", "echo-of-the-secret"] {
        bad.push((name.to_owned(), Vec::new()));
    }
    // Lies about the time that a token lives do no harm.
    let lies = [json!(-1), json!("soon"), json!(0), json!(1e300), json!(true), json!(null), json!({}), json!(0.001)];
    let lies: Vec<(String, Vec<Act>)> = (lies.into_iter().enumerate())
        .map(|(number, value)| {
            let mut granted = granted(&format!("good-{number}"));
            granted["expires_in"] = value;
            (format!("lie-{number}"), said(&granted.to_string()))
        })
        .collect();
    [bad, lies]
}

/// An upstream got tokens that are for it, and nothing else.
fn only_tokens_were_shown(upstream: &Mockup) {
    for request in upstream.requests() {
        let shown = request.header("authorization").unwrap_or_default();
        let is_good = shown == "Bearer weirs-own" || shown.strip_prefix("Bearer good-").is_some_and(|n| n.len() == 1);
        assert!(is_good, "an upstream was shown {shown:?}");
        assert!(request.header("x-injected").is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_exchange_answers_no_upstream_gets_what_is_no_token_for_it() {
    let (decoy, idp) = (decoy().await, Idp::start().await);
    let [bad, lies] = exchanges(&decoy.origin());
    let names = |cases: &[(String, Vec<Act>)]| cases.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (bad_names, lie_names) = (names(&bad), names(&lies));
    let endless = bad_names.iter().filter(|name| name.starts_with("endless")).count();
    let cases: HashMap<String, Vec<Act>> = bad.into_iter().chain(lies).collect();
    let exchanges = Arc::new(AtomicUsize::new(0));
    let server = ScriptedServer::start({
        let exchanges = exchanges.clone();
        move |request| {
            // What weir asks on its own account is answered well, so that the tools are known.
            if field(&request.text, "grant_type") == "client_credentials" {
                return said(&granted("weirs-own").to_string());
            }
            exchanges.fetch_add(1, Ordering::SeqCst);
            match path(request).trim_start_matches('/') {
                "echo-of-the-token" => said(&granted(field(&request.text, "subject_token")).to_string()),
                "echo-of-the-secret" => said(&granted(SECRET).to_string()),
                name => cases.get(name).cloned().unwrap_or_default(),
            }
        }
    })
    .await;
    let (good, victim) = (good().await, Mockup::modern().tool("t", Behaviour::echo()).start().await);
    let mut upstreams = json!({ "good": { "url": good.url() } });
    let mut endpoints = json!({ "/good": { "upstream": "good" } });
    for name in bad_names.iter().chain(&lie_names) {
        let endpoint = format!("{}/{name}", server.origin());
        let auth = json!({
            "mode": "token_exchange", "token_endpoint": endpoint, "client_id": "weir", "client_secret": SECRET,
        });
        upstreams[name] = json!({ "url": victim.url(), "auth": auth });
        endpoints[format!("/x/{name}")] = json!({ "upstream": name });
    }
    let issuer = json!({ "issuer": idp.issuer(), "audience": ["weir"] });
    let (key, entry) = api_key("bystander");
    let weir = tokio::task::block_in_place(|| {
        Weir::with(json!({
            "auth": { "mode": "required", "issuers": [issuer], "api_keys": [entry] },
            "upstreams": upstreams, "endpoints": endpoints,
        }))
    });
    let token = idp.token("ada", "weir");
    let at = |name: &str| bearer(&weir.url(&format!("/x/{name}")), &token).modern();
    for name in &lie_names {
        gets_in(&at(name), "t").await;
    }
    let bystander =
        Bystander::beside(&weir, RawClient::new(&weir.url("/good")).modern().with_header("X-API-Key", &key));
    let mut calls = JoinSet::new();
    for name in bad_names.clone() {
        let client = at(&name);
        calls.spawn(async move {
            // The second comes while it is known that there is no token.
            let mut answers = Vec::new();
            for _ in 0..2 {
                answers.push(client.call("t", json!({})).await);
            }
            (name, answers)
        });
    }
    for (name, answers) in soon("every answer", calls.join_all()).await {
        for answer in answers {
            let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(answer.status, 200, "{name}: {:?}", answer.body);
            let body = String::from_utf8_lossy(&answer.body);
            assert_eq!(answer.last()["result"]["isError"], true, "{name}: {body}");
            assert_eq!(answer.result()["_meta"]["dev.weir/error"]["reason"], "unavailable", "{name}: {body}");
            assert!(!body.contains("CANARY") && !body.contains(&token), "{name}: {body}");
        }
    }
    let figures = bystander.finish("an authorization server that exchanges tokens for all it can think of").await;
    figures.none_refused();
    assert!(figures.grown <= MOST_GROWN, "{} MiB more", figures.grown >> 20);
    only_tokens_were_shown(&victim);
    assert_eq!(decoy.accepted(), 0, "a redirect was followed");
    assert!(server.written() <= endless * 2 * MOST_TAKEN, "weir took {} MiB", server.written() >> 20);
    let asked = exchanges.load(Ordering::SeqCst);
    assert!(asked <= 2 * bad_names.len() + 20 * lie_names.len(), "{asked} exchanges");
    let log = weir.process.said();
    assert!(!log.contains("panicked") && !log.contains('\u{1b}'));
    assert!(!log.contains(&token) && !log.contains(SECRET) && !log.contains("CANARY"), "a secret in the log");
}

/// What stands where an issuer's keys should be.
fn key_sets(decoy: &str, forger: &Signer) -> HashMap<String, Vec<Act>> {
    let mut cases: HashMap<String, Vec<Act>> =
        misdeeds(decoy).into_iter().map(|(name, acts)| (name.to_owned(), acts)).collect();
    let jwk = forger.jwk();
    let mut private = jwk.clone();
    private["d"] = json!("AAAA");
    cases.insert("private".to_owned(), said(&json!({ "keys": [private] }).to_string()));
    cases.insert("no-list".to_owned(), said(&json!({ "keys": jwk }).to_string()));
    cases.insert("twins".to_owned(), said(&json!({ "keys": [jwk, Signer::es256("key-1").jwk()] }).to_string()));
    let many: Vec<Value> = std::iter::repeat_n(json!({ "kty": "EC" }), 40).chain([jwk.clone()]).collect();
    cases.insert("behind-many".to_owned(), said(&json!({ "keys": many }).to_string()));
    cases
}

/// Issuers at `origin` of these names, some of whose keys are found by metadata; and a good one.
fn issuers(origin: &str, names: &[String], idp: &Idp) -> Vec<Value> {
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

#[tokio::test(flavor = "multi_thread")]
async fn whatever_stands_where_keys_should_be_lets_nobody_in_and_those_of_others_serve_on() {
    let decoy = decoy().await;
    let (idp, forger) = (Idp::start().await, Arc::new(Signer::es256("key-1")));
    let cases = key_sets(&decoy.origin(), &forger);
    let mut names: Vec<String> = cases.keys().cloned().collect();
    // Metadata that points elsewhere, or is another's.
    let elsewhere = [
        ("at-link-local", "http://169.254.169.254/keys".to_owned()),
        ("at-decoy", format!("{}/keys", decoy.origin())),
        ("at-file", "file:///etc/passwd".to_owned()),
        ("at-nowhere", "http://user:password@127.0.0.1/keys".to_owned()),
    ];
    names.extend(elsewhere.iter().map(|(name, _)| (*name).to_owned()));
    names.push("of-another".to_owned());
    let endless = names.iter().filter(|name| name.starts_with("endless")).count();
    let origin = Arc::new(std::sync::OnceLock::<String>::new());
    let server = ScriptedServer::start({
        let (origin, forger) = (origin.clone(), forger.clone());
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
            // The place of keys, as the config says, and every other place of metadata.
            cases.get(name).cloned().unwrap_or_else(|| text("404 None", "", ""))
        }
    })
    .await;
    origin.set(server.origin()).unwrap();
    let (good, victim) = (good().await, Mockup::modern().tools(1).start().await);
    let issuers = issuers(&server.origin(), &names, &idp);
    let (key, entry) = api_key("bystander");
    let weir = tokio::task::block_in_place(|| {
        Weir::unready(json!({
            "auth": { "mode": "required", "issuers": issuers, "api_keys": [entry] },
            "upstreams": { "good": { "url": good.url() }, "victim": { "url": victim.url() } },
            "endpoints": { "/good": { "upstream": "good" }, "/mcp": { "upstream": "victim" } },
        }))
    });
    let url = weir.url("/mcp");
    gets_in(&bearer(&url, &idp.token("ada", "weir")).modern(), "tool_0000").await;
    let before = victim.total_executions();
    let as_bystander = RawClient::new(&weir.url("/good")).modern().with_header("X-API-Key", &key);
    gets_in(&as_bystander, "echo").await;
    let bystander = Bystander::beside(&weir, as_bystander);
    let mut calls = JoinSet::new();
    for name in names {
        let mut claims = idp.claims("eve", "weir");
        claims["iss"] = json!(format!("{}/{name}", server.origin()));
        let client = bearer(&url, &forger.token(&claims)).modern();
        calls.spawn(async move { (name, client.call("tool_0000", json!({})).await) });
    }
    for (name, answer) in soon("every answer", calls.join_all()).await {
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!([401, 503].contains(&answer.status.as_u16()), "{name}: {} {:?}", answer.status, answer.body);
    }
    gets_in(&bearer(&url, &idp.token("bob", "weir")).modern(), "tool_0000").await;
    let figures = bystander.finish("key sets and metadata that are all they can be but good").await;
    figures.none_refused();
    assert!(figures.grown <= MOST_GROWN, "{} MiB more", figures.grown >> 20);
    assert_eq!(victim.total_executions(), before + 1);
    assert_eq!(decoy.accepted(), 0, "weir went where it was pointed");
    // A failure is tried again after a second, then after longer and longer.
    assert!(server.written() <= 8 * endless * MOST_TAKEN, "weir took {} MiB", server.written() >> 20);
    assert!(!weir.process.said().contains("panicked"));
}
