//! Servers that exchange tokens.

use weir_testkit::ClientAnswer;

use super::*;

const SECRET: &str = "CANARY-of-the-oauth-client";

fn granted(token: &str) -> Value {
    json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 })
}

/// Returns answers to an exchange: some without a valid token, and some with a token and a false
/// lifetime.
fn exchanges(decoy: &str) -> [Vec<(String, Vec<ServerAct>)>; 2] {
    let with = |name: &str, value: Value| {
        let mut granted = granted("CANARY-of-a-bad-answer");
        granted[name] = value;
        said(&granted.to_string())
    };
    let mut bad: Vec<(String, Vec<ServerAct>)> = misdeeds(decoy)
        .into_iter()
        .map(|(name, acts)| (name.to_owned(), acts))
        .collect();
    let own = [
        (
            "access_token",
            vec![
                json!("a\r\nx-injected: 1"),
                json!("a\u{1b}[2Jb"),
                json!("x".repeat(500_000)),
                json!(""),
            ],
        ),
        (
            "access_token",
            vec![
                json!("a b"),
                json!("t\u{f6}ken"),
                json!(7),
                json!(null),
                json!(["a"]),
                json!("a\u{0}b"),
            ],
        ),
        (
            "token_type",
            vec![
                json!("N_A"),
                json!("DPoP"),
                json!("mac"),
                json!(null),
                json!(7),
                json!("Bearer "),
            ],
        ),
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
    for (number, (name, value)) in own
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name, value)))
        .enumerate()
    {
        bad.push((
            format!("{}-{number}", name.replace('_', "-")),
            with(name, value),
        ));
    }
    bad.push((
        "error".to_owned(),
        text(
            "400 No",
            "",
            "{\"error\":\"invalid_grant\",\"access_token\":\"x\"}",
        ),
    ));
    bad.push((
        "twice".to_owned(),
        said("{\"access_token\":\"a\",\"access_token\":\"b\",\"token_type\":\"Bearer\"}"),
    ));
    // Values that weir sent itself, as if they were the answer: the caller's token, and weir's own
    // secret.
    for name in ["echo-of-the-token", "echo-of-the-secret"] {
        bad.push((name.to_owned(), Vec::new()));
    }
    // A false lifetime of a token does no harm.
    let lies = [
        json!(-1),
        json!("soon"),
        json!(0),
        json!(1e300),
        json!(true),
        json!(null),
        json!({}),
        json!(0.001),
    ];
    let lies: Vec<(String, Vec<ServerAct>)> = (lies.into_iter().enumerate())
        .map(|(number, value)| {
            let mut granted = granted(&format!("good-{number}"));
            granted["expires_in"] = value;
            (format!("lie-{number}"), said(&granted.to_string()))
        })
        .collect();
    [bad, lies]
}

/// Asserts that an upstream got only tokens that are for it.
fn only_tokens_were_shown(upstream: &MockServer) {
    for request in upstream.requests() {
        let shown = request.header("authorization").unwrap_or_default();
        let is_good = shown == "Bearer weirs-own"
            || shown
                .strip_prefix("Bearer good-")
                .is_some_and(|n| n.len() == 1);
        assert!(is_good, "an upstream was shown {shown:?}");
        assert!(request.header("x-injected").is_none());
    }
}

/// Starts a server that answers exchanges by these cases, and counts them in `exchanges`.
async fn exchange_server(
    cases: HashMap<String, Vec<ServerAct>>,
    exchanges: Arc<AtomicUsize>,
) -> ScriptedServer {
    ScriptedServer::start(move |request| {
        // Requests on weir's own account are answered well, so that the tools are known.
        if field(&request.text, "grant_type") == "client_credentials" {
            return said(&granted("weirs-own").to_string());
        }
        exchanges.fetch_add(1, Ordering::SeqCst);
        match path(request).trim_start_matches('/') {
            "echo-of-the-token" => {
                said(&granted(field(&request.text, "subject_token")).to_string())
            }
            "echo-of-the-secret" => said(&granted(SECRET).to_string()),
            name => cases.get(name).cloned().unwrap_or_default(),
        }
    })
    .await
}

