"""A private Kafka: one process that is broker and KRaft controller, on loopback only, gone with this process."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path
from typing import Self

from cobalance.servers.ports import HOST, free_port
from cobalance.servers.process import PrivateProcess
from cobalance.servers.ready import accepts, wait_until_ready
from proof.bench.peers.kafka.fetch import KafkaUnavailable

START_TIMEOUT_S = 120.0

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
log.dirs={folder}/data
# One node cannot replicate.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
# Lets groups choose a shorter heartbeat and session than the defaults, which stay as they are.
group.consumer.min.heartbeat.interval.ms=1000
group.consumer.min.session.timeout.ms=5000
group.min.session.timeout.ms=5000
"""


class PrivateKafka:
    """Started from a folder of jars by a Java. Close it after use."""

    def __init__(self, java: Path, jars: Path) -> None:
        self.address = f"{HOST}:{free_port()}"
        """For `bootstrap.servers`."""
        self._process = PrivateProcess("kafka")
        self._java = [str(java), "-Xmx512m", "-cp", f"{jars}/*"]
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kills it and removes its folder."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        folder, port = self._process.folder, int(self.address.rpartition(":")[2])
        settings = folder / "server.properties"
        settings.write_text(SETTINGS.format(host=HOST, port=port, controller=free_port(), folder=folder), "utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_it = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(settings)]
        done = subprocess.run([*self._java, *format_it], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise KafkaUnavailable(f"Kafka could not format its storage:\n{done.stdout}{done.stderr}")
        self._process.start([*self._java, "kafka.Kafka", str(settings)])
        wait_until_ready(lambda: accepts(port), self._process, START_TIMEOUT_S)
