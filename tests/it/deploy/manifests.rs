//! The chart and the overlays, rendered by Helm and Kustomize and valid by the Kubernetes schemas
//! (`deploy.py` does both), agree with themselves and with weir.

use serde_json::Value;

use super::{check, deploy_tool, entries, port, root, run_checked};
use crate::harness::{peers, peers_are_enabled};

/// The result of one rendering.
struct RenderedManifests<'a> {
    name: &'a str,
    objects: &'a [Value],
}

impl<'a> RenderedManifests<'a> {
    fn all(&self, kind: &str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .iter()
            .filter(move |object| object["kind"] == kind)
    }

    /// Returns weir's own object of a kind, not an upstream's.
    fn weirs(&self, kind: &str) -> &'a Value {
        let mut own = self
            .all(kind)
            .filter(|object| object["metadata"]["labels"]["app.kubernetes.io/name"] == "weir");
        own.next()
            .unwrap_or_else(|| panic!("{}: no {kind}", self.name))
    }

    fn pod(&self) -> &'a Value {
        &self.weirs("Deployment")["spec"]["template"]
    }

    fn is_selected(&self, selector: &Value) -> bool {
        let labels = &self.pod()["metadata"]["labels"];
        let wanted = selector.as_object().unwrap();
        !wanted.is_empty() && wanted.iter().all(|(name, value)| &labels[name] == value)
    }
}

fn container<'a>(rendered: &RenderedManifests<'a>) -> &'a Value {
    &rendered.pod()["spec"]["containers"][0]
}

