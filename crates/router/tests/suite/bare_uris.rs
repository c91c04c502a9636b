//! URIs on an endpoint without prefixes (`prefix: none`): each that an upstream lists, or writes into
//! a result, leads to that upstream.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_core::endpoint::NamePrefix;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::upstream::{ListKind, Upstream};
use weir_core::{CapabilityClass, Reply};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_by, end, raw};
use crate::support::{CatalogWorld, GateRule, ScriptedUpstream, endpoint, exposed};

/// An upstream with these resources and templates. Its results name it, and have these links.
fn server(
    id: &str,
    resources: &[&str],
    templates: &[&str],
    links: &[&str],
) -> Arc<ScriptedUpstream> {
    let fake = ScriptedUpstream::new(id, &["links"]);
    let link = |uri: &&str| json!({ "type": "resource_link", "uri": uri, "name": "l" });
    let links: Vec<Value> = links.iter().map(link).collect();
    let result = json!({ "content": links, "contents": [], "completion": {}, "by": id });
    fake.set(|script| {
        script.has_resources = true;
        let listed = |key: &str, uri: &&str| raw(&json!({ key: uri, "name": "r" }));
        script.resources = resources.iter().map(|uri| listed("uri", uri)).collect();
        script.templates = templates
            .iter()
            .map(|uri| listed("uriTemplate", uri))
            .collect();
        script.answer = Box::new(move |_| {
            let payload = Payload::Whole(Bytes::from(result.to_string()));
            Reply::ended(ReplyEnd::Complete(payload))
        });
    });
    fake
}

async fn shown_without_prefix(fakes: &[&Arc<ScriptedUpstream>]) -> RouterWorld {
    let world = CatalogWorld::of(&[]);
    world.show(fakes, NamePrefix::None, 1000);
    world.settled().await;
    for kind in [ListKind::Resources, ListKind::Templates] {
        let class = CapabilityClass::BASE;
        world.catalog.settled_view(&endpoint(), kind, class).await;
    }
    RouterWorld::of(world)
}

async fn ask(world: &RouterWorld, method: Method, params: Value) -> ReplyEnd {
    let call = asked_by("bob", &endpoint(), method, raw(&params)).await;
    end(world.router.call(call).await).await
}

async fn result(world: &RouterWorld, method: Method, params: Value) -> Value {
    let answer = ask(world, method, params.clone()).await;
    let ReplyEnd::Complete(Payload::Whole(bytes)) = answer else {
        panic!("{params}: {answer:?}")
    };
    serde_json::from_slice(&bytes).unwrap()
}

/// The upstream that answers a read.
async fn reader(world: &RouterWorld, uri: &str) -> Value {
    result(world, Method::ResourcesRead, json!({ "uri": uri })).await["by"].take()
}

