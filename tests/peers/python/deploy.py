"""The manifests under deploy/, rendered by Helm and Kustomize themselves and held against the Kubernetes schemas.

    deploy.py write ROOT   writes deploy/kubernetes/base and components anew from the chart
    deploy.py check ROOT   renders everything, prints what came out as one JSON object, exits with 1 where something is wrong

Not a test by itself: whether ports, paths and configs are weir's is judged by what reads the JSON.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import compose_spec
import helm_python
import kubernetes_validate
import yaml

# The oldest that knows a container's `sleep` as the chart uses it, and the newest that there are schemas of.
VERSIONS = ["1.30.0", "1.37.0"]

# The choices that the chart leaves open. Without them there is nothing to render.
OPEN = {"auth": {"mode": "none", "allow_anyone": True}}
CHOSEN = OPEN | {"upstreams": {"everything": {"url": "http://everything:3001/mcp"}}}
SHARED = CHOSEN | {"store": {"url": "redis://redis:6379", "namespace": "weir"}}

# What the chart can be told. Each is rendered and checked.
VARIANTS = {
    "defaults": {"config": CHOSEN},
    "everything": {
        "config": CHOSEN,
        "autoscaling": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "secret": {"create": True, "values": {
            "WEIR_KEY": "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA",
            "WEIR_ADMIN_TOKEN": "weir_0123456789_operators-of-a-test",
        }},
        "imagePullSecrets": [{"name": "pull"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "affinity": {"nodeAffinity": {}},
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        "service": {"type": "LoadBalancer", "annotations": {"e": "f"}},
        "serviceAccount": {"annotations": {"g": "h"}},
    },
    "other-ports": {
        "config": CHOSEN | {"listen": "0.0.0.0:9090", "admin": {"listen": "0.0.0.0:9091"}},
        "networkPolicy": {"enabled": False},
        "serviceAccount": {"create": False},
        "service": {"sessionAffinity": "None"},
        "fullnameOverride": "gate",
    },
    # Replicas with a shared store: a port for each other, and the address of the pod.
    "replicas": {
        "config": SHARED,
        "replicas": 3,
        "podDisruptionBudget": {"enabled": True},
        "networkPolicy": {"egress": []},
    },
    # Helm reads a bare `off` as a boolean.
    "off": {"config": CHOSEN | {"tls": False, "policy": False, "audit": False, "rates": False}},
    # People log in, operators too: no token, key or upstream of anybody else's choice may stand beside it.
    "oauth": {
        "config": {
            "public_url": "https://mcp.example.com",
            "auth": {"mode": "oauth", "issuers": [{"issuer": "https://id.example.com"}]},
            "admin": {"auth": {"oauth": {"scope": "weir:admin"}}},
            "keys": [],
            "upstreams": {"search": {"url": "http://search:3001/mcp"}},
        },
    },
}

# Values that the chart's schema has to refuse.
REFUSED = [
    {"config": CHOSEN, "replica": 2},
    {"config": CHOSEN, "image": {"repository": "weir", "tag": "latest"}},
    {"config": CHOSEN | {"listen": "here"}},
    {"config": CHOSEN, "service": {"type": "External"}},
    {"config": CHOSEN, "replicas": -1},
]

# Configs without a choice of `auth`. The schema refuses them, and so do the templates where no schema is looked at.
UNDECIDED = [
    {},
    {"config": {"auth": {}}},
    {"config": {"auth": {"mode": "none"}}},
    {"config": {"auth": {"mode": "none", "allow_anyone": False}}},
]

# A config without a server. The templates refuse it: it may stand under any of three keys.
UNSERVED = [{"config": OPEN}, {"config": OPEN | {"upstreams": {}}}]

# Metrics that want a token, and a monitor without one: every scrape would be refused.
GUARDED_METRICS = {"config": CHOSEN | {"admin": {"metrics": "auth"}}, "serviceMonitor": {"enabled": True}}
METRICS_TOKEN = {"credentials": {"name": "weir", "key": "WEIR_ADMIN_TOKEN"}}

# Clients speak TLS with weir. Its files are in no machine that checks this, so the config is not given to weir.
TLS = {"config": CHOSEN | {"tls": {"cert": "/tls/tls.crt", "key": "/tls/tls.key"}}}

# Of the base, what the chart makes by default goes here; the components have what is switched on.
COMPONENTS = {
    "replicas": {"hpa.yaml", "networkpolicy-cluster.yaml", "pdb.yaml"},
    "monitoring": {"servicemonitor.yaml"},
}

# Of the objects of the base, what replicas have beside it.
PATCHES = ["deployment.yaml", "service.yaml"]

MADE = "# Made from deploy/helm/weir by tests/peers/python/deploy.py: change the chart, not this.\n"

UNCHOSEN = "# The overlay brings the config, and with it the choice of `auth`: without this object nothing is rendered.\n"

COMPOSE_FILES = ["docker-compose.yml", "deploy/compose/replicas.yml"]

problems = []


def rendered(root, values):
    with helm_python.Chart.load(str(root / "deploy/helm/weir")) as chart:
        files = chart.render(values, name="weir", namespace="weir")
    return {path.split("/templates/")[1]: text for path, text in files.items() if text.strip()}


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def plain(text):
    """A rendered template without what is Helm's alone."""
    own = re.compile(r"^\s*(helm\.sh/chart|app\.kubernetes\.io/managed-by):")
    return "\n".join(line for line in text.strip().splitlines() if not own.match(line)) + "\n"


