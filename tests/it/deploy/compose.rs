//! `docker-compose.yml`: its mounts exist, its names agree, and weir accepts its configs. A parser
//! of the compose specification checks its syntax, beside the manifests.

use std::path::Path;

use serde_json::Value;
use weir_testkit::TestFolder;

use super::{check, compose_config, entries, port, read, root};

pub(super) fn compose() -> Value {
    serde_saphyr::from_str(&read("docker-compose.yml")).unwrap()
}

pub(super) fn services(compose: &Value) -> &serde_json::Map<String, Value> {
    compose["services"].as_object().unwrap()
}

/// Returns the services that a service waits for.
pub(super) fn dependencies(service: &Value) -> Vec<&str> {
    let listed = entries(&service["depends_on"])
        .iter()
        .filter_map(Value::as_str);
    listed
        .chain(
            service["depends_on"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str()),
        )
        .collect()
}

/// Returns the volume at a path of a service.
fn mounted<'a>(service: &'a Value, path: &str) -> Option<&'a str> {
    let mounts = entries(&service["volumes"])
        .iter()
        .filter_map(Value::as_str);
    mounts
        .filter_map(|mount| mount.split_once(':'))
        .find(|(_, at)| at.split(':').next() == Some(path))
        .map(|(from, _)| from)
}

#[test]
fn compose_mounts_exist_and_images_are_pinned() {
    let compose = compose();
    for (name, service) in services(&compose) {
        let image = service["image"]
            .as_str()
            .unwrap_or_else(|| panic!("{name} has no image"));
        let tag = image
            .rsplit_once(':')
            .map(|(_, tag)| tag)
            .unwrap_or_default();
        assert!(
            tag.contains('.')
                && tag.starts_with(|first: char| first == 'v' || first.is_ascii_digit()),
            "{image}"
        );
        for mount in entries(&service["volumes"]) {
            let mut parts = mount.as_str().unwrap().split(':');
            let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
            assert!(to.starts_with('/'), "{mount}");
            match from.strip_prefix("./") {
                Some(path) => {
                    assert!(root().join(path).exists(), "{name}: {path} is not there");
                    assert_eq!(parts.next(), Some("ro"), "{name} could write {path}");
                }
                None => assert!(
                    compose["volumes"].get(from).is_some(),
                    "{name}: no volume {from}"
                ),
            }
        }
        for published in entries(&service["ports"]) {
            assert!(
                published.as_str().unwrap().starts_with("127.0.0.1:"),
                "{name} is open to the network: {published}"
            );
        }
        for dependency in dependencies(service) {
            assert!(
                services(&compose).contains_key(dependency),
                "{name} waits for {dependency}"
            );
        }
    }
}

