"""The manifests in examples/kubernetes fit each other and the program."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
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