fn list(world: &RouterWorld, kind: ListKind) -> Vec<String> {
    let view = world
        .world
        .catalog
        .view(&endpoint(), kind, CapabilityClass::BASE);
    let view = view.unwrap();
    let names = exposed(&view);
    names.into_iter().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_link_leads_to_the_upstream_that_wrote_it() {
    let notes = server("notes", &["memo:both"], &["pad:{id}"], &[]);
    let links = [
        "git+ssh://host/x",
        "ui://git/page",
        "memo:both",
        "memo:own",
        "pad:1",
        "https://x",
    ];
    let own = ["git+ssh://host/x", "memo:both", "memo:own"];
    let code = server("code", &own, &[], &links);
    let git = server("git", &[], &[], &[]);
    let world = shown_without_prefix(&[&notes, &code, &git]).await;
    let names = [
        "memo:both",
        "code+git+ssh://host/x",
        "code+memo:both",
        "memo:own",
    ];
    assert_eq!(list(&world, ListKind::Resources), names);
    let name = json!({ "name": "code__links" });
    let linked = result(&world, Method::ToolsCall, name).await;
    let uris: Vec<&str> = linked["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| link["uri"].as_str().unwrap())
        .collect();
    let expected = [
        "code+git+ssh://host/x",
        "ui://code/git/page",
        "code+memo:both",
        "memo:own",
        "code+pad:1",
        // Read by nobody here.
        "https://x",
    ];
    assert_eq!(uris, expected);
    for uri in &uris[..5] {
        assert_eq!(reader(&world, uri).await, "code", "{uri}");
    }
    assert_eq!(reader(&world, "memo:both").await, "notes");
    assert_eq!(reader(&world, "pad:1").await, "notes");
}

#[tokio::test(start_paused = true)]
async fn a_template_expands_to_uris_of_its_own_upstream_only() {
    let templates = ["{scheme}://{path}", "g{rest}", "ui://{page}", "memo:{id}"];
    let code = server("code", &[], &templates, &[]);
    let git = server("git", &[], &[], &[]);
    let world = shown_without_prefix(&[&code, &git]).await;
    let names = [
        "code+{scheme}://{path}",
        "code+g{rest}",
        "ui://code/{page}",
        "memo:{id}",
    ];
    assert_eq!(list(&world, ListKind::Templates), names);
    for uri in ["code+git+ssh://host/x", "ui://code/git/page", "memo:1"] {
        assert_eq!(reader(&world, uri).await, "code", "{uri}");
    }
    // A template is still found under its native text.
    for template in templates {
        let reference = json!({ "type": "ref/resource", "uri": template });
        let argument = json!({ "name": "id", "value": "" });
        let params = json!({ "ref": reference, "argument": argument });
        let answer = result(&world, Method::CompletionComplete, params).await;
        assert_eq!(answer["by"], "code", "{template}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_of_a_tool_is_that_of_its_own_upstream() {
    let tool = |name: &str| {
        raw(&json!({ "name": name, "_meta": { "ui": { "resourceUri": "ui://page" } } }))
    };
    let (one, two) = (
        server("one", &["ui://page"], &[], &[]),
        server("two", &["ui://page"], &[], &[]),
    );
    for fake in [&one, &two] {
        let name = format!("of-{}", fake.id());
        fake.set(|script| script.tools = vec![tool(&name)]);
    }
    let world = shown_without_prefix(&[&one, &two]).await;
    let view = world.world.view();
    for (name, server) in [("of-one", "one"), ("of-two", "two")] {
        let item = view.find(name).item().unwrap();
        let shown: Value = serde_json::from_slice(&item.tool.raw).unwrap();
        let uri = shown["_meta"]["ui"]["resourceUri"].as_str().unwrap();
        assert_eq!(reader(&world, uri).await, server, "{uri}");
    }
    // With one upstream, the page has one name.
    let world = shown_without_prefix(&[&one]).await;
    let view = world.world.view();
    let shown: Value = serde_json::from_slice(&view.items[0].tool.raw).unwrap();
    assert_eq!(shown["_meta"]["ui"]["resourceUri"], "ui://page");
}

#[tokio::test(start_paused = true)]
async fn a_listed_resource_has_the_same_rules_under_its_prefixed_name() {
    let code = server("code", &["memo:secret", "memo:open"], &[], &[]);
    let git = server("git", &[], &[], &[]);
    let world = shown_without_prefix(&[&code, &git]).await;
    world.gate.rule("bob", "=memo:secret", GateRule::Hidden);
    assert_eq!(reader(&world, "code+memo:open").await, "code");
    for uri in ["memo:secret", "code+memo:secret"] {
        let answer = ask(&world, Method::ResourcesRead, json!({ "uri": uri })).await;
        assert!(matches!(answer, ReplyEnd::Failed(_)), "{uri}: {answer:?}");
    }
    assert_eq!(ScriptedUpstream::count(&code.calls), 1);
}

/// A URI means the same upstream while that is away: no other one answers in its place.
#[tokio::test(start_paused = true)]
async fn bare_uris_of_an_upstream_that_is_away_lead_nowhere_else() {
    let notes = server("notes", &["memo:both"], &["pad:{id}"], &[]);
    let links = ["memo:both", "memo:own", "pad:1"];
    let own = ["memo:both", "memo:own"];
    let code = server("code", &own, &["pad:{name}"], &links);
    let world = shown_without_prefix(&[&notes, &code]).await;
    assert_eq!(reader(&world, "memo:both").await, "notes");
    assert_eq!(reader(&world, "pad:1").await, "notes");
    notes.set(|script| script.refuse = true);
    notes.cut();
    // Longer than the last good items stay.
    tokio::time::sleep(std::time::Duration::from_secs(400)).await;
    assert_eq!(
        list(&world, ListKind::Resources),
        ["code+memo:both", "memo:own"]
    );
    for uri in ["memo:both", "pad:1"] {
        let ended = ask(&world, Method::ResourcesRead, json!({ "uri": uri })).await;
        let ReplyEnd::Failed(failure) = ended else {
            panic!("{uri}: {ended:?}")
        };
        assert_eq!(failure.reason(), "unavailable", "{uri}");
    }
    assert_eq!(reader(&world, "memo:own").await, "code");
    let name = json!({ "name": "code__links" });
    let linked = result(&world, Method::ToolsCall, name).await;
    let links = linked["content"].as_array().unwrap();
    let uris: Vec<&str> = links
        .iter()
        .filter_map(|link| link["uri"].as_str())
        .collect();
    assert_eq!(uris, ["code+memo:both", "memo:own", "code+pad:1"]);
}
