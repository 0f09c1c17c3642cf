"""A private RabbitMQ node: on loopback only, on free ports, gone with this process.

It shares nothing with any other RabbitMQ on the machine: it has its own home and cookie, data, log and plugin files,
and its own Erlang port mapper. The port mapper is started here in the foreground, since the one Erlang would start by
itself is a daemon that outlives the node.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs

from cobalance.servers.find import RabbitMQProgram, search_path
from cobalance.servers.ports import HOST, free_port
from cobalance.servers.process import PrivateProcess
from cobalance.servers.ready import amqp_answers, http_answers, wait_until_ready
from cobalance.servers.unavailable import ServerUnavailable

START_TIMEOUT_S = 90.0
"""A node takes four to eight seconds; the rest is for busy machines."""

STOP_TIMEOUT_S = 60.0
"""A graceful stop takes about a second, up to eight with the management plugin."""

KILL_TIMEOUT_S = 10.0

CONTROL_TIMEOUT_S = 60.0
"""The command starts its own Erlang VM, which takes a second or two."""

STILL_STARTING = "requires the 'rabbit' app to be running"
"""The command's words between the first answer to a client and the end of the start."""


@attrs.frozen
class Ports:
    """The ports of one node, unchanged by restarts."""

    amqp: int = attrs.field(factory=free_port)
    """For clients."""
    distribution: int = attrs.field(factory=free_port)
    """Erlang distribution."""
    mapper: int = attrs.field(factory=free_port)
    """Erlang's port mapper."""
    management: int = attrs.field(factory=free_port)
    """The management plugin's API, if enabled."""


class PrivateRabbitMQ:
    """A RabbitMQ node that tests may stop, freeze, kill and restart."""

    def __init__(
        self,
        program: RabbitMQProgram,
        *,
        management: bool = False,
        plugins: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        origin: str = "local",
    ) -> None:
        """Starts it. `settings` are lines for rabbitmq.conf; `management` enables that plugin, which takes seconds."""
        self.origin = origin
        """`local`, or `apt` if it was installed for the purpose."""
        self.ports = Ports()
        self.process = PrivateProcess("rabbitmq")
        self._program = program
        self._plugins = ["rabbitmq_management", *plugins] if management else list(plugins)
        self._settings = dict(settings or {})
        self._mapper = PrivateProcess("epmd")
        try:
            self._write_files()
            self._mapper.start([str(program.epmd), "-port", str(self.ports.mapper), "-address", HOST])
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.ports.amqp}/%2F"

    @property
    def management_url(self) -> str | None:
        """The management API's URL, or None if it is not enabled."""
        return f"http://guest:guest@{HOST}:{self.ports.management}" if self._has_management else None

    def start(self) -> None:
        """Starts it again after `stop` or `kill`, with its durable queues and persistent messages."""
        self.process.start([str(self._program.server)], self.environment())
        wait_until_ready(lambda: amqp_answers(self.ports.amqp), self.process, START_TIMEOUT_S)
        if self._has_management:
            wait_until_ready(lambda: http_answers(self.ports.management), self.process, START_TIMEOUT_S)

    def stop(self) -> None:
        """Stops it gracefully."""
        self.process.signal(signal.SIGTERM)
        if not self.process.wait_exit(STOP_TIMEOUT_S):
            raise ServerUnavailable(f"rabbitmq did not stop within {STOP_TIMEOUT_S:g} s:\n{self.process.log_tail()}")

    def kill(self) -> None:
        """Ends it as a crash would. RabbitMQ 3 may then forget a queue that was declared a moment ago."""
        self.process.signal(signal.SIGKILL)
        self.process.wait_exit(KILL_TIMEOUT_S)

    def restart(self, *, empty: bool = False) -> None:
        """Restarts it, with its durable data or `empty`."""
        self.stop()
        if empty:
            shutil.rmtree(self._data)
        self.start()

    def log(self) -> str:
        """The server's log."""
        return "".join(it.read_text(errors="replace") for it in self.process.folder.rglob("*.log"))

    def control(self, *arguments: str) -> None:
        """Runs `rabbitmqctl` against it. Raises with the command's output if it fails."""
        command = [str(self._program.server.parent / "rabbitmqctl"), *arguments]
        deadline_s = time.monotonic() + CONTROL_TIMEOUT_S
        while True:
            done = subprocess.run(
                command, check=False, env=self.environment(), capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S
            )
            if not (done.returncode and STILL_STARTING in done.stderr) or time.monotonic() > deadline_s:
                break
        if done.returncode:
            raise ServerUnavailable(f"rabbitmqctl {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")

    def pause(self) -> None:
        """Freezes it: connections stay open but get no answers, until `resume`."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues after `pause`."""
        self.process.signal(signal.SIGCONT)

    def close(self) -> None:
        """Kills it and removes its folder."""
        self.process.close()
        self._mapper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def environment(self) -> dict[str, str]:
        """The environment for the node, and for any RabbitMQ command meant for it."""
        folder = self.process.folder
        own = {
            "HOME": str(folder),
            "PATH": search_path(),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self.ports.mapper),
            # Makes the script become the Erlang VM instead of waiting for it, so that signals reach the node.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"cobalance-{self.ports.amqp}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.ports.amqp),
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(self._data),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        }
        foreign = ("RABBITMQ_", "ERL_", "NOTIFY_SOCKET")
        return {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | own

    @property
    def _data(self) -> Path:
        return self.process.folder / "data"

    @property
    def _has_management(self) -> bool:
        return "rabbitmq_management" in self._plugins

    def _write_files(self) -> None:
        settings = {"management.tcp.ip": HOST, "management.tcp.port": str(self.ports.management)}
        settings = (settings if self._has_management else {}) | self._settings
        files = {
            "rabbitmq.conf": "".join(f"{name} = {value}\n" for name, value in settings.items()),
            "advanced.config": "[].\n",
            "rabbitmq-env.conf": "",
            "enabled_plugins": f"[{','.join(self._plugins)}].\n",
        }
        for name, text in files.items():
            (self.process.folder / name).write_text(text)