/// A bare clone has the tracked files, and no environment.
#[test]
fn it_starts_from_a_bare_clone_without_anything_set() {
    let compose = compose();
    let tracked = super::run_checked(
        std::process::Command::new("git")
            .arg("ls-files")
            .current_dir(root()),
    );
    let is_tracked = |path: &str| {
        let path = path.trim_start_matches("./");
        tracked.lines().any(|file| {
            file == path
                || file
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    for (name, service) in services(&compose) {
        assert!(
            service.get("env_file").is_none(),
            "{name} reads a file that no clone has"
        );
        for mount in entries(&service["volumes"])
            .iter()
            .filter_map(Value::as_str)
            .filter(|mount| mount.starts_with("./"))
        {
            let path = mount.split(':').next().unwrap();
            assert!(is_tracked(path), "{name}: {path} is not in a clone");
        }
        if let Some(folder) = service["build"].as_str() {
            assert!(
                is_tracked(&format!("{folder}/Dockerfile").replace("././", "./")),
                "{name}"
            );
        }
    }
    assert!(
        compose.get("secrets").is_none() && compose.get("configs").is_none(),
        "they would name files"
    );
    // `$$` is a dollar of a command's own. All other variables that Compose fills in have a
    // default.
    let text: String = read("docker-compose.yml")
        .lines()
        .filter(|line| !line.trim().starts_with('#'))
        .collect();
    for filled in text.replace("$$", "").split('$').skip(1) {
        let name = filled
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        assert!(
            name.is_some_and(|name| name.contains(":-")),
            "${filled:.40} has to be set"
        );
    }
}

#[test]
fn weir_takes_its_configs_and_finds_its_upstreams() {
    let compose = compose();
    let weir = &services(&compose)["weir"];
    for file in ["weir.yaml", "oauth.yaml"] {
        let text = read(&format!("deploy/compose/weir/{file}"));
        let (_secrets, here) = compose_config(file);
        check(file, &here);
        let config: Value = serde_saphyr::from_str(&text).unwrap();
        for address in [&config["listen"], &config["admin"]["listen"]] {
            let port = port(address);
            assert!(
                entries(&weir["ports"]).contains(&Value::from(format!("127.0.0.1:{port}:{port}"))),
                "{file}: {port}"
            );
        }
        let drain = std::time::Duration::from_secs(25);
        let grace: u64 = weir["stop_grace_period"]
            .as_str()
            .unwrap()
            .trim_end_matches('s')
            .parse()
            .unwrap();
        assert!(
            config.get("drain").is_none() && grace > drain.as_secs(),
            "{file}"
        );
        for (id, upstream) in config["upstreams"].as_object().unwrap() {
            let service = &services(&compose)[id];
            // `<<` is merged by Compose, not by this reader.
            let own = service["environment"]["PORT"].as_str().unwrap();
            let url = upstream["url"].as_str().unwrap();
            assert!(url.starts_with(&format!("http://{id}:{own}/")), "{url}");
            assert!(
                entries(&service["expose"]).contains(&Value::from(own)),
                "{id}"
            );
        }
    }
    let default = weir["environment"]["WEIR_CONFIG"].as_str().unwrap();
    assert!(default.ends_with(":-/etc/weir/weir.yaml}"), "{default}");
}

#[test]
fn secrets_are_made_at_the_first_start_and_each_has_one_reader() {
    let compose = compose();
    let text = read("docker-compose.yml");
    for variable in ["WEIR_KEY", "WEIR_ADMIN_TOKEN", "PASSWORD:-", ":-admin"] {
        assert!(
            !text.contains(variable),
            "{variable} has to be given, or has a default that everybody knows"
        );
    }
    let maker = &services(&compose)["secrets"];
    let script = maker["command"][2].as_str().unwrap();
    let readers = [
        ("weir", "weir-secrets", "/run/weir"),
        ("grafana", "grafana-secrets", "/run/grafana"),
        ("keycloak", "keycloak-secrets", "/run/keycloak"),
    ];
    for (reader, volume, path) in readers {
        let service = &services(&compose)[reader];
        assert_eq!(mounted(service, path), Some(volume), "{reader}");
        assert_eq!(
            mounted(maker, &format!("/secrets/{reader}")),
            Some(volume),
            "{reader}"
        );
        assert!(
            dependencies(service).contains(&"secrets"),
            "{reader} may start before its secrets are there"
        );
        assert_eq!(
            service["depends_on"]["secrets"]["condition"], "service_completed_successfully",
            "{reader}"
        );
        let others = services(&compose)
            .iter()
            .filter(|(name, _)| *name != reader && *name != "secrets");
        for (other, service) in others {
            let all = entries(&service["volumes"])
                .iter()
                .filter_map(Value::as_str);
            assert!(
                !all.into_iter().any(|mount| mount.starts_with(volume)),
                "{other} reads what is {reader}'s"
            );
        }
    }
    // The script makes the files that the configs name, and makes them once.
    let folder = TestFolder::new("made");
    let own = std::fs::metadata(folder.path()).unwrap();
    let own = std::os::unix::fs::MetadataExt::uid(&own);
    let run = || {
        let mut script = script
            .replace("$$", "$")
            .replace("/secrets/", &format!("{}/", folder.path().display()));
        for reader in [" 65532 ", " 472 ", " 1000 "] {
            script = script.replace(&format!("keep{reader}"), &format!("keep {own} "));
        }
        super::run_checked(std::process::Command::new("sh").args(["-ceu", &script]));
        let read = |name: &str| std::fs::read_to_string(folder.file(name)).unwrap();
        [
            "weir/key",
            "weir/admin-token",
            "grafana/password",
            "keycloak/password",
        ]
        .map(read)
    };
    for reader in ["weir", "grafana", "keycloak"] {
        std::fs::create_dir(folder.file(reader)).unwrap();
    }
    let first = run();
    assert_eq!(first, run());
    assert!(first.iter().all(|secret| secret.len() == 43), "{first:?}");
    assert_eq!(
        std::collections::BTreeSet::from(first).len(),
        4,
        "each is another"
    );
    for file in ["weir.yaml", "oauth.yaml"] {
        let config = read(&format!("deploy/compose/weir/{file}"));
        for secret in ["key", "admin-token"] {
            assert!(
                config.contains(&format!("${{file:/run/weir/{secret}}}")),
                "{file}"
            );
            assert!(script.contains(&format!("/secrets/weir/{secret}")));
        }
    }
}

#[test]
fn the_upstreams_are_those_the_tests_speak_to() {
    let lock: Value = serde_json::from_str(&read("tests/peers/node/package-lock.json")).unwrap();
    let version =
        &lock["packages"]["node_modules/@modelcontextprotocol/server-everything"]["version"];
    let package = format!(
        "@modelcontextprotocol/server-everything@{}",
        version.as_str().unwrap()
    );
    let compose = compose();
    for service in ["everything", "classic"] {
        assert!(
            entries(&services(&compose)[service]["command"])
                .contains(&Value::from(package.clone())),
            "{service}"
        );
    }
    assert!(read("deploy/kubernetes/overlays/development/everything.yaml").contains(&package));
}

#[test]
fn compose_mounts_match_prometheus_and_grafana_paths() {
    let compose = compose();
    let scrape: Value = serde_saphyr::from_str(&read("deploy/compose/prometheus.yml")).unwrap();
    assert_eq!(
        scrape["scrape_configs"][0]["static_configs"][0]["targets"][0],
        "weir:8081"
    );
    for file in ["weir.yaml", "oauth.yaml"] {
        let config: Value =
            serde_saphyr::from_str(&read(&format!("deploy/compose/weir/{file}"))).unwrap();
        assert!(
            entries(&config["admin"]["allowed_hosts"]).contains(&Value::from("weir")),
            "{file}"
        );
    }
    let target = |service: &str, path: &str| {
        entries(&services(&compose)[service]["volumes"])
            .iter()
            .filter_map(|mount| mount.as_str()?.split(':').nth(1))
            .any(|mounted| Path::new(path).starts_with(mounted))
    };
    let rules = scrape["rule_files"][0].as_str().unwrap();
    assert_eq!(rules, "rules/*.yml");
    assert!(target("prometheus", "/etc/prometheus/rules/alerts.yml"));
    assert!(target("prometheus", "/etc/prometheus/rules/recording.yml"));
    let sources: Value =
        serde_saphyr::from_str(&read("deploy/compose/grafana/datasources/prometheus.yaml"))
            .unwrap();
    assert_eq!(sources["datasources"][0]["url"], "http://prometheus:9090");
    assert_eq!(sources["datasources"][0]["uid"], "prometheus");
    let boards: Value =
        serde_saphyr::from_str(&read("deploy/compose/grafana/dashboards/weir.yaml")).unwrap();
    let folder = boards["providers"][0]["options"]["path"].as_str().unwrap();
    assert!(target("grafana", folder));
    let home =
        services(&compose)["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
            .as_str()
            .unwrap();
    let home = Path::new(home).strip_prefix(folder).unwrap();
    assert!(root().join("deploy/grafana").join(home).exists());
}

#[test]
fn the_identity_providers_tokens_are_for_weir() {
    let realm: Value =
        serde_json::from_str(&read("deploy/compose/keycloak/weir-realm.json")).unwrap();
    let config: Value = serde_saphyr::from_str(&read("deploy/compose/weir/oauth.yaml")).unwrap();
    let issuer = config["auth"]["issuers"][0]["issuer"].as_str().unwrap();
    let keycloak = &services(&compose())["keycloak"].clone();
    let public = keycloak["environment"]["KC_HOSTNAME"].as_str().unwrap();
    assert_eq!(
        issuer,
        format!("{public}/realms/{}", realm["realm"].as_str().unwrap())
    );
    let scope = entries(&realm["clientScopes"])
        .iter()
        .find(|scope| scope["name"] == "mcp")
        .unwrap();
    let audience = &scope["protocolMappers"][0]["config"]["included.custom.audience"];
    let endpoint = config["endpoints"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    assert_eq!(
        audience.as_str().unwrap(),
        format!("{}{endpoint}", config["public_url"].as_str().unwrap())
    );
    assert!(entries(&realm["clients"][0]["defaultClientScopes"]).contains(&Value::from("mcp")));
}