/// Returns `good` without credentials, and one upstream and endpoint for each name whose tokens the
/// server at `origin` exchanges.
fn exchanging_upstreams<'a>(
    origin: &str,
    good: &MockServer,
    victim: &MockServer,
    names: impl Iterator<Item = &'a String>,
) -> (Value, Value) {
    let mut upstreams = json!({ "good": { "url": good.url() } });
    let mut endpoints = json!({ "/good": { "upstream": "good" } });
    for name in names {
        let endpoint = format!("{origin}/{name}");
        let auth = json!({
            "mode": "token_exchange", "token_endpoint": endpoint, "client_id": "weir", "client_secret": SECRET,
        });
        upstreams[name] = json!({ "url": victim.url(), "auth": auth });
        endpoints[format!("/x/{name}")] = json!({ "upstream": name });
    }
    (upstreams, endpoints)
}

/// Asserts that a call failed because its upstream is unavailable, and shows no token.
fn is_unavailable(name: &str, answer: &ClientAnswer, token: &str) {
    assert_eq!(answer.status, 200, "{name}: {:?}", answer.body);
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.last()["result"]["isError"], true, "{name}: {body}");
    assert_eq!(
        answer.result()["_meta"]["dev.weir/error"]["reason"],
        "unavailable",
        "{name}: {body}"
    );
    assert!(
        !body.contains("CANARY") && !body.contains(token),
        "{name}: {body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_get_only_valid_exchanged_tokens() {
    let (decoy, idp) = (decoy().await, IdentityProvider::start().await);
    let [bad, lies] = exchanges(&decoy.origin());
    let names = |cases: &[(String, Vec<ServerAct>)]| {
        cases
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    let (bad_names, lie_names) = (names(&bad), names(&lies));
    let endless = bad_names
        .iter()
        .filter(|name| name.starts_with("endless"))
        .count();
    let cases: HashMap<String, Vec<ServerAct>> = bad.into_iter().chain(lies).collect();
    let exchanges = Arc::new(AtomicUsize::new(0));
    let server = exchange_server(cases, exchanges.clone()).await;
    let (good, victim) = (
        good().await,
        MockServer::modern()
            .tool("t", MockBehaviour::echo())
            .start()
            .await,
    );
    let (upstreams, endpoints) = exchanging_upstreams(
        &server.origin(),
        &good,
        &victim,
        bad_names.iter().chain(&lie_names),
    );
    let issuer = json!({ "issuer": idp.issuer(), "audience": ["weir"] });
    let (key, entry) = api_key("bystander");
    let weir = tokio::task::block_in_place(|| {
        Weir::with_config(json!({
            "auth": { "mode": "required", "issuers": [issuer], "api_keys": [entry] },
            "upstreams": upstreams, "endpoints": endpoints,
        }))
    });
    let token = idp.token("ada", "weir");
    let at = |name: &str| bearer(&weir.url(&format!("/x/{name}")), &token).modern();
    for name in &lie_names {
        gets_in(&at(name), "t").await;
    }
    let bystander = Bystander::start_beside(
        &weir,
        RawClient::new(&weir.url("/good"))
            .modern()
            .with_header("X-API-Key", &key),
    );
    let mut calls = JoinSet::new();
    for name in bad_names.clone() {
        let client = at(&name);
        calls.spawn(async move {
            // The second comes while weir knows that there is no token.
            let mut answers = Vec::new();
            for _ in 0..2 {
                answers.push(client.call("t", json!({})).await);
            }
            (name, answers)
        });
    }
    for (name, answers) in within_test_timeout("every answer", calls.join_all()).await {
        for answer in answers {
            let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
            is_unavailable(&name, &answer, &token);
        }
    }
    let figures = bystander
        .finish("an authorization server that exchanges tokens for all it can think of")
        .await;
    figures.assert_none_refused();
    assert!(
        figures.grown <= MAX_GROWN,
        "{} MiB more",
        figures.grown >> 20
    );
    only_tokens_were_shown(&victim);
    assert_eq!(decoy.accepted(), 0, "a redirect was followed");
    assert!(
        server.written() <= endless * 2 * MAX_TAKEN,
        "weir took {} MiB",
        server.written() >> 20
    );
    let asked = exchanges.load(Ordering::SeqCst);
    assert!(
        asked <= 2 * bad_names.len() + 20 * lie_names.len(),
        "{asked} exchanges"
    );
    let log = weir.process.output();
    assert!(!log.contains("panicked") && !log.contains('\u{1b}'));
    assert!(
        !log.contains(&token) && !log.contains(SECRET) && !log.contains("CANARY"),
        "a secret in the log"
    );
}
