"""The manifests in examples/kubernetes fit each other and the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client
from tests.examples.manifests import EXAMPLES, PINNED, documents, parsed, read_variables

from cobalance.description import GroupDescription
from cobalance.errors import UnknownGroup
from cobalance.operate.http_listener import is_known
from cobalance.operate.lag_page import lag_pages
from cobalance.operate.probes import PATHS
from cobalance.settings import GroupSettings

FILES = sorted(path.name for path in (EXAMPLES / "kubernetes").glob("*.yaml"))
NAME, PART_OF = "app.kubernetes.io/name", "app.kubernetes.io/part-of"
TIME_TO_LEAVE_S = 10


def manifest(kind: str, name: str) -> Any:
    """The only one of that kind and name."""
    every = [it for file in FILES for it in documents(f"kubernetes/{file}")]
    (found,) = [it for it in every if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    return found


def pod(kind: str, name: str) -> Any:
    return manifest(kind, name)["spec"]["template"]["spec"]


WORKLOADS = [("Deployment", "billing"), ("StatefulSet", "billing"), ("Deployment", "cobalance-metrics")]
CONSUMERS = WORKLOADS[:2]
every_workload = pytest.mark.parametrize(("kind", "name"), WORKLOADS)
every_consumer = pytest.mark.parametrize(("kind", "name"), CONSUMERS)


def test_all_are_in_one_namespace_and_none_is_forgotten_here() -> None:
    """A kind that is added needs a test."""
    every = [it for file in FILES for it in documents(f"kubernetes/{file}")]
    assert {it["metadata"]["namespace"] for it in every} == {"shop"}
    assert {(it["kind"], it["metadata"]["name"]) for it in every if "template" in it["spec"]} == set(WORKLOADS)
    kinds = {"Service", "PodDisruptionBudget", "ScaledObject", "NetworkPolicy", "Deployment", "StatefulSet"}
    assert {it["kind"] for it in every} == kinds


def refusals(found: Any) -> Iterator[str]:
    """What the API server of Kubernetes would refuse in a manifest: fields that it does not know, lacks or has of another type."""
    group, _, version = found["apiVersion"].rpartition("/")
    api = getattr(client, f"{(group or 'core').partition('.')[0].capitalize()}{version.capitalize()}Api")
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", found["kind"]).lower()
    assert hasattr(api, f"create_namespaced_{words}"), f"{found['apiVersion']} has no {found['kind']}"
    yield from _refusals(found, f"V1{found['kind']}", found["kind"])


def _refusals(found: Any, kind: str, at: str) -> Iterator[str]:
    of = re.fullmatch(r"(list\[|dict\(str, )(.+)[\])]", kind)
    if of is not None:
        yield from _refusals_in(found, list if kind.startswith("list") else dict, of[2], at)
    elif hasattr(client, kind):
        yield from _refusals_of_model(found, getattr(client, kind), at)
    elif kind != "object" and type(found).__name__ != kind:
        yield f"{at}: {found!r} is no {kind}"


def _refusals_in(found: Any, container: type, kind: str, at: str) -> Iterator[str]:
    if type(found).__name__ != container.__name__:
        yield f"{at}: {found!r} is no {container.__name__}"
        return
    for key, value in found.items() if container is dict else enumerate(found):
        yield from _refusals(value, kind, f"{at}.{key}")


def _refusals_of_model(found: Any, model: Any, at: str) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{at}: {found!r} is no {model.__name__}"
        return
    names = {field: name for name, field in model.attribute_map.items()}
    known = {names[field]: value for field, value in found.items() if field in names}
    yield from (f"{at}.{field}: no such field" for field in found.keys() - names.keys())
    try:
        model(**known)  # which knows what is required, and what an enumeration has
    except ValueError as error:
        yield f"{at}: {error}"
    for name, value in known.items():
        yield from _refusals(value, model.openapi_types[name], f"{at}.{model.attribute_map[name]}")


@pytest.mark.parametrize("file", FILES)
def test_kubernetes_accepts_them(file: str) -> None:
    """Each field, by the models of its own client. It has none of what is KEDA's."""
    for it in documents(f"kubernetes/{file}"):
        if it["apiVersion"] != "keda.sh/v1alpha1":
            assert list(refusals(it)) == []


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"replica": 2}, "Deployment.spec.replica: no such field"),
        ({"replicas": "2"}, "Deployment.spec.replicas: '2' is no int"),
        ({"selector": None}, "Deployment.spec: Invalid value for `selector`, must not be `None`"),
        ({"selector": {"matchLabels": {"a": 1}}}, "Deployment.spec.selector.matchLabels.a: 1 is no str"),
        ({"strategy": "Recreate"}, "Deployment.spec.strategy: 'Recreate' is no V1DeploymentStrategy"),
        ({"template": {"spec": {"containers": {}}}}, "Deployment.spec.template.spec.containers: {} is no list"),
        (
            {"template": {"spec": {"containers": [{}]}}},
            "Deployment.spec.template.spec.containers.0: Invalid value for `name`, must not be `None`",
        ),
    ],
)
def test_kubernetes_refuses(change: dict[str, Any], refused: str) -> None:
    """Otherwise the test above says nothing."""
    found = manifest("Deployment", "billing")
    assert refused in list(refusals(found | {"spec": found["spec"] | change}))


