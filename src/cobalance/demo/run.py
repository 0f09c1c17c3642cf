"""Runs the demo: servers, topic, story, verdict. Leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
from rich.console import Console

from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import Script
from cobalance.demo.evidence import Evidence
from cobalance.demo.options import PREFETCH, DemoOptions
from cobalance.demo.report import as_json, print_report
from cobalance.demo.supervisor import Supervisor
from cobalance.demo.verdict import judge
from cobalance.demo.view import view_for
from cobalance.errors import CobalanceError
from cobalance.lab.member import MemberJob
from cobalance.lab.stage import Stage
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.servers import Servers, running
from cobalance.threads.gate import Gate
from cobalance.threads.signals import ENDING, signals_handled

NARROWEST = 110
"""Columns of the report if it does not go to a terminal."""

_FORGET = Script.of("forget", "return redis.call('DEL', unpack(KEYS))")


def run_demo(options: DemoOptions, console: Console | None = None) -> bool:
    """Runs the demo, prints the verdict, and returns whether all promises were kept.

    Raises:
        CobalanceError: servers were not available, or the story stopped before its end.
    """
    console = console or Console(width=None if sys.stdout.isatty() else NARROWEST)
    shown = _browser_for(options)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="cobalance-demo-"))
    keep = options.keep
    try:
        with (
            signals_handled(_interrupt, *ENDING),
            _scene(options, console) as (servers, name),
            shown(servers, name, console),
        ):
            evidence = _play(options, servers, name, folder, console)
            verdict = judge(evidence)
            elapsed_s = time.monotonic() - began
            print_report(verdict, options, elapsed_s, console)
            _write(options, as_json(verdict, options, elapsed_s))
            if verdict.failures or keep:
                keep = True
                _save_journal(evidence, folder)
                console.print(f"The workers' logs and the journal are in {folder}", soft_wrap=True)
    except CobalanceError as error:
        _write(options, {"ok": False, "mode": options.mode, "failures": [str(error)]})
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return not verdict.failures


def _browser_for(options: DemoOptions) -> Callable[[Servers, str, Console], AbstractContextManager[None]]:
    if not options.dashboard:
        return lambda *_: nullcontext()
    from cobalance.demo.browser import shown_in_a_browser

    return shown_in_a_browser


@contextmanager
def _scene(options: DemoOptions, console: Console) -> Iterator[tuple[Servers, str]]:
    """The servers, and the name of a topic and a group, which are gone afterwards."""
    console.print("Looking for Redis and RabbitMQ, or starting them …")
    with running() as servers:
        console.print(f"Redis: {servers.redis_origin}   RabbitMQ: {servers.rabbitmq_origin}")
        name = f"demo-{uuid.uuid4().hex[:8]}"
        try:
            yield servers, name
        finally:
            if options.keep:
                console.print(f"Topic and group {name} are kept, unless their servers were private.")
            else:
                _forget(servers, name)


def _play(options: DemoOptions, servers: Servers, name: str, folder: Path, console: Console) -> Evidence:
    topic = Topic(name, options.partitions, options.queue_type)
    job = MemberJob(group=name, topic=name, settings=options.settings, prefetch=PREFETCH, order=options.order)
    interrupted = Gate()
    with (
        view_for(console) as view,
        # Checked between two steps, so that none is left half done.
        signals_handled(lambda _, __: interrupted.open(), *ENDING),
        Stage(topic, job, folder, redis_url=servers.redis_url, amqp_url=servers.amqp_url) as stage,
    ):
        return Supervisor(options, stage, view, interrupted).play()


def _forget(servers: Servers, name: str) -> None:
    with suppress(CobalanceError):
        delete_topic(servers.amqp_url, name, force=True)
    transport = open_transport(servers.redis_url)
    with suppress(CobalanceError):
        transport.call(_FORGET, group_keys(name), [])
    transport.close()


def _save_journal(evidence: Evidence, folder: Path) -> None:
    lines = [json.dumps(attrs.asdict(entry)) for entry in evidence.entries]
    lines += [json.dumps(attrs.asdict(change)) for change in evidence.changes]
    (folder / "journal.jsonl").write_text("\n".join(lines) + "\n")


def _write(options: DemoOptions, verdict: dict[str, Any]) -> None:
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(verdict, indent=2) + "\n")


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
