"""Redis and RabbitMQ in containers, through testcontainers, for machines with Docker but without the binaries.

Ports are chosen here rather than by Docker, which assigns new ones to a restarted container.
"""

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from cobalance.servers.ports import HOST, free_port
from cobalance.servers.ready import amqp_answers, http_answers, redis_answers, wait_until_ready
from cobalance.servers.unavailable import ServerUnavailable

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

REDIS_IMAGE = "redis:7.4"
RABBITMQ_IMAGE = "rabbitmq:4.1"

ENGINE_TIMEOUT_S = 5
START_TIMEOUT_S = 120.0
"""Excludes pulling the image."""

STOP_TIMEOUT_S = 60


def engine_answers() -> bool:
    """Whether testcontainers is installed and a Docker engine answers."""
    if importlib.util.find_spec("testcontainers") is None or shutil.which("docker") is None:
        return False
    # The command knows every way to reach an engine (contexts, Docker Desktop) and leaves no socket open when it fails.
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(asked, capture_output=True, timeout=ENGINE_TIMEOUT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class ContainerServer:
    """One server in a container. Testcontainers' reaper removes it if this process is killed."""

    origin = "docker"

    def __init__(self, name: str, make: Callable[[], "DockerContainer"], answers: Sequence[Callable[[], bool]]) -> None:
        """Starts what `make` returns and waits until every function in `answers` returns true."""
        self.name = name
        """The server's name in error messages."""
        self._make = make
        self._answers = answers
        self._container = make()
        self._run(self._container.start)

    def start(self) -> None:
        """Starts it again after `stop` or `kill`."""
        self._run(self._engine_side.start)

    def stop(self) -> None:
        """Stops it gracefully."""
        self._engine_side.stop(timeout=STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._engine_side.kill()

    def restart(self, *, empty: bool = False) -> None:
        """Restarts it, with its data or `empty`."""
        self.stop()
        if empty:
            self.close()
            self._container = self._make()
            self._run(self._container.start)
        else:
            self.start()

    def pause(self) -> None:
        """Freezes it: connections stay open but get no answers, until `resume`."""
        self._engine_side.pause()

    def resume(self) -> None:
        """Continues after `pause`."""
        self._engine_side.unpause()

    def close(self) -> None:
        """Stops it and removes its container."""
        self._container.stop()

    def wait_exit(self, timeout_s: float) -> bool:
        """Whether the container has ended after timeout_s."""
        time.sleep(timeout_s)
        self._engine_side.reload()
        return str(self._engine_side.status) == "exited"

    def log(self) -> str:
        """The server's log."""
        return str(self._engine_side.logs().decode(errors="replace"))

    def log_tail(self) -> str:
        """The last lines of the server's log, for error messages."""
        return str(self._engine_side.logs(tail=20).decode(errors="replace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, start: Callable[[], object]) -> None:
        try:
            start()
            for answers in self._answers:
                wait_until_ready(answers, self, START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    @property
    def _engine_side(self) -> Any:
        return self._container.get_wrapped_container()


class ContainerRedis(ContainerServer):
    """Redis in a container."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        """Starts it. `options` are further command line options of redis-server."""
        from testcontainers.core.container import DockerContainer

        port = free_port()
        self.url = f"redis://{HOST}:{port}/0"
        # To a container every client is remote; the port is published on loopback only, which keeps others out.
        command = ["redis-server", "--protected-mode", "no", "--save", "", "--appendonly", "no", *options]

        def make() -> DockerContainer:
            container = DockerContainer(REDIS_IMAGE).with_command(command)
            return _bound(container, {6379: port})

        super().__init__("redis", make, [lambda: redis_answers(port)])

    def save(self) -> None:
        """Writes a snapshot, which a later start loads."""
        self._engine_side.exec_run(["redis-cli", "save"])

    def stop(self, *, save: bool = False) -> None:
        """Stops it gracefully, after a snapshot if `save`; otherwise unsaved data is lost."""
        if save:
            self._engine_side.exec_run(["redis-cli", "shutdown", "save"])
        super().stop()

    def restart(self, *, empty: bool = False) -> None:
        """Restarts it, with its data or `empty`."""
        if empty:
            super().restart(empty=True)
        else:
            self.stop(save=True)
            self.start()


class ContainerRabbitMQ(ContainerServer):
    """RabbitMQ in a container."""

    def __init__(
        self, *, management: bool = False, plugins: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        """Starts it. `settings` are lines for rabbitmq.conf; `management` enables that plugin."""
        from testcontainers.core.container import DockerContainer

        port, management_port = free_port(), free_port()
        self.url = f"amqp://guest:guest@{HOST}:{port}/%2F"
        self.management_url = f"http://guest:guest@{HOST}:{management_port}" if management else None
        """The management API's URL, or None if it is not enabled."""
        enabled = [*(["rabbitmq_management"] if management else []), *plugins]
        # On Docker's network every client is remote, which RabbitMQ forbids the guest user by default.
        lines = {"loopback_users.guest": "false"} | dict(settings or {})

        def make() -> DockerContainer:
            container = DockerContainer(RABBITMQ_IMAGE)
            for path, text in {
                "/etc/rabbitmq/conf.d/90-cobalance.conf": "".join(f"{name} = {lines[name]}\n" for name in lines),
                "/etc/rabbitmq/enabled_plugins": f"[{','.join(enabled)}].\n",
            }.items():
                container.with_copy_into_container(text.encode(), path)
            return _bound(container, {5672: port} | ({15672: management_port} if management else {}))

        answers = [lambda: amqp_answers(port), *([lambda: http_answers(management_port)] if management else [])]
        super().__init__("rabbitmq", make, answers)

    def control(self, *arguments: str) -> None:
        """Runs `rabbitmqctl` against it. Raises with the command's output if it fails."""
        code, output = self._engine_side.exec_run(["rabbitmqctl", *arguments])
        if code:
            raise ServerUnavailable(f"rabbitmqctl {arguments[0]} failed: {output.decode(errors='replace').strip()}")


def _bound(container: "DockerContainer", ports: Mapping[int, int]) -> "DockerContainer":
    """Publishes container ports on loopback only; testcontainers' own method would publish them to the network."""
    for inside, outside in ports.items():
        container.ports[f"{inside}/tcp"] = (HOST, outside)  # type: ignore[assignment]
    return container