def test_kubernetes_knows_a_kind_in_its_own_group() -> None:
    """Each version of each group has kinds of its own."""
    with pytest.raises(AssertionError, match="v1 has no Deployment"):
        list(refusals(manifest("Deployment", "billing") | {"apiVersion": "v1"}))


@every_workload
def test_nothing_has_more_rights_than_it_needs(kind: str, name: str) -> None:
    """No root, no token, no capability, nothing to write to but what is mounted."""
    found = pod(kind, name)
    (container,) = found["containers"]
    assert found["automountServiceAccountToken"] is False
    security = found["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}\n" in (EXAMPLES / "Containerfile").read_text()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert PINNED.fullmatch(container["image"])
    assert "memory" in container["resources"]["limits"]


@every_workload
def test_kubernetes_sets_none_of_our_variables(kind: str, name: str) -> None:
    """The links of a Service ``cobalance-metrics`` would: COBALANCE_METRICS_PORT=tcp://10.0.0.1:9464."""
    services = [it for file in FILES for it in documents(f"kubernetes/{file}") if it["kind"] == "Service"]
    links = {f"{it['metadata']['name'].upper().replace('-', '_')}_PORT" for it in services}
    assert links & read_variables()
    assert pod(kind, name)["enableServiceLinks"] is False


@every_workload
def test_commands_and_variables_are_those_of_the_program(kind: str, name: str) -> None:
    """Read by its own parser. URLs, which have passwords, come from a Secret."""
    (container,) = pod(kind, name)["containers"]
    assert parsed(container["args"])
    variables = {it["name"]: it["valueFrom"] for it in container["env"]}
    assert set(variables) <= read_variables()
    for variable in ("COBALANCE_REDIS_URL", "COBALANCE_AMQP_URL"):
        secret = variables[variable]["secretKeyRef"]
        readme = (EXAMPLES / "kubernetes/README.md").read_text()
        assert f"secret generic {secret['name']} " in readme
        assert f"--from-literal={secret['key']}=" in readme


@every_workload
def test_labels_and_selectors_match(kind: str, name: str) -> None:
    """Of the workload, its Service, its network policies and its disruption budget."""
    spec = manifest(kind, name)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selectors = [spec["selector"]["matchLabels"], manifest("Service", name)["spec"]["selector"]]
    selectors += [manifest("NetworkPolicy", it)["spec"]["podSelector"]["matchLabels"] for it in (name, "shop")]
    if name == "billing":
        selectors.append(manifest("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"])
    for selector in selectors:
        assert selector.items() <= labels.items()


@every_workload
def test_ports_match(kind: str, name: str) -> None:
    """What the program listens at, the container, the probes, the Service and the network policy."""
    (container,) = pod(kind, name)["containers"]
    (port,) = container["ports"]
    given = parsed(container["args"])
    listens = given["probes"].probe_port if name == "billing" else given["port"]
    host = given["probes"].probe_host if name == "billing" else given["host"]
    assert (host, listens) == ("0.0.0.0", port["containerPort"])  # noqa: S104
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in container:
            assert (container[probe].get("httpGet") or container[probe]["tcpSocket"])["port"] == port["name"]
    assert manifest("Service", name)["spec"]["ports"] == [{"name": port["name"], "port": listens}]
    (ingress,) = manifest("NetworkPolicy", name)["spec"]["ingress"]
    assert ingress["ports"] == [{"port": listens}]


@every_consumer
def test_probes_are_the_programs(kind: str, name: str) -> None:
    """A process that waits for its servers is alive, so that it is not restarted for that."""
    (container,) = pod(kind, name)["containers"]
    asked = {it: PATHS[container[f"{it}Probe"]["httpGet"]["path"]] for it in ("startup", "readiness", "liveness")}
    assert asked == {"startup": "live", "readiness": "ready", "liveness": "live"}


@every_consumer
def test_pods_have_time_to_hand_over(kind: str, name: str) -> None:
    """Longer than draining may take; and a drain that takes its time is not ended by a forced move."""
    found = pod(kind, name)
    drain_ms = parsed(found["containers"][0]["args"])["drain_timeout"]
    assert found["terminationGracePeriodSeconds"] >= drain_ms / 1000 + TIME_TO_LEAVE_S
    assert drain_ms <= GroupSettings().revocation_timeout_ms


def test_what_a_pod_held_waits_for_its_return() -> None:
    """Of a StatefulSet only, whose names come back; for longer than it may take to start."""
    found = pod("StatefulSet", "billing")
    (container,) = found["containers"]
    variables = {it["name"]: it["valueFrom"] for it in container["env"]}
    assert variables["COBALANCE_INSTANCE_ID"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    startup = container["startupProbe"]
    rejoin_grace_ms = parsed(container["args"])["settings"].rejoin_grace_ms
    assert rejoin_grace_ms / 1000 > startup["periodSeconds"] * startup["failureThreshold"]
    (mount,), (volume,) = container["volumeMounts"], found["volumes"]
    assert (mount["mountPath"], mount["name"], "emptyDir" in volume) == ("/tmp", volume["name"], True)  # noqa: S108
    spec = manifest("StatefulSet", "billing")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert manifest("Service", spec["serviceName"])["spec"]["clusterIP"] == "None"
    assert "COBALANCE_INSTANCE_ID" not in str(manifest("Deployment", "billing"))


def test_both_forms_are_the_same_group() -> None:
    """The StatefulSet has an instance id and a longer memory; otherwise they are alike."""
    one, other = (pod(*it)["containers"][0] for it in CONSUMERS)
    assert [it for it in other["args"] if not it.startswith("--rejoin-grace")] == one["args"]
    assert [it for it in other["env"] if it["name"] != "COBALANCE_INSTANCE_ID"] == one["env"]
    assert {name: it for name, it in other.items() if name not in {"args", "env", "volumeMounts"}} == {
        name: it for name, it in one.items() if name not in {"args", "env"}
    }


def test_a_rollout_and_a_drained_node_leave_most_processes_alone() -> None:
    """One at a time; and nothing but KEDA says how many there are."""
    deployment = manifest("Deployment", "billing")["spec"]
    assert "replicas" not in deployment
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert manifest("PodDisruptionBudget", "billing")["spec"]["maxUnavailable"] == 1


def test_keda_asks_the_exporter_for_this_group() -> None:
    """Under a name that the exporter knows, at a path that it has, with a number that is not above the partitions'."""
    spec = manifest("ScaledObject", "billing")["spec"]
    assert manifest("Deployment", spec["scaleTargetRef"]["name"])
    (trigger,) = spec["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    (exporter,) = pod("Deployment", "cobalance-metrics")["containers"]
    options = parsed(exporter["args"])
    service = manifest("Service", "cobalance-metrics")
    assert url.hostname == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert is_known(url.netloc, options["host_name"])
    assert url.port == service["spec"]["ports"][0]["port"]
    asked = list[str]()

    def look(group: str) -> GroupDescription:
        asked.append(group)
        raise UnknownGroup(group)

    page = lag_pages(look)(url.path)
    assert page is not None
    assert page().status == 404
    assert asked == [parsed(pod("Deployment", "billing")["containers"][0]["args"])["group"]]
    assert (trigger["type"], trigger["metadata"]["valueLocation"]) == ("metrics-api", "lag")
    assert float(trigger["metadata"]["targetValue"]) > 0
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    readme = (EXAMPLES / "kubernetes/README.md").read_text()
    assert f"cobalance topic create orders --partitions {spec['maxReplicaCount']}\n" in readme


def test_the_network_lets_through_what_is_needed() -> None:
    """Names and both servers for all; nothing comes in but Prometheus, and KEDA at the exporter."""
    every = manifest("NetworkPolicy", "shop")["spec"]
    assert (every["policyTypes"], "ingress" in every) == (["Ingress", "Egress"], False)
    ports = {port["port"] for rule in every["egress"] for port in rule["ports"]}
    assert ports == {53, 6379, 5672, 15672}
    callers = {
        name: {
            source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
            for rule in manifest("NetworkPolicy", name)["spec"]["ingress"]
            for source in rule["from"]
        }
        for name in ("billing", "cobalance-metrics")
    }
    assert callers == {"billing": {"monitoring"}, "cobalance-metrics": {"monitoring", "keda"}}