fn the_config_is_weirs(rendered: &RenderedManifests<'_>) {
    let text = rendered.weirs("ConfigMap")["data"]["weir.yaml"]
        .as_str()
        .unwrap();
    check(rendered.name, text);
    let config: Value = serde_saphyr::from_str(text).unwrap();
    let declared = |name: &str| {
        let ports = entries(&container(rendered)["ports"]);
        ports
            .iter()
            .find(|port| port["name"] == name)
            .and_then(|port| port["containerPort"].as_u64())
    };
    assert_eq!(
        declared("mcp"),
        Some(port(&config["listen"])),
        "{}",
        rendered.name
    );
    assert_eq!(
        declared("admin"),
        Some(port(&config["admin"]["listen"])),
        "{}",
        rendered.name
    );
    // The host name of the operators' service is one that weir accepts.
    let service = rendered
        .all("Service")
        .find(|service| service["spec"]["ports"][0]["name"] == "admin")
        .unwrap();
    let name = service["metadata"]["name"].as_str().unwrap();
    for host in [name.to_owned(), format!("{name}.weir.svc")] {
        assert!(
            entries(&config["admin"]["allowed_hosts"]).contains(&Value::from(host.clone())),
            "{}: {host}",
            rendered.name
        );
    }
    assert!(
        config["auth"]["mode"].is_string(),
        "{}: nobody chose `auth`",
        rendered.name
    );
    let drain: u64 = config["drain"]
        .as_str()
        .unwrap()
        .trim_end_matches('s')
        .parse()
        .unwrap();
    let before = container(rendered)["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_u64()
        .unwrap();
    let grace = rendered.pod()["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap();
    assert!(
        grace > before + drain,
        "{}: killed after {grace} s, in the middle of its draining",
        rendered.name
    );
    // Environment variables in the config come from a secret, the address of the pod apart.
    let secret = &container(rendered)["envFrom"][0]["secretRef"];
    let named = ["${WEIR_KEY}", "${WEIR_ADMIN_TOKEN}"].map(|variable| text.contains(variable));
    assert_eq!(
        (named, secret["optional"] == true),
        if rendered.name == OAUTH {
            ([false; 2], true)
        } else {
            ([true; 2], false)
        }
    );
    let secret = &secret["name"];
    for made in rendered.all("Secret") {
        assert_eq!(&made["metadata"]["name"], secret);
        for name in ["WEIR_KEY", "WEIR_ADMIN_TOKEN"] {
            assert!(made["stringData"][name].is_string(), "{name}");
        }
    }
}

/// The rendering with logins of people and operators.
const OAUTH: &str = "helm oauth";

/// Helm merges maps. A key that a user writes replaces the default entirely all the same.
fn user_values_replace_chart_defaults_entirely(rendered: &RenderedManifests<'_>) {
    let text = rendered.weirs("ConfigMap")["data"]["weir.yaml"]
        .as_str()
        .unwrap();
    let config: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(
        config["auth"],
        serde_json::json!({ "mode": "oauth", "issuers": [{ "issuer": "https://id.example.com" }] })
    );
    assert_eq!(
        config["admin"]["auth"],
        serde_json::json!({ "oauth": { "scope": "weir:admin" } })
    );
    assert_eq!(config.get("keys"), None, "`keys: []` leaves them out");
    assert_eq!(
        config["upstreams"],
        serde_json::json!({ "search": { "url": "http://search:3001/mcp" } })
    );
    assert_eq!(
        (&config["listen"], &config["drain"]),
        (&Value::from("0.0.0.0:8080"), &Value::from("25s"))
    );
}

/// The renderings of replicas with a shared store.
const REPLICAS: [&str; 2] = ["helm replicas", "kustomize production"];

/// A replica listens for the others at the address of its pod, and the network policy admits only
/// them there. Replicas are spread, and one is evicted at a time.
fn replicas_reach_each_other(rendered: &RenderedManifests<'_>) {
    let text = rendered.weirs("ConfigMap")["data"]["weir.yaml"]
        .as_str()
        .unwrap();
    let config: Value = serde_saphyr::from_str(text).unwrap();
    let listen = port(&config["cluster"]["listen"]);
    assert_eq!(
        config["cluster"]["advertise"],
        format!("${{WEIR_POD_IP}}:{listen}")
    );
    let weir = container(rendered);
    assert!(
        entries(&weir["ports"])
            .contains(&serde_json::json!({ "name": "cluster", "containerPort": listen }))
    );
    assert_eq!(
        weir["env"][0]["valueFrom"]["fieldRef"]["fieldPath"],
        "status.podIP"
    );
    for (direction, peer) in [("ingress", "from"), ("egress", "to")] {
        let rules = rendered
            .all("NetworkPolicy")
            .flat_map(|policy| entries(&policy["spec"][direction]));
        let own: Vec<_> = rules
            .filter(|rule| rule["ports"][0]["port"] == "cluster")
            .collect();
        assert_eq!(own.len(), 1, "{}: {direction}", rendered.name);
        let peers = entries(&own[0][peer]);
        assert_eq!(peers.len(), 1);
        assert!(rendered.is_selected(&peers[0]["podSelector"]["matchLabels"]));
    }
    let clients = rendered
        .all("Service")
        .find(|service| service["spec"]["ports"][0]["name"] == "mcp")
        .unwrap();
    assert_eq!(clients["spec"]["sessionAffinity"], "None");
    let spread = entries(&rendered.pod()["spec"]["topologySpreadConstraints"]);
    let keys: Vec<_> = spread.iter().map(|one| &one["topologyKey"]).collect();
    assert_eq!(
        keys,
        ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    );
    for one in spread {
        assert!(rendered.is_selected(&one["labelSelector"]["matchLabels"]));
    }
    assert_eq!(rendered.all("PodDisruptionBudget").count(), 1);
}

/// The network policy admits the proxies that the config trusts: those of a cluster, such as an
/// ingress controller, have a namespace of their own.
fn trusted_proxies_reach_it(rendered: &RenderedManifests<'_>) {
    let text = rendered.weirs("ConfigMap")["data"]["weir.yaml"]
        .as_str()
        .unwrap();
    let config: Value = serde_saphyr::from_str(text).unwrap();
    if config.get("trusted_proxies").is_none() {
        return;
    }
    let clients = rendered
        .all("NetworkPolicy")
        .flat_map(|policy| entries(&policy["spec"]["ingress"]))
        .find(|rule| rule["ports"][0]["port"] == "mcp")
        .unwrap();
    let peers = entries(&clients["from"]);
    assert!(
        peers
            .iter()
            .any(|peer| peer.get("namespaceSelector").is_some()),
        "{}: no peer outside of the namespace: {clients}",
        rendered.name
    );
    assert!(
        peers.contains(&serde_json::json!({ "podSelector": {} })),
        "{}: the namespace itself is shut out: {clients}",
        rendered.name
    );
}

fn services_and_policies_reach_it(rendered: &RenderedManifests<'_>) {
    let ports: Vec<&Value> = entries(&container(rendered)["ports"])
        .iter()
        .map(|port| &port["name"])
        .collect();
    for service in rendered.all("Service") {
        if service["metadata"]["name"] == "everything" {
            continue;
        }
        assert!(
            rendered.is_selected(&service["spec"]["selector"]),
            "{}: {service}",
            rendered.name
        );
        for port in entries(&service["spec"]["ports"]) {
            assert!(
                ports.contains(&&port["targetPort"]),
                "{}: {service}",
                rendered.name
            );
        }
    }
    let clients = rendered
        .all("Service")
        .find(|service| service["spec"]["ports"][0]["name"] == "mcp")
        .unwrap();
    let all = entries(&clients["spec"]["ports"]);
    assert!(
        all.iter().all(|port| port["name"] != "admin"),
        "the clients' service shows operators' pages"
    );
    for policy in rendered.all("NetworkPolicy") {
        assert!(rendered.is_selected(&policy["spec"]["podSelector"]["matchLabels"]));
        let named = entries(&policy["spec"]["ingress"])
            .iter()
            .flat_map(|rule| entries(&rule["ports"]));
        assert!(
            named.into_iter().all(|port| ports.contains(&&port["port"])),
            "{policy}"
        );
    }
    for budget in rendered.all("PodDisruptionBudget") {
        assert!(rendered.is_selected(&budget["spec"]["selector"]["matchLabels"]));
    }
    for scaler in rendered.all("HorizontalPodAutoscaler") {
        let deployment = rendered.weirs("Deployment");
        assert_eq!(
            scaler["spec"]["scaleTargetRef"]["name"],
            deployment["metadata"]["name"]
        );
        assert!(
            deployment["spec"].get("replicas").is_none(),
            "{}: two that count replicas",
            rendered.name
        );
        the_scaler_acts_before_the_limit(scaler, rendered);
    }
    for monitor in rendered.all("ServiceMonitor") {
        let selector = monitor["spec"]["selector"]["matchLabels"]
            .as_object()
            .unwrap();
        let found = rendered.all("Service").find(|service| {
            selector
                .iter()
                .all(|(name, value)| &service["metadata"]["labels"][name] == value)
        });
        assert_eq!(
            found.unwrap()["spec"]["ports"][0]["name"],
            monitor["spec"]["endpoints"][0]["port"]
        );
    }
}

/// Reads an amount of memory, such as `512Mi`.
fn bytes_of(text: &str) -> u64 {
    let units = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)];
    let of_unit =
        |(unit, bytes): (&str, u64)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? * bytes);
    let found = units.into_iter().find_map(of_unit);
    found.unwrap_or_else(|| panic!("{text} of memory"))
}