def kustomize_files(root):
    """What deploy/kubernetes has from the chart: path -> text."""
    switched_on = {"autoscaling": {"enabled": True}, "podDisruptionBudget": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    base, whole = rendered(root, {"config": CHOSEN}), rendered(root, switched_on | {"config": SHARED})
    files = {}

    def folder(path, names, source):
        for name in names:
            files[f"{path}/{name}"] = MADE + plain(source[name])
        head = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
        files[f"{path}/kustomization.yaml"] = MADE + head + f"resources: [{', '.join(names)}]\n"

    folder("base", sorted(set(base) - {"NOTES.txt", "configmap.yaml"}), base)
    for component, names in COMPONENTS.items():
        folder(f"components/{component}", sorted(names), whole)
    for name, patch in replica_patches(whole).items():
        text = yaml.safe_dump(patch, sort_keys=False)
        files[f"components/replicas/{name}"] = MADE + text
    files["components/replicas/kustomization.yaml"] += f"patches: [{', '.join('{ path: %s }' % name for name in PATCHES)}]\n"
    # Of the config map the base has what identifies it, as a patch: an overlay without a config of its own is not rendered.
    identity = plain(base["configmap.yaml"]).split("\ndata:\n")[0] + "\n"
    files["base/config.yaml"] = MADE + UNCHOSEN + identity
    files["base/kustomization.yaml"] += "patches: [{ path: config.yaml }]\n"
    return files


def replica_patches(whole):
    """What replicas with a shared store have beside the base, as patches of its objects: file -> object."""
    deployment, service = (documents(whole[name])[0] for name in ("deployment.yaml", "service.yaml"))
    pod = deployment["spec"]["template"]["spec"]
    weir = pod["containers"][0]
    container = {
        "name": weir["name"],
        "ports": [port for port in weir["ports"] if port["name"] == "cluster"],
        "env": weir["env"],
    }

    def patch(made, spec):
        return {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": {"name": made["metadata"]["name"]}, "spec": spec}

    # The autoscaler sets the number of replicas.
    template = {"spec": {"topologySpreadConstraints": pod["topologySpreadConstraints"], "containers": [container]}}
    affinity = {"sessionAffinity": service["spec"]["sessionAffinity"], "sessionAffinityConfig": None}
    return dict(zip(PATCHES, (patch(deployment, {"replicas": None, "template": template}), patch(service, affinity))))


def check_object(where, document):
    """One object against the schemas; those of the Prometheus operator are no part of Kubernetes."""
    if document["apiVersion"] == "monitoring.coreos.com/v1":
        spec = document["spec"]
        known = {"jobLabel", "selector", "endpoints"}, {"port", "path", "interval", "authorization"}
        if set(spec) - known[0] or any(set(endpoint) - known[1] for endpoint in spec["endpoints"]):
            problems.append(f"{where}: a ServiceMonitor with more than is known here: {spec}")
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except Exception as error:  # whichever it is, it says what is wrong
            problems.append(f"{where}: {document['kind']} {document['metadata']['name']}, Kubernetes {version}: {error}")


def linted(root):
    """What Helm finds wrong with the chart once `auth` is chosen."""
    with tempfile.TemporaryDirectory() as folder:
        chart = pathlib.Path(folder) / "weir"
        shutil.copytree(root / "deploy/helm/weir", chart)
        values = yaml.safe_load((chart / "values.yaml").read_text())
        values["config"] = CHOSEN
        (chart / "values.yaml").write_text(yaml.safe_dump(values))
        return helm_python.lint(str(chart))


def check_chart(root):
    found = {}
    findings = linted(root)
    # 1 is a hint, such as that there is no icon.
    for message in findings["messages"]:
        if message["severity"] > 1:
            problems.append(f"helm lint: {message}")
    for name, values in VARIANTS.items():
        files = rendered(root, values)
        if not files.pop("NOTES.txt", "").strip():
            problems.append(f"{name}: no notes")
        found[f"helm {name}"] = [document for text in files.values() for document in documents(text)]
    for values in [*UNDECIDED, *UNSERVED, GUARDED_METRICS]:
        try:
            rendered(root, values)
            problems.append(f"the chart is rendered without a choice of auth, upstreams or a token for metrics: {values}")
        except helm_python.HelmError:
            pass
    with_token = rendered(root, GUARDED_METRICS | {"serviceMonitor": {"enabled": True, "authorization": METRICS_TOKEN}})
    monitor = documents(with_token["servicemonitor.yaml"])[0]
    check_object("helm with a token for metrics", monitor)
    if monitor["spec"]["endpoints"][0].get("authorization") != METRICS_TOKEN:
        problems.append(f"a ServiceMonitor without the token: {monitor}")
    for scheme, values in (("https", TLS), ("http", VARIANTS["defaults"]), ("http", {"config": CHOSEN | {"tls": False}})):
        files = rendered(root, values)
        service = documents(files["service.yaml"])[0]
        check_object(f"helm with {scheme}", service)
        port = service["spec"]["ports"][0]
        if port["appProtocol"] != scheme or f" {scheme}://weir." not in files["NOTES.txt"]:
            problems.append(f"clients connect by {scheme}, and the chart says: {port} {files['NOTES.txt']}")
    for values in REFUSED + UNDECIDED:
        try:
            with helm_python.Chart.load(str(root / "deploy/helm/weir")) as chart:
                chart.validate_schema(values)
            problems.append(f"the chart takes {values}")
        except helm_python.HelmError:
            pass
    return found


def check_kustomize(root):
    found, folder = {}, root / "deploy/kubernetes"
    kubectl = pathlib.Path(sys.executable).parent / "kubectl"
    for overlay in sorted(path for path in (folder / "overlays").iterdir()):
        made = subprocess.run([kubectl, "kustomize", overlay], capture_output=True, text=True, check=False)
        if made.returncode:
            problems.append(f"{overlay.name}: {made.stderr}")
            continue
        found[f"kustomize {overlay.name}"] = documents(made.stdout)
    if not subprocess.run([kubectl, "kustomize", folder / "base"], capture_output=True, check=False).returncode:
        problems.append("the base is rendered without a choice of auth")
    for path, text in kustomize_files(root).items():
        file = folder / path
        if not file.exists() or file.read_text() != text:
            problems.append(f"{file} is not what the chart makes of its values: run `deploy.py write`")
    return found


def parsed_compose(root, path):
    try:
        # Merged first, as every Compose does: the parser takes `<<` for an unknown key.
        merged = json.dumps(yaml.safe_load((root / path).read_text()))
        return json.loads(compose_spec.PyCompose.from_json(merged).to_json())
    except Exception as error:  # the parser's own words
        problems.append(f"{path}: {error}")
        return None


def main(command, root):
    if command == "write":
        for path, text in kustomize_files(root).items():
            file = root / "deploy/kubernetes" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return 0
    found = check_chart(root) | check_kustomize(root)
    for where, objects in found.items():
        for document in objects:
            check_object(where, document)
    compose = {path: parsed_compose(root, path) for path in COMPOSE_FILES}
    print(json.dumps({"rendered": found, "compose": compose, "problems": problems}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]).resolve()))
