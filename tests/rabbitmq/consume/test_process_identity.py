"""Whether another process is gone: real processes, at each moment of their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.faults.eventually import eventually

from cobalance.rabbitmq.consume.process_identity import is_gone, own_process

PROC = Path("/proc/sys/kernel/random/boot_id")

PROGRAM = """
import ctypes, sys, threading
from cobalance.rabbitmq.consume.process_identity import own_process
print(own_process(), flush=True)
{then}
"""


@contextmanager
def another(then: str = "sys.stdin.read()") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and who it says that it is."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(then=then)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().removesuffix("\n")
        finally:
            process.kill()


def wait_dead(process: subprocess.Popen[str]) -> None:
    """Returns when it has ended; its parent has not noticed yet."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_one_that_lives_is_not_gone() -> None:
    with another() as (_, said):
        assert not is_gone(said)


def test_one_that_was_killed_is_gone() -> None:
    """Before its parent has noticed, and afterwards."""
    with another() as (process, said):
        process.send_signal(signal.SIGKILL)
        wait_dead(process)
        assert is_gone(said) == PROC.exists()
        process.wait()
        assert is_gone(said) == PROC.exists()


def test_one_whose_other_threads_run_is_not_gone() -> None:
    """Its first thread has ended alone, as a zombie."""
    then = "threading.Thread(target=sys.stdin.read).start(); ctypes.CDLL(None).pthread_exit(None)"
    with another(then) as (process, said):
        stat = Path(f"/proc/{process.pid}/stat")
        anyio.run(eventually, lambda: not PROC.exists() or ") Z " in stat.read_text())
        assert not is_gone(said)


def test_who_has_its_id_now_is_another() -> None:
    """Said by the one that began at another time."""
    here, began = own_process().rpartition(" ")[::2]
    assert is_gone(f"{here} {began}9") == PROC.exists()
    assert not is_gone(own_process())


@pytest.mark.parametrize(
    "said", ["", "x", "x y", "a b c d e", "a b c 1 2", f"{'x' * 40} pid:[1] host {2**22} 1", "\ufffd \ufffd \ufffd"]
)
def test_nobody_is_gone_who_cannot_be_looked_for(said: str) -> None:
    """Of another machine or container, or not of this form."""
    assert not is_gone(said)


def test_another_container_has_other_processes() -> None:
    """The ids of its namespace say nothing here."""
    said = own_process()
    assert not is_gone(said.replace("pid:[", "pid:[9").rpartition(" ")[0] + " 1")
