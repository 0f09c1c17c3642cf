"""A worker process, as seen by its supervisor."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal, cast

import attrs

from cobalance.demo.evidence import LogReader, ProcessedMessage
from cobalance.errors import CobalanceError
from cobalance.settings import GroupSettings

Phase = Literal["starting", "member", "leaving", "left", "killed", "failed"]


class WorkerFailed(CobalanceError):
    """A worker process ended unexpectedly."""


@attrs.frozen(kw_only=True)
class Job:
    """What all workers of a demo share."""

    group: str
    topic: str
    settings: GroupSettings
    folder: Path
    environment: Mapping[str, str] = attrs.field(repr=False)


class WorkerProcess:
    """One consumer process, from start to end."""

    def __init__(self, name: str, job: Job) -> None:
        self.name = name
        self.member: str | None = None
        """Its member id, once it has joined."""
        self.phase: Phase = "starting"
        self.log = job.folder / f"{name}.log"
        self.records: list[ProcessedMessage] = []
        self._reader = LogReader(self.log)
        self._stderr = job.folder / f"{name}.err"
        with self._stderr.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "cobalance.demo.worker",
                    job.group,
                    job.topic,
                    str(self.log),
                    json.dumps(attrs.asdict(job.settings)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | job.environment,  # not on the command line, where everyone could read the passwords
                start_new_session=True,
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)

    def look(self) -> None:
        """Checks whether it has joined or ended, and what it has processed."""
        if self.phase == "starting" and select.select([self._stdout], [], [], 0)[0]:
            said = self._stdout.readline().decode().strip()
            if said:
                self.member, self.phase = said, "member"
        if self._process.poll() is not None:
            self._ended()
        self.records.extend(self._reader.new())

    def _ended(self) -> None:
        if self.phase == "leaving" and self._process.returncode == 0:
            self.phase = "left"
        elif self.phase not in {"left", "killed"}:
            self.phase = "failed"
            raise WorkerFailed(
                f"Worker {self.name} ended with exit code {self._process.returncode}: {self._last_words()}"
            )

    def _last_words(self) -> str:
        lines = self._stderr.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it did not say why"

    def leave(self) -> None:
        self.phase = "leaving"
        self._stdin.close()

    def kill(self) -> None:
        """Sends SIGKILL: the kernel ends it between two instructions, and closes its sockets."""
        self.phase = "killed"
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Makes sure that it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    @property
    def over(self) -> bool:
        """Whether it has ended as intended."""
        return self.phase in {"left", "killed"}
