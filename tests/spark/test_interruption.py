"""Ctrl-C and SIGTERM while Spark works: a clear message, not the tracebacks of broken conversations with the JVM."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spark.sweeping import WORDS

from cobalance.cli.app import run as main
from cobalance.cli.exits import INTERRUPTED
from cobalance_sims.spark import session, sweep
from cobalance_sims.spark.errors import SparkFailed
from cobalance_sims.spark.interruption import quiet_interrupts, sigterm_interrupts


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_quiet(sent: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    """What py4j logs about the broken call is not shown; what is logged afterwards is."""

    def torn() -> None:
        try:
            os.kill(os.getpid(), sent)
        finally:
            logging.error("Exception while sending command.")  # noqa: LOG015 - as py4j does

    before = signal.getsignal(sent)
    with pytest.raises(KeyboardInterrupt), quiet_interrupts():
        torn()
    logging.getLogger(__name__).error("afterwards")
    assert [record.message for record in caplog.records] == ["afterwards"]
    assert signal.getsignal(sent) is before


def test_sigterm_is_an_interruption() -> None:
    """Also before Spark is there."""
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupted_sweep_says_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how to resume, in one line: what Spark says of being broken off is not shown."""

    @contextmanager
    def spark_session(*_: object, **__: object) -> Iterator[None]:
        yield

    def run(*_: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            raise SparkFailed("Exception thrown in awaitResult")

    monkeypatch.setattr(session, "spark_session", spark_session)
    monkeypatch.setattr(sweep.Sweep, "run", run)
    assert main(["sims", "sweep", *WORDS, "--out", str(tmp_path / "out")]) == INTERRUPTED
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"error: interrupted: all finished waves are kept in {tmp_path / 'out'}; the same command goes on from there"
    ]