fn memory_limit(rendered: &RenderedManifests<'_>) -> u64 {
    let limit = &container(rendered)["resources"]["limits"]["memory"];
    bytes_of(limit.as_str().unwrap())
}

/// The autoscaler adds a replica for calls (CPU time), and for sessions and streams (memory) before
/// weir refuses new ones.
fn the_scaler_acts_before_the_limit(scaler: &Value, rendered: &RenderedManifests<'_>) {
    let metrics = entries(&scaler["spec"]["metrics"]);
    let names: Vec<_> = metrics.iter().map(|one| &one["resource"]["name"]).collect();
    assert_eq!(names, ["cpu", "memory"], "{}", rendered.name);
    let target = &metrics[1]["resource"]["target"]["averageValue"];
    let (target, limit) = (bytes_of(target.as_str().unwrap()), memory_limit(rendered));
    assert!(
        target > limit / 2 && target < limit / 10 * 8,
        "{}: {target} of {limit}",
        rendered.name
    );
}

fn the_pod_can_do_little(rendered: &RenderedManifests<'_>) {
    let (pod, weir) = (&rendered.pod()["spec"], container(rendered));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(weir["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(weir["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(weir["securityContext"]["capabilities"]["drop"][0], "ALL");
    let limit = memory_limit(rendered);
    let config = rendered.weirs("ConfigMap")["data"]["weir.yaml"]
        .as_str()
        .unwrap();
    let config: Value = serde_saphyr::from_str(config).unwrap();
    let own = config["limits"]["memory"].as_str().unwrap();
    let own = bytes_of(own.trim_end_matches('B'));
    let (name, most) = (rendered.name, limit / 10 * 9);
    assert!(
        own <= most && own >= most / 2,
        "{name}: weir refuses by {own} before the kernel kills at {limit}"
    );
    assert_eq!(weir["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(weir["livenessProbe"]["httpGet"]["path"], "/healthz");
    for container in rendered
        .all("Deployment")
        .map(|deployment| &deployment["spec"]["template"]["spec"]["containers"][0])
    {
        let image = container["image"].as_str().unwrap();
        assert!(
            image
                .split_once(':')
                .is_some_and(|(_, tag)| !tag.is_empty() && tag != "latest"),
            "{image}"
        );
    }
}

#[test]
fn the_chart_and_the_overlays_render_are_valid_and_run_this_weir() {
    if !peers_are_enabled() {
        return;
    }
    let script = peers().join("python/deploy.py");
    let output = deploy_tool("python")
        .arg(script)
        .arg("check")
        .arg(root())
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", super::whole_output(&output)));
    assert_eq!(
        found["problems"],
        serde_json::json!([]),
        "{:#}",
        found["problems"]
    );
    assert!(output.status.success());
    let all = found["rendered"].as_object().unwrap();
    assert_eq!(all.len(), 8, "six ways of the chart, two overlays");
    for name in REPLICAS {
        replicas_reach_each_other(&RenderedManifests {
            name,
            objects: entries(&all[name]),
        });
    }
    user_values_replace_chart_defaults_entirely(&RenderedManifests {
        name: OAUTH,
        objects: entries(&all[OAUTH]),
    });
    for (name, objects) in all {
        let rendered = RenderedManifests {
            name,
            objects: entries(objects),
        };
        the_config_is_weirs(&rendered);
        services_and_policies_reach_it(&rendered);
        trusted_proxies_reach_it(&rendered);
        the_pod_can_do_little(&rendered);
    }
    let kinds = |name: &str| {
        entries(&all[name])
            .iter()
            .map(|object| object["kind"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    for kind in [
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
        "ServiceAccount",
    ] {
        assert!(
            kinds("helm everything").contains(&kind)
                && kinds("kustomize production").contains(&kind),
            "{kind}"
        );
    }
    for file in ["docker-compose.yml", "deploy/compose/replicas.yml"] {
        assert!(
            found["compose"][file]["services"]["weir"].is_object(),
            "{file} was read too"
        );
    }
}

#[test]
fn the_image_named_is_the_one_that_is_built() {
    let version =
        run_checked(std::process::Command::new(crate::harness::weir_binary()).arg("--version"));
    let version = version.trim().trim_start_matches("weir ");
    let chart: Value = serde_saphyr::from_str(&super::read("deploy/helm/weir/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], version);
    let compose: Value = serde_saphyr::from_str(&super::read("docker-compose.yml")).unwrap();
    assert_eq!(
        compose["services"]["weir"]["image"],
        format!("weir:{version}")
    );
}
