"""Asks a dashboard as programs do."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs


@attrs.frozen
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(port: int, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    """One request; underscores in names of headers are dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            method, path, body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        found = connection.getresponse()
        named = {name.lower(): value for name, value in found.getheaders()}
        return Answer(found.status, named, found.read().decode())
    finally:
        connection.close()


@contextmanager
def events(port: int, path: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The messages of a stream; one of another kind than "message" has its kind as `event`."""
    with stream(port, path, Accept="text/event-stream") as answer:
        assert answer.getheader("Content-Type", "").startswith("text/event-stream"), answer.read()
        yield _messages(answer)


@contextmanager
def stream(port: int, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """An answer that goes on; underscores in names of headers are dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        with connection.getresponse() as answer:
            yield answer
    finally:
        connection.close()


def _messages(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    kind = None
    while line := answer.readline().decode().rstrip("\n"):
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            found = json.loads(line.removeprefix("data: "))
            yield {**found, "event": kind} if kind else found
            kind = None
        if line.startswith((":", "data: ")):
            answer.readline()  # the empty line at its end
