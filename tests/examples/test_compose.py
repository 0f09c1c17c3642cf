"""examples/compose.yaml and the Containerfile fit each other and the program."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.cli_process import cobalance, running
from tests.consumers import new_topic
from tests.examples.manifests import EXAMPLES, PINNED, documents, parsed, read_variables
from tests.names import unique

from cobalance.operate.http_listener import is_known
from cobalance.settings import duration_ms

ROOT = EXAMPLES.parent
CONTAINERFILE = EXAMPLES / "Containerfile"
TIME_TO_LEAVE_MS = 10_000

(COMPOSE,) = documents("compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: it for name, it in SERVICES.items() if "build" in it}


@pytest.mark.parametrize("name", OURS)
def test_commands_and_variables_are_those_of_the_program(name: str) -> None:
    """Read by its own parser; servers are called by the names of their services."""
    service = OURS[name]
    assert parsed(service["command"])
    assert set(service["environment"]) <= read_variables()
    redis, rabbitmq = (service["environment"][f"COBALANCE_{it}_URL"] for it in ("REDIS", "AMQP"))
    assert (urlsplit(redis).hostname, urlsplit(rabbitmq).hostname) == ("redis", "rabbitmq")
    user = SERVICES["rabbitmq"]["environment"]
    assert urlsplit(rabbitmq).username == user["RABBITMQ_DEFAULT_USER"]
    assert urlsplit(rabbitmq).password == user["RABBITMQ_DEFAULT_PASS"]


@pytest.mark.parametrize("name", OURS)
def test_nothing_of_ours_has_more_rights_than_it_needs(name: str) -> None:
    """Secrets are files: Compose mounts no other ones in a container whose root is read-only."""
    service = OURS[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all("file" in COMPOSE["secrets"][it] for it in service.get("secrets", []))


def test_only_this_machine_reaches_it() -> None:
    """What is published is so at 127.0.0.1, and all else is not."""
    published = {name: it["ports"] for name, it in SERVICES.items() if "ports" in it}
    assert set(published) == {"dashboard", "prometheus", "grafana"}
    for ports in published.values():
        assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in ports)
    dashboard = parsed(SERVICES["dashboard"]["command"])
    assert published["dashboard"] == [f"127.0.0.1:{dashboard['port']}:{dashboard['port']}"]
    (secret,) = SERVICES["dashboard"]["secrets"]
    assert dashboard["password_file"] == Path("/run/secrets", secret)


def test_versions_are_pinned() -> None:
    """Of all images, those that ours is made from, too."""
    images = [it["image"] for it in SERVICES.values()]
    images += re.findall(r"^FROM (\S+)", CONTAINERFILE.read_text(), re.MULTILINE)
    assert [it for it in images if not PINNED.fullmatch(it)] == []
    (ours,) = {it["image"] for it in OURS.values()}
    assert f"--tag {ours} " in CONTAINERFILE.read_text()


def test_services_wait_for_each_other() -> None:
    """For servers that answer, and for the topic."""
    for name, service in SERVICES.items():
        for other, it in service.get("depends_on", {}).items():
            assert (it["condition"] == "service_healthy") == ("healthcheck" in SERVICES[other]), (name, other)
    topic, consumer = (parsed(SERVICES[it]["command"]) for it in ("topic", "billing"))
    assert "topic" in SERVICES["billing"]["depends_on"]
    assert topic["name"] == consumer["topic"]


def test_a_process_has_time_to_hand_over() -> None:
    """And its health is asked where it listens."""
    service = SERVICES["billing"]
    consumer = parsed(service["command"])
    assert duration_ms(service["stop_grace_period"]) >= consumer["drain_timeout"] + TIME_TO_LEAVE_MS
    kind, program, *health = service["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "cobalance")
    assert parsed(health)["port"] == consumer["probes"].probe_port
    assert parsed(health)["live"]


def test_prometheus_scrapes_what_there_is() -> None:
    """Under names that the exporter knows, at the ports where it and the members serve metrics."""
    (config,) = documents("prometheus/prometheus.yaml")
    jobs = {it["job_name"]: it for it in config["scrape_configs"]}
    ((target,),) = (it["targets"] for it in jobs["cobalance-groups"]["static_configs"])
    name, _, port = target.partition(":")
    exporter = parsed(SERVICES[name]["command"])
    assert int(port) == exporter["port"]
    assert is_known(target, exporter["host_name"])
    (found,) = jobs["cobalance-members"]["dns_sd_configs"]
    probes = parsed(SERVICES[found["names"][0]]["command"])["probes"]
    assert (found["type"], found["port"], probes.metrics) == ("A", probes.probe_port, True)
    assert {probes.probe_host, exporter["host"]} == {"0.0.0.0"}  # noqa: S104


def test_prometheus_and_grafana_find_their_files() -> None:
    """The folder of the configuration is mounted where its command line says; Grafana asks Prometheus by its name."""
    prometheus = SERVICES["prometheus"]
    source, target, mode = prometheus["volumes"][0].split(":")
    (config,) = [it.removeprefix("--config.file=") for it in prometheus["command"] if it.startswith("--config.file=")]
    assert (EXAMPLES / source / Path(config).relative_to(target)).is_file()
    assert mode == "ro"
    (mounted,) = [it for it in SERVICES["grafana"]["configs"] if "/datasources/" in it["target"]]
    (datasource,) = yaml.safe_load(COMPOSE["configs"][mounted["source"]]["content"])["datasources"]
    port = prometheus["ports"][0].rpartition(":")[2]
    assert datasource["url"] == f"http://prometheus:{port}"
    volumes = {it.partition(":")[0] for service in SERVICES.values() for it in service.get("volumes", [])}
    assert {it for it in volumes if not it.startswith(".")} == set(COMPOSE["volumes"])


# -- the image ---------------------------------------------------------------------------------------------------------


def copied() -> list[tuple[list[str], str]]:
    """What the Containerfile takes from the repository, and where to."""
    lines = re.findall(r"^COPY (.+) (\S+)$", CONTAINERFILE.read_text(), re.MULTILINE)
    return [(sources.split(), target) for sources, target in lines]


def test_the_image_has_what_the_package_is_built_from(tmp_path: Path) -> None:
    """A wheel comes of the files that are copied before, and of no others."""
    for sources, target in copied():
        for source in sources:
            place = tmp_path / target
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "wheels"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"cobalance/coordinator/lua/join.lua", "cobalance/dashboard/static/page.html"} <= names


def test_the_image_runs_as_nobody_in_particular() -> None:
    """By number, so that Kubernetes sees that it is not root."""
    text = CONTAINERFILE.read_text()
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
    assert text.rstrip().endswith('ENTRYPOINT ["cobalance"]')


@pytest.mark.thorough
def test_its_handler_handles(redis_url: str, amqp_url: str) -> None:
    """The command of the Compose file beside shop.py, as in the container."""
    group, urls = unique("shop"), {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    assert cobalance("group", "create", group, environment=urls).code == 0
    with new_topic(amqp_url) as topic:
        given = {"orders": topic.name, "--group=billing": f"--group={group}", "--probe-port=8080": "--probe-port=0"}
        command = [given.get(it, it) for it in SERVICES["billing"]["command"] if "0.0.0.0" not in it]  # noqa: S104
        with running(*command, folder=EXAMPLES, environment=urls) as consumer:
            assert cobalance("publish", topic.name, "a coat", environment=urls).code == 0
            consumer.wait_for(f"{topic.name}-0 a coat")
            assert consumer.end(signal.SIGTERM).code == 0
