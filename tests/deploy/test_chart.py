"""The chart, rendered by the real Helm engine: examples, switches alone and together, values that must be refused."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re

import pytest
import yaml

from concur_proxy import __version__
from concur_proxy.config.load import load
from concur_proxy.observe.catalogue import NAMES
from tests.deploy.chart import (
    CHART,
    EXAMPLES,
    ROOT,
    helm_python,
    jsonschema,
    loaded,
    newest,
    notes,
    of_kind,
    parse,
    proxy_pod,
    render,
    validate,
)

ENGINE = {"config": {"backends": ["http://vllm:8000"]}}
TWO_BACKENDS = ["http://a", {"url": "http://b", "api_key": "x"}]
CERTIFICATE = {"tlsConfig": {"cert": {"secret": {"name": "c", "key": "tls.crt"}}, "keySecret": {"key": "tls.key"}}}
TWO_MONITORS = {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}
SWITCHES = {
    "several": {"replicaCount": 3, "redis": {"enabled": True}},
    "keys": {"auth": {"keys": "salt: x\nkeys: []\n"}},
    "existing keys": {"auth": {"existingSecret": "keys"}},
    "admin": {"admin": {"token": "0123456789abcdef"}},
    "tls": {"tls": {"existingSecret": "tls"}},
    "mtls": {
        "tls": {"existingSecret": "tls", "clientCA": True},
        "metrics": {"serviceMonitor": CERTIFICATE},
    },
    "secret config": {"configAsSecret": True, "config": {"backends": [{"url": "https://e", "api_key": "k"}]}},
    "discovery": {"config": {"fleet": {"kubernetes_service": "vllm"}}},
    "elsewhere": {"config": {"fleet": {"kubernetes_service": "gpu/vllm"}}},
    "own account": {"serviceAccount": {"create": True, "name": "mine", "annotations": {"a": "b"}}},
    "autoscaling": {"autoscaling": {"enabled": True}, "redis": {"enabled": True}},
    "keda": {"keda": {"enabled": True, "scaleTargetRef": {"name": "vllm"}}},
    "budget": {"podDisruptionBudget": {"enabled": True}, "replicaCount": 3, "redis": {"enabled": True}},
    "other budget": {"podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"}},
    "network policy": {"networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 8000}]}]}},
    "service monitor": {"metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "p"}}}},
    "rules": {"metrics": {"prometheusRule": {"enabled": True}}},
    "dashboards": {"metrics": {"dashboards": {"enabled": True, "annotations": {"folder": "llm"}}}},
    "ingress": {"ingress": {"enabled": True, "className": "nginx", "hosts": ["a.test"], "tls": [{"secretName": "t"}]}},
    "route": {
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "g"}],
            "hostnames": ["a.test"],
            "backendTLS": {"hostname": "a.test", "wellKnownCACertificates": "System"},
        }
    },
    "placement": {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
    },
    "labels": {"podLabels": {"x": "y"}, "podAnnotations": {"x": "y"}, "commonLabels": {"team": "ml"}},
    "more": {
        "env": [{"name": "CONCUR_LOG__FORMAT", "value": "json"}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "extraVolumes": [{"name": "v", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        "imagePullSecrets": [{"name": "s"}],
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}, "data": {"a": "b"}}
        ],
    },
    "patient": {"config": {"backends": ["http://e"], "server": {"grace_s": 299.5}}, "preStopSeconds": 0},
}


def merged(*layers):
    """Lay values over each other as Helm does."""
    result = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


def contradict(*names):
    """Tell which switches cannot be together, in any order: two ways to do one thing."""
    return {"keys", "existing keys"} <= set(names)


PAIRS = [pair for pair in itertools.combinations(SWITCHES, 2) if not contradict(*pair)]


def hold(manifests, values):
    """Check what is true of every rendering."""
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in manifests]
    assert len(names) == len(set(names))
    made = {(kind, name) for kind, _, name in names}
    for deployment in of_kind(manifests, "Deployment"):
        template = deployment["spec"]["template"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        hardened(template["spec"])
    for pod in of_kind(manifests, "Pod"):
        hardened(pod["spec"])
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in of_kind(manifests, "Deployment")]
    for service in of_kind(manifests, "Service"):
        assert sum(service["spec"]["selector"].items() <= labels.items() for labels in pods) == 1
    pod = proxy_pod(manifests)
    existing = {values.get(part, {}).get("existingSecret") for part in ("auth", "admin", "tls")}
    for volume in pod["volumes"]:
        for kind, key, name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if key in volume:
                assert (kind, volume[key][name]) in made or volume[key][name] in existing
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    grace = values.get("config", {}).get("server", {}).get("grace_s", 30)
    assert pod["terminationGracePeriodSeconds"] >= grace + values.get("preStopSeconds", 5)


def hardened(spec):
    """Check that a pod runs as somebody without rights, and reaches no API server that it does not need."""
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]
    assert "hostNetwork" not in spec
    assert "automountServiceAccountToken" in spec


def settings_of(manifests, tmp_path, monkeypatch):
    """Load the settings that the container would find, in its environment."""
    (holder,) = [one for one in manifests if one["metadata"]["name"].endswith("-config")]
    path = tmp_path / "config.yaml"
    path.write_text((holder.get("data") or holder["stringData"])["config.yaml"])
    for pair in proxy_pod(manifests)["containers"][0]["env"]:
        if "value" in pair:
            monkeypatch.setenv(pair["name"], pair["value"])
    return load(path)


@pytest.mark.parametrize("version", newest())
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_what_kubernetes_takes(name, version):
    manifests = render(EXAMPLES[name])
    hold(manifests, EXAMPLES[name])
    for manifest in manifests:
        validate(manifest, version)


@pytest.mark.parametrize("version", newest())
@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_alone(name, version):
    values = merged(ENGINE, SWITCHES[name])
    manifests = render(values)
    hold(manifests, values)
    for manifest in manifests:
        validate(manifest, version)


@pytest.mark.parametrize("first", SWITCHES)
def test_switches_in_pairs(first):
    version, _ = newest()
    for pair in (pair for pair in PAIRS if pair[0] == first):
        values = merged(ENGINE, *(SWITCHES[name] for name in pair))
        manifests = render(values)
        hold(manifests, values)
        for manifest in manifests:
            validate(manifest, version)


def test_everything_together():
    values = merged(ENGINE, *(values for name, values in SWITCHES.items() if name != "keys"))
    manifests = render(values, name="a" * 53)
    hold(manifests, values)
    assert len(manifests) > 15
    for manifest in manifests:
        validate(manifest, newest()[0])
        assert len(manifest["metadata"]["name"]) <= 63


def test_wrong_manifests_are_noticed():
    """The checks of these tests can fail."""
    manifests = render(merged(ENGINE, SWITCHES["keda"], SWITCHES["several"]))
    for manifest in manifests:
        manifest["speck"] = {}
        with pytest.raises((jsonschema.ValidationError, Exception), match="speck"):
            validate(manifest, newest()[0])


@pytest.mark.parametrize("name", EXAMPLES)
def test_helm_has_nothing_to_say_against_it(name):
    report = helm_python.lint(CHART, EXAMPLES[name], strict=True)
    assert report["errors"] == []
    assert [told for told in report["messages"] if told["severity"] > 1] == []


@pytest.mark.parametrize("name", [*EXAMPLES, *SWITCHES])
def test_the_proxy_takes_the_settings_that_it_would_find(name, tmp_path, monkeypatch):
    values = EXAMPLES.get(name) or merged(ENGINE, SWITCHES[name])
    settings = settings_of(render(values), tmp_path, monkeypatch)
    assert settings.backends or settings.fleet.finds_backends
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 8080)
    assert settings.auth.is_on == bool(values.get("auth"))
    assert (settings.state.url is not None) == bool(values.get("redis"))
    assert (settings.server.tls_cert_file is not None) == bool(values.get("tls"))


REFUSED = [
    ({}, "there is no engine to proxy"),
    ({"config": {"server": {}}}, "set config.backends"),
    ({"config": {"backends": []}}, "set config.backends"),
    (merged(ENGINE, {"replicaCount": 2}), "several replicas need shared state"),
    (merged(ENGINE, {"autoscaling": {"enabled": True}}), "several replicas need shared state"),
    (merged(ENGINE, {"redis": {"enabled": True}, "config": {"state": "redis://r"}}), "two places for one thing"),
    (
        {"config": {"backends": ["http://a", {"url": "http://b", "api_key": "x"}]}},
        "config.backends[1].api_key is a secret",
    ),
    (merged(ENGINE, {"config": {"server": {"admin_token": "x"}}}), "config.server.admin_token is a secret"),
    (merged(ENGINE, {"config": {"auth": {"keys": "x"}}}), "use auth.keys"),
    (merged(ENGINE, {"config": {"state": {"url": "redis://r", "password": "x"}}}), "config.state.password is a secret"),
    (merged(ENGINE, {"auth": {"keys": "x", "existingSecret": "y"}}), "auth.keys and auth.existingSecret"),
    (merged(ENGINE, {"admin": {"token": "0123456789abcdef", "existingSecret": "y"}}), "admin.token and admin.existing"),
    (merged(ENGINE, {"admin": {"token": "short"}}), "/admin/token"),
    (merged(ENGINE, {"tls": {"clientCA": True}}), "tls.clientCA needs tls.existingSecret"),
    (merged(ENGINE, {"terminationGracePeriodSeconds": 30}), "terminationGracePeriodSeconds must be 35 or more"),
    (
        merged(ENGINE, {"config": {"server": {"grace_s": 600}}, "terminationGracePeriodSeconds": 60}),
        "must be 605 or more",
    ),
    (
        merged(ENGINE, {"metrics": TWO_MONITORS}),
        "scrape everything twice",
    ),
    (merged(ENGINE, {"keda": {"enabled": True}}), "keda.scaleTargetRef.name must say"),
    (merged(ENGINE, {"keda": {"minReplicaCount": 9}}), "keda.maxReplicaCount must not be below"),
    (merged(ENGINE, {"autoscaling": {"minReplicas": 9}}), "autoscaling.maxReplicas must not be below"),
    (merged(ENGINE, {"httpRoute": {"enabled": True}}), "httpRoute.parentRefs must name a gateway"),
    (merged(ENGINE, {"ingress": {"enabled": True}}), "ingress.hosts must name a host"),
    (merged(ENGINE, {"networkPolicy": {"enabled": True}}), "networkPolicy.egress must let the proxies out"),
    (merged(ENGINE, {"replicaCount": -1}), "/replicaCount"),
    (merged(ENGINE, {"replicaCount": "2"}), "/replicaCount"),
    (merged(ENGINE, {"service": {"port": 0}}), "/service/port"),
    (merged(ENGINE, {"service": {"type": "Cluster"}}), "/service/type"),
    (merged(ENGINE, {"image": {"digest": "latest"}}), "/image/digest"),
    (merged(ENGINE, {"image": {"pullPolicy": "always"}}), "/image/pullPolicy"),
    (merged(ENGINE, {"auth": {"existingSecret": "My Secret"}}), "/auth/existingSecret"),
    (merged(ENGINE, {"metrics": {"serviceMonitor": {"interval": "soon"}}}), "/metrics/serviceMonitor/interval"),
    (merged(ENGINE, {"httpRoute": {"timeouts": {"request": "1 hour"}}}), "/httpRoute/timeouts/request"),
    (merged(ENGINE, {"preStopSeconds": -1}), "/preStopSeconds"),
    (merged(ENGINE, {"podLabels": {"a": 1}}), "/podLabels/a"),
    (merged(ENGINE, {"config": {"server": "x"}}), "/config/server"),
    (merged(ENGINE, {"config": {"server": None}}), "/config/server"),
    (merged(ENGINE, {"config": {"server": {"grace_s": "abc"}}}), "/config/server/grace_s"),
    (merged(ENGINE, {"config": {"server": {"grace_s": 1e12}}}), "/config/server/grace_s"),
    (merged(ENGINE, {"config": {"backends": "http://x"}}), "/config/backends"),
    (merged(ENGINE, {"config": {"backends": [1]}}), "/config/backends/0"),
    (merged(ENGINE, {"config": {"fleet": None}}), "/config/fleet"),
    (merged(ENGINE, {"config": {"fleet": {"kubernetes_service": "a/b/c"}}}), "/config/fleet/kubernetes_service"),
    (merged(ENGINE, {"config": {"fleet": {"kubernetes_service": "a\n  x: y/b"}}}), "/config/fleet/kubernetes_service"),
    (merged(ENGINE, {"config": {"state": 5}}), "/config/state"),
    (merged(ENGINE, {"config": {"auth": {"jwt": "x"}}}), "/config/auth/jwt"),
    (merged(ENGINE, {"config": {"batch": "x"}}), "/config/batch"),
    (merged(ENGINE, {"config": {"tracing": None}}), "/config/tracing"),
    (merged(ENGINE, {"config": {"state": "redis://:pw@r"}}), "config has a URL with a password"),
    (merged(ENGINE, {"config": {"batch": {"store": "postgresql://u:pw@h/d"}}}), "config has a URL with a password"),
    (merged(ENGINE, {"config": {"server": {"tls_cert_file": "/x"}}}), "use tls.existingSecret"),
    (merged(ENGINE, {"nameOverride": "My App"}), "/nameOverride"),
    (merged(ENGINE, {"fullnameOverride": "Bad_Name"}), "/fullnameOverride"),
    (merged(ENGINE, {"fullnameOverride": "a\n  namespace: kube-system"}), "/fullnameOverride"),
    (merged(ENGINE, {"priorityClassName": "high\n      hostNetwork: true"}), "/priorityClassName"),
    (merged(ENGINE, {"ingress": {"className": "x\n  foo: bar"}}), "/ingress/className"),
    (merged(ENGINE, {"ingress": {"hosts": ["a b"]}}), "/ingress/hosts/0"),
    (merged(ENGINE, {"image": {"repository": 'a"\nx: y'}}), "/image/repository"),
    (merged(ENGINE, {"redis": {"image": 'a"b'}}), "/redis/image"),
    (merged(ENGINE, {"commonLabels": {"app.kubernetes.io/name": "x"}}), "app.kubernetes.io/name is set by the chart"),
    (merged(ENGINE, {"podLabels": {"app.kubernetes.io/component": "x"}}), "podLabels: app.kubernetes.io/component is"),
    (merged(ENGINE, {"podLabels": {"a": "x"}, "commonLabels": {"a": "y"}}), "podLabels: a is set"),
    (merged(ENGINE, {"podAnnotations": {"checksum/config": "x"}}), "podAnnotations: checksum/config is set"),
    (merged(ENGINE, {"env": [{"name": "CONCUR_SERVER__GRACE_S", "value": "600"}]}), "use config.server.grace_s"),
    (merged(ENGINE, {"env": [{"name": "CONCUR_SERVER__PORT", "value": "9"}]}), "use service.port"),
    (merged(ENGINE, {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}), "env: A is given twice"),
    (merged(ENGINE, {"env": [{"name": "CONCUR_STATE__URL"}], "redis": {"enabled": True}}), "CONCUR_STATE__URL is set"),
    (merged(ENGINE, SWITCHES["admin"], {"env": [{"name": "CONCUR_SERVER__ADMIN_TOKEN"}]}), "use admin or this"),
    (merged(ENGINE, {"podDisruptionBudget": {"enabled": True}}), "minAvailable 1 of 1 replicas lets none go"),
    (merged(ENGINE, SWITCHES["budget"], {"podDisruptionBudget": {"minAvailable": 3}}), "minAvailable 3 of 3 replicas"),
    (merged(ENGINE, SWITCHES["budget"], {"podDisruptionBudget": {"minAvailable": "67%"}}), "minAvailable 67% of 3"),
    (merged(ENGINE, SWITCHES["budget"], {"podDisruptionBudget": {"maxUnavailable": 0}}), "maxUnavailable 0 of 3"),
    (merged(ENGINE, SWITCHES["budget"], {"podDisruptionBudget": {"maxUnavailable": "0%"}}), "maxUnavailable 0 of 3"),
    (
        merged(ENGINE, SWITCHES["autoscaling"], {"podDisruptionBudget": {"enabled": True, "minAvailable": 2}}),
        "minAvailable 2 of 2 replicas",
    ),
    (
        merged(ENGINE, {"keda": {"enabled": True, "scaleTargetRef": {"name": "test-concur-proxy"}}}),
        "keda scales engines",
    ),
    (
        merged(ENGINE, SWITCHES["tls"], SWITCHES["route"], {"httpRoute": {"backendTLS": {"hostname": ""}}}),
        "httpRoute.backend",
    ),
    (merged(EXAMPLES["discovery"], {"serviceAccount": {"create": False}}), "discovery needs an account of its own"),
    (
        merged(ENGINE, SWITCHES["mtls"], {"metrics": {"podMonitor": {"enabled": True}}}),
        "metrics.podMonitor.tlsConfig must name a certificate",
    ),
]


@pytest.mark.parametrize("release", ["my.release", "1release"])
def test_a_release_whose_name_names_no_service_is_refused(release):
    with pytest.raises(helm_python.HelmError, match="names no service"):
        render(ENGINE, name=release)
    assert render(merged(ENGINE, {"fullnameOverride": "mine"}), name=release)


def test_two_releases_in_a_namespace_share_no_object_and_no_pod():
    values = merged(ENGINE, SWITCHES["several"], SWITCHES["keda"], SWITCHES["admin"], SWITCHES["dashboards"])
    first, second = render(values, name="one"), render(values, name="two")
    named = [{(one["kind"], one["metadata"]["name"]) for one in manifests} for manifests in (first, second)]
    assert not named[0] & named[1]
    for service in of_kind(first, "Service"):
        for deployment in of_kind(second, "Deployment"):
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert not service["spec"]["selector"].items() <= labels.items()


def test_a_gateway_and_prometheus_meet_the_certificate_of_the_proxies():
    values = merged(ENGINE, SWITCHES["tls"], SWITCHES["route"], SWITCHES["ingress"], SWITCHES["service monitor"])
    manifests = render(values)
    (policy,) = of_kind(manifests, "BackendTLSPolicy")
    assert [one["name"] for one in policy["spec"]["targetRefs"]] == ["test-concur-proxy"]
    (ingress,) = of_kind(manifests, "Ingress")
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["tlsConfig"] == {"insecureSkipVerify": True}
    plain = render(merged(ENGINE, SWITCHES["route"], SWITCHES["ingress"], SWITCHES["service monitor"]))
    assert not of_kind(plain, "BackendTLSPolicy")
    assert "backend-protocol" not in json.dumps(plain)
    assert "tlsConfig" not in json.dumps(plain)


def test_replicas_may_ask_each_other_whatever_the_port():
    (policy,) = of_kind(render(merged(ENGINE, SWITCHES["network policy"])), "NetworkPolicy")
    pods = policy["spec"]["podSelector"]
    assert pods["matchLabels"]["app.kubernetes.io/component"] == "proxy"
    assert {"from": [{"podSelector": pods}]} in policy["spec"]["ingress"]
    assert {"to": [{"podSelector": pods}]} in policy["spec"]["egress"]


@pytest.mark.parametrize(("values", "said"), REFUSED)
def test_values_that_would_do_harm_are_refused_in_words(values, said):
    with pytest.raises(helm_python.HelmError) as error:
        render(values)
    assert said in str(error.value).replace(".", "/") or said in str(error.value)


def leaves(values, path=()):
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def test_a_misspelt_value_is_refused_at_every_level():
    free = {"config", "resources", "podSecurityContext", "securityContext", "affinity", "behavior", "scaleTargetRef"}
    free |= {"tlsConfig"}
    values = loaded().values
    for path in leaves(values):
        holder = values
        for key in path:
            holder = holder[key]
        is_free = set(path) & free or path[-1].endswith(("abels", "nnotations")) or path == ("nodeSelector",)
        if isinstance(holder, dict) and not is_free:
            wrong = {"misspelt": 1}
            for key in reversed(path):
                wrong = {key: wrong}
            with pytest.raises(helm_python.HelmError, match="misspelt"):
                render(merged(ENGINE, wrong))
    with pytest.raises(helm_python.HelmError, match="misspelt"):
        render(merged(ENGINE, {"misspelt": 1}))


def test_every_value_has_a_meaning_and_a_schema():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = loaded().values
    described = set(re.findall(r"^\| `([A-Za-z.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    for path in leaves(values):
        known = schema
        for key in path:
            known = known.get("properties", {}).get(key) if known is not None else None
        name = ".".join(path)
        covered = any(name == one or name.startswith(f"{one}.") or one.startswith(f"{name}.") for one in described)
        assert covered, name
        if known is None:
            assert any(".".join(path[:depth]) in described for depth in range(1, len(path))), name


def test_what_follows_from_elsewhere_is_written():
    spec = importlib.util.spec_from_file_location("update", ROOT / "helm" / "update.py")
    update = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(update)
    written = dict(update.written())
    for path, text in written.items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)}: run python helm/update.py"
    assert set((ROOT / "deploy" / "kubernetes").iterdir()) <= set(written)
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["version"] == __version__


@pytest.mark.parametrize("path", sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml")), ids=lambda path: path.stem)
def test_plain_manifests_are_what_kubernetes_takes(path):
    for manifest in parse(path.read_text()):
        for version in newest():
            validate(manifest, version)


def test_an_account_and_rights_are_there_only_where_discovery_needs_them():
    plain = render(ENGINE)
    assert not {"Role", "RoleBinding", "ServiceAccount"} & {one["kind"] for one in plain}
    assert proxy_pod(plain)["automountServiceAccountToken"] is False
    finding = render(EXAMPLES["discovery"])
    assert proxy_pod(finding)["automountServiceAccountToken"] is True
    (role,), (binding,) = of_kind(finding, "Role"), of_kind(finding, "RoleBinding")
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    assert {role["metadata"]["namespace"], binding["metadata"]["namespace"]} == {"inference"}
    assert binding["subjects"][0]["name"] == proxy_pod(finding)["serviceAccountName"]
    assert not of_kind(render(merged(EXAMPLES["discovery"], {"rbac": {"create": False}})), "Role")


def test_a_changed_setting_makes_new_pods():
    def annotations(values):
        (one,) = of_kind(render(values), "Deployment")
        return one["spec"]["template"]["metadata"]["annotations"]

    before = annotations(ENGINE)
    assert annotations(merged(ENGINE, {"config": {"log": {"level": "debug"}}})) != before
    assert annotations(merged(ENGINE, SWITCHES["admin"])) != before
    assert annotations(merged(ENGINE, {"service": {"port": 81}})) == before


def test_the_image_with_more_in_it_is_taken_where_the_settings_need_it():
    def image(values):
        return proxy_pod(render(values))["containers"][0]["image"]

    assert image(ENGINE) == f"concur-proxy:{__version__}"
    for needs in (
        {"fleet": {"kubernetes_service": "x"}},
        {"tracing": {"endpoint": "http://c:4318"}},
        {"batch": {"store": "postgresql://h/d"}},
    ):
        assert image(merged(ENGINE, {"config": needs})) == f"concur-proxy:{__version__}-full"
    assert (
        image(merged(ENGINE, {"image": {"tag": "x"}, "config": {"fleet": {"kubernetes_service": "x"}}}))
        == "concur-proxy:x"
    )
    digest = "sha256:" + "a" * 64
    assert image(merged(ENGINE, {"image": {"digest": digest}})) == f"concur-proxy@{digest}"


def test_engines_are_scaled_by_a_metric_that_there_is():
    (scaled,) = of_kind(render(EXAMPLES["fleet"]), "ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    assert query == 'sum(concur_turns_held{namespace="inference", pod=~"test-concur-proxy-[a-z0-9]+-[a-z0-9]+"})'
    (pattern,) = re.findall(r'pod=~"(.*?)"', query)
    assert re.fullmatch(pattern, "test-concur-proxy-5d8f9c7b6d-x2x9z")
    assert not re.fullmatch(pattern, "test-concur-proxy-two-5d8f9c7b6d-x2x9z"), "another release's"
    (named,) = set(re.findall(r"concur_[a-z_]+", query))
    assert named in NAMES


def test_rules_and_dashboards_come_whole():
    manifests = render(EXAMPLES["fleet"])
    (rule,) = of_kind(manifests, "PrometheusRule")
    groups = [
        group
        for path in sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == groups
    (boards,) = [one for one in of_kind(manifests, "ConfigMap") if one["metadata"]["name"].endswith("-dashboards")]
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    for path in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"):
        assert json.loads(boards["data"][path.name]) == json.loads(path.read_text())
    assert len(json.dumps(boards)) < 1 << 20


def test_probes_speak_as_the_proxy_does():
    def probe(values):
        return proxy_pod(render(values))["containers"][0]["livenessProbe"]

    assert probe(ENGINE)["httpGet"] == {"path": "/livez", "port": "http", "scheme": "HTTP"}
    assert probe(merged(ENGINE, SWITCHES["tls"]))["httpGet"]["scheme"] == "HTTPS"
    assert probe(merged(ENGINE, SWITCHES["mtls"]))["tcpSocket"] == {"port": "http"}


def test_the_test_pod_asks_where_the_proxy_answers_it():
    def asked(values):
        return [pod["spec"]["containers"][0]["command"][-1] for pod in of_kind(render(values), "Pod")]

    assert asked(ENGINE) == ["http://test-concur-proxy:8080"]
    assert asked(merged(ENGINE, SWITCHES["tls"], {"service": {"port": 443}})) == ["https://test-concur-proxy:443"]
    assert asked(merged(ENGINE, SWITCHES["mtls"])) == []
    assert asked(merged(ENGINE, {"tests": {"enabled": False}})) == []


def test_further_objects_are_templates():
    manifests = render(merged(ENGINE, SWITCHES["more"]))
    assert "test-x" in {one["metadata"]["name"] for one in manifests}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-y'}\n"
    assert "test-y" in {one["metadata"]["name"] for one in render(merged(ENGINE, {"extraObjects": [text]}))}


def test_the_notes_say_where_it_is_and_whether_it_is_open():
    assert "http://test-concur-proxy.inference.svc:8080/v1" in notes(ENGINE)
    assert "asks for no keys" in notes(ENGINE)
    assert "asks for no keys" not in notes(merged(ENGINE, SWITCHES["keys"]))
    assert "https://" in notes(merged(ENGINE, SWITCHES["tls"]))


def test_secrets_are_in_secrets_only():
    values = merged(ENGINE, SWITCHES["secret config"], SWITCHES["admin"], {"auth": {"keys": "planted-secret"}})
    for manifest in render(values):
        if manifest["kind"] != "Secret":
            text = json.dumps(manifest)
            assert "planted-secret" not in text
            assert "0123456789abcdef" not in text
            assert "api_key" not in text
