//! The agreement of the files around the code (OpenAPI, container, units, manifests) with the code:
//! paths, ports, configs. And of the profiles of builds with each other.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use weir_admin::ROUTES;
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_core::names::UpstreamId;
use weir_front::{SSE_PATHS, WELL_KNOWN_PATHS};
use weir_schema::{CompiledSchema, SchemaVerdict, verdict};

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn config(text: &str) -> Config {
    let key = |name: &str| match name {
        "WEIR_KEY" => Some("AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA".to_owned()),
        "WEIR_ADMIN_TOKEN" => Some("weir_0123456789_operators-of-a-test".to_owned()),
        _ => None,
    };
    let source = ConfigSource::Text {
        name: "packaged".to_owned(),
        text: text.to_owned(),
    };
    let outcome = ConfigLoader::new(source, &key).load();
    assert!(outcome.report.problems().is_empty(), "{}", outcome.report);
    outcome.config.unwrap()
}

/// Returns the default ports of the code.
fn ports() -> (u16, u16) {
    let config = config("upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }");
    (
        config.front.listen.port(),
        config.admin.as_ref().unwrap().listen.port(),
    )
}

/// `dist` and `prove` inherit the settings of single packages from `release`, which leaves all others
/// unoptimized.
#[test]
fn deployed_builds_and_proofs_optimize_all_packages() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let profiles = manifest["profile"].as_table().unwrap();
    let [trials, deployed, proofs] = ["release", "dist", "prove"].map(|name| &profiles[name]);
    let level = |settings: &toml::Value| settings["opt-level"].as_integer();
    assert_eq!(deployed["inherits"].as_str(), Some("release"));
    assert_eq!(level(deployed), Some(3));
    assert_eq!(proofs["inherits"].as_str(), Some("dist"));
    assert_eq!(
        (deployed.get("package"), proofs.get("package")),
        (None, None)
    );
    assert!(level(proofs) > Some(0));
    let single = trials["package"].as_table().unwrap();
    assert!(!single.is_empty());
    for (package, settings) in single {
        assert_eq!(level(settings), Some(3), "{package}");
    }
}

