//! `deploy/compose/replicas.yml`: its parts agree with each other, with the file that it extends, and
//! with weir's config.

use serde_json::Value;

use super::compose::{compose, dependencies, services};
use super::{check, compose_config, entries, port, read, root};

/// The file with several replicas, and its folder.
const REPLICAS: &str = "deploy/compose/replicas.yml";
const REPLICAS_FOLDER: &str = "deploy/compose";

#[test]
fn replicas_are_reached_through_the_balancer_and_share_a_store() {
    let (replicas, single) = (
        serde_saphyr::from_str::<Value>(&read(REPLICAS)).unwrap(),
        compose(),
    );
    let parts = services(&replicas);
    for (name, service) in parts {
        if let Some(extended) = service["extends"]["service"].as_str() {
            assert_eq!(service["extends"]["file"], "../../docker-compose.yml");
            let original = &services(&single)[extended];
            for mount in entries(&original["volumes"]) {
                let volume = mount.as_str().unwrap().split(':').next().unwrap();
                assert!(
                    replicas["volumes"].get(volume).is_some(),
                    "{name}: {volume}"
                );
            }
        }
        for mount in entries(&service["volumes"]) {
            let from = mount.as_str().unwrap().split(':').next().unwrap();
            let is_there = from.strip_prefix("./").map_or_else(
                || replicas["volumes"].get(from).is_some(),
                |path| root().join(REPLICAS_FOLDER).join(path).exists(),
            );
            assert!(is_there, "{name}: {from}");
        }
        for dependency in dependencies(service) {
            assert!(parts.contains_key(dependency), "{name}: {dependency}");
        }
    }
    let file = "replicas.yaml";
    let (_secrets, here) = compose_config(file);
    check(file, &here);
    let config: Value = serde_saphyr::from_str(&here).unwrap();
    let weir = &parts["weir"];
    assert_eq!(
        weir["environment"]["WEIR_CONFIG"],
        "/etc/weir/replicas.yaml"
    );
    assert!(weir["deploy"]["replicas"].as_u64() > Some(1));
    // A published port would be one replica's.
    assert!(weir.get("ports").is_none());
    let exposed = [
        &config["listen"],
        &config["admin"]["listen"],
        &config["cluster"]["listen"],
    ];
    for address in exposed {
        let port = Value::from(port(address).to_string());
        assert!(entries(&weir["expose"]).contains(&port), "{port}");
    }
    let redis = &parts["redis"];
    let store = config["store"].as_str().unwrap();
    let store_port = store.strip_prefix("redis://redis:").unwrap();
    assert!(entries(&redis["expose"]).contains(&Value::from(store_port)));
    for word in ["--appendonly", "noeviction"] {
        assert!(entries(&redis["command"]).contains(&Value::from(word)));
    }
    assert_eq!(weir["depends_on"]["redis"]["condition"], "service_healthy");
    assert!(!redis["healthcheck"].is_null());
}

#[test]
fn balancer_finds_ready_replicas() {
    let config: Value = serde_saphyr::from_str(&read("deploy/compose/weir/replicas.yaml")).unwrap();
    let balancer = read("deploy/compose/balancer/haproxy.cfg");
    let (clients, operators) = (port(&config["listen"]), port(&config["admin"]["listen"]));
    assert!(balancer.contains(&format!("weir:{clients} resolvers containers")));
    assert!(balancer.contains(&format!("check port {operators} ")));
    assert!(balancer.contains("meth GET uri /readyz"));
    assert!(entries(&config["admin"]["allowed_hosts"]).contains(&Value::from("weir")));
    let replicas: Value = serde_saphyr::from_str(&read(REPLICAS)).unwrap();
    let published = &replicas["services"]["balancer"]["ports"][0];
    assert_eq!(published, "127.0.0.1:8080:8080");
    assert!(balancer.contains("bind :8080"));
    // A client cancels a call by its disconnect.
    assert!(balancer.contains("\n    option abortonclose\n"));
}