#[test]
fn the_openapi_file_has_exactly_the_routes_there_are() {
    let document = yaml(&read("openapi/weir.yaml"));
    let paths = document["paths"].as_object().unwrap();
    let found: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    let default = config("upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }").endpoints[0]
        .id
        .to_string();
    let own_metadata = format!("{}{default}", WELL_KNOWN_PATHS[0]);
    let metadata = WELL_KNOWN_PATHS.into_iter().chain([own_metadata.as_str()]);
    let line = SSE_PATHS.map(|end| format!("{default}{end}"));
    let ours = [default.as_str(), line[0].as_str(), line[1].as_str()];
    let expected: BTreeSet<&str> = ROUTES
        .into_iter()
        .map(|(path, _)| path)
        .chain(ours)
        .chain(metadata.clone())
        .collect();
    assert_eq!(found, expected);
    let methods = |path: &str| -> BTreeSet<&str> {
        let operations = ["get", "put", "post", "delete", "options", "head", "patch"];
        paths[path]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|key| operations.contains(key))
            .collect()
    };
    assert_eq!(methods(&default), BTreeSet::from(["post", "get", "delete"]));
    assert_eq!(
        line.each_ref().map(|path| methods(path)),
        [BTreeSet::from(["get"]), BTreeSet::from(["post"])]
    );
    for (route, method) in ROUTES.into_iter().chain(metadata.map(|path| (path, "get"))) {
        assert_eq!(methods(route), BTreeSet::from([method]), "{route}");
    }
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let (clients, operators) = ports();
    let server = |path: &str| {
        paths[path]["servers"][0]["url"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(server("/mcp").ends_with(&format!(":{clients}")));
    assert!(server("/metrics").ends_with(&format!(":{operators}")));
}

/// Returns the statuses that an operation declares.
fn declared_statuses(operation: &Value) -> BTreeSet<u16> {
    let responses = operation["responses"].as_object().unwrap();
    responses.keys().map(|key| key.parse().unwrap()).collect()
}

#[test]
fn openapi_file_has_every_refusal_of_an_endpoint() {
    let document = yaml(&read("openapi/weir.yaml"));
    let declared = declared_statuses(&document["paths"]["/mcp"]["post"]);
    // POST is allowed, and replicas alone get 421.
    let refused: BTreeSet<u16> = weir_front::refusal_table()
        .iter()
        .map(|row| row.status)
        .filter(|status| ![405, 421].contains(status))
        .collect();
    assert!(refused.is_subset(&declared), "{refused:?} {declared:?}");
}

#[test]
fn openapi_file_lets_operators_name_replicas_on_every_admin_path() {
    let document = yaml(&read("openapi/weir.yaml"));
    let named = serde_json::json!({ "$ref": "#/components/parameters/Replicas" });
    let of_all = serde_json::json!({ "$ref": "#/components/schemas/ReplicaAnswers" });
    for (path, method) in ROUTES {
        if !path.starts_with("/admin/") {
            continue;
        }
        let entry = &document["paths"][path];
        let parameters = entry["parameters"].as_array().unwrap();
        assert!(parameters.contains(&named), "{path}");
        let operation = &entry[method];
        // An unknown replica, one that cannot be reached, and one that is busy.
        let expected = BTreeSet::from([404, 502, 503]);
        assert!(expected.is_subset(&declared_statuses(operation)), "{path}");
        let done = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(
            done["anyOf"].as_array().unwrap().contains(&of_all),
            "{path}"
        );
    }
}

#[test]
fn openapi_ids_of_upstreams_are_those_that_weir_accepts() {
    let document = yaml(&read("openapi/weir.yaml"));
    for path in ["/upstreams/{id}", "/admin/upstreams/{id}/disable"] {
        let id = &document["paths"][path]["parameters"][0]["schema"];
        let schema = serde_json::json!({ "type": "object", "properties": { "id": id } });
        let schema = CompiledSchema::compile(schema.to_string().as_bytes()).unwrap();
        for text in [
            "a",
            "files-2",
            "Files",
            "2files",
            "a_b",
            &"a".repeat(24),
            &"a".repeat(25),
        ] {
            let body = serde_json::json!({ "id": text }).to_string();
            assert_eq!(
                matches!(verdict(&schema, body.as_bytes()), SchemaVerdict::Fits),
                UpstreamId::new(text).is_ok(),
                "{path}: {text}"
            );
        }
    }
}

/// A client that validates its requests by the document sends every duration that weir accepts.
#[test]
fn openapi_durations_are_those_that_weir_accepts() {
    let document = yaml(&read("openapi/weir.yaml"));
    let of_block = "/paths/~1admin~1principals~1block/post/requestBody/content/application~1json/schema/properties/ttl";
    for pointer in [of_block, "/components/schemas/Lasting/properties/ttl"] {
        let ttl = document.pointer(pointer).unwrap();
        let schema = serde_json::json!({ "type": "object", "properties": { "ttl": ttl } });
        let schema = CompiledSchema::compile(schema.to_string().as_bytes()).unwrap();
        for (text, is_valid) in [
            ("500ms", true),
            ("30 m", true),
            ("10000s", true),
            ("12h", true),
            ("30d", true),
            ("0s", false),
            ("5x", false),
            ("1h30m", false),
        ] {
            let body = serde_json::json!({ "ttl": text }).to_string();
            let found = verdict(&schema, body.as_bytes());
            assert_eq!(
                matches!(found, SchemaVerdict::Fits),
                is_valid,
                "{pointer}: {text}"
            );
        }
    }
}

/// Returns the instructions of the Dockerfile, each with its words on one line.
fn dockerfile() -> Vec<String> {
    let text = read("Dockerfile");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let instructions = joined
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    instructions.filter(|line| !line.is_empty()).collect()
}

#[test]
fn dockerfile_matches_the_code() {
    let (clients, operators) = ports();
    let instructions = dockerfile();
    let has = |wanted: &str| {
        assert!(
            instructions.iter().any(|line| line == wanted),
            "{wanted} in {instructions:#?}"
        )
    };
    has(&format!("EXPOSE {clients} {operators}"));
    has("STOPSIGNAL SIGTERM");
    has(r#"ENTRYPOINT ["/usr/local/bin/weir"]"#);
    has(r#"CMD ["serve"]"#);
    has("ENV WEIR_CONFIG=/etc/weir/weir.yaml");
    has("ENV WEIR_ADDRESS_FILE=/dev/shm/weir-addresses.json");
    has("USER 65532:65532");
    let toolchain = read("Cargo.toml").lines().find_map(|line| {
        line.strip_prefix("rust-version = ")
            .map(|version| version.trim_matches('"').to_owned())
    });
    assert!(
        instructions[0].starts_with(&format!("FROM rust:{}-", toolchain.unwrap())),
        "{}",
        instructions[0]
    );
    let version = format!(
        "org.opencontainers.image.version=\"{}\"",
        env!("CARGO_PKG_VERSION")
    );
    assert!(
        instructions
            .iter()
            .any(|line| line.starts_with("LABEL ") && line.contains(&version)),
        "{version}"
    );
    let health = instructions
        .iter()
        .find(|line| line.starts_with("HEALTHCHECK "))
        .unwrap();
    assert!(
        health.ends_with(r#"CMD ["/usr/local/bin/weir", "health", "--alive"]"#),
        "{health}"
    );
    let last = instructions
        .iter()
        .rposition(|line| line.starts_with("FROM "))
        .unwrap();
    assert!(
        !instructions[last..]
            .iter()
            .any(|line| line.starts_with("RUN ")),
        "there is no shell in that image"
    );
    let ignored = read(".dockerignore");
    for own in ["target", "**/node_modules", "**/.venv*", ".git"] {
        assert!(
            ignored.lines().any(|line| line == own),
            "{own} would be sent to every build"
        );
    }
}

#[test]
fn kubernetes_base_matches_the_code() {
    let manifest = |name: &str| yaml(&read(&format!("deploy/kubernetes/base/{name}.yaml")));
    let overlay = yaml(&read("deploy/kubernetes/overlays/development/config.yaml"));
    let config = config(overlay["data"]["weir.yaml"].as_str().unwrap());
    // The overlay chooses `auth`: the base only patches a config map, so it does not render without
    // one.
    assert!(manifest("config").get("data").is_none());
    assert_eq!(
        manifest("config")["metadata"]["name"],
        overlay["metadata"]["name"]
    );
    assert_eq!(manifest("kustomization")["kind"], "Component");
    assert_eq!(
        manifest("kustomization")["patches"][0]["path"],
        "config.yaml"
    );
    let values = yaml(&read("deploy/helm/weir/values.yaml"));
    assert!(
        values["config"].get("auth").is_none(),
        "the chart has no default for `auth`"
    );
    let deployment = manifest("deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(port("mcp"), u64::from(config.front.listen.port()));
    assert_eq!(
        port("admin"),
        u64::from(config.admin.as_ref().unwrap().listen.port())
    );
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert!(ROUTES.contains(&(path, "get")));
    }
    assert_eq!(
        container["image"],
        format!("weir:{}", env!("CARGO_PKG_VERSION"))
    );
    let before_the_signal = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_u64()
        .unwrap();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > before_the_signal + config.drain.as_secs());
    assert_eq!(
        deployment["spec"]["replicas"], 1,
        "sessions live in the memory of one replica"
    );
}

#[test]
fn systemd_unit_and_scrape_config_match_the_code() {
    let unit = read("deploy/systemd/weir.service");
    assert!(unit.contains("ExecStart=/usr/local/bin/weir serve --config /etc/weir/weir.yaml"));
    assert!(unit.contains("ExecReload=/bin/kill -HUP $MAINPID"));
    let stop = unit
        .lines()
        .find_map(|line| line.strip_prefix("TimeoutStopSec="))
        .unwrap();
    let drain = config("upstreams: { a: { command: x } }\n").drain;
    assert!(stop.trim_end_matches('s').parse::<u64>().unwrap() > drain.as_secs());
    let scrape = yaml(&read("deploy/prometheus/prometheus.yml"));
    let job = &scrape["scrape_configs"][0];
    assert!(ROUTES.contains(&(job["metrics_path"].as_str().unwrap(), "get")));
    let target = job["static_configs"][0]["targets"][0].as_str().unwrap();
    assert_eq!(target, format!("127.0.0.1:{}", ports().1));
}

/// Returns the schemas of a key in parts of a schema; references and alternatives are followed.
fn under<'a>(schema: &'a Value, found: Vec<&'a Value>, key: &str) -> Vec<&'a Value> {
    let mut next = Vec::new();
    let mut open = found;
    while let Some(node) = open.pop() {
        next.extend(
            node["properties"]
                .get(key)
                .or(Some(&node["additionalProperties"]).filter(|node| node.is_object())),
        );
        open.extend(
            ["anyOf", "oneOf", "allOf"]
                .iter()
                .filter_map(|word| node[word].as_array())
                .flatten(),
        );
        open.extend(
            node["$ref"]
                .as_str()
                .and_then(|name| schema.pointer(name.trim_start_matches('#'))),
        );
    }
    next
}

#[test]
fn config_keys_in_docs_exist() {
    let schema: Value = serde_json::from_str(&weir_config_file::schema::schema()).unwrap();
    let sections = schema["properties"].as_object().unwrap();
    let docs = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let pages = docs.chain(
        [
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
        ]
        .map(|name| root().join(name)),
    );
    let mut named = 0;
    for page in pages.filter(|page| page.extension().is_some_and(|kind| kind == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        // The text between backticks: a path of keys, perhaps with a value behind it. File names
        // are skipped.
        for code in text.split('`').skip(1).step_by(2) {
            let path: Vec<&str> = code
                .split(':')
                .next()
                .unwrap_or_default()
                .split('.')
                .collect();
            let is_key = |word: &&str| {
                !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            };
            if path.len() < 2
                || !path.iter().all(is_key)
                || !sections.contains_key(path[0])
                || path[1] == "cedarschema"
            {
                continue;
            }
            let found = path
                .iter()
                .fold(vec![&schema], |found, key| under(&schema, found, key));
            assert!(!found.is_empty(), "{} names `{code}`", page.display());
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}
