"""Journals for the tests: written straight into Redis, exported, and read back without Spark."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import redis

from cobalance.cli.app import app
from cobalance.coordinator.keys import journal_key

START_MS = 1_790_000_000_000


def write(admin: redis.Redis, group: str, first: int, last: int) -> None:
    """Writes the entries from one seq to another, and the keys that make it a group."""
    pipeline = admin.pipeline(transaction=False)
    for seq in range(first, last + 1):
        fields: dict[Any, Any] = {
            "seq": seq,
            "kind": "granted",
            "at_ms": START_MS + seq,
            "resource": f"r{seq % 9}",
            "member": "m.1",
            "token": seq,
        }
        pipeline.xadd(journal_key(group), fields, id=f"{START_MS + seq}-0")
    pipeline.hset(f"cobalance:1:{{{group}}}:state", "version", last)
    pipeline.execute()


def export(out: Path, address: str, *words: str) -> str:
    """Runs the command in this process; returns its output."""
    said = io.StringIO()
    with redirect_stdout(said):
        command = ["sims", "journal", "--out", str(out), "--redis-url-file", address, *words]
        app(command, exit_on_error=False, print_error=False, result_action="return_value")
    return said.getvalue()


def exported(out: Path) -> dict[str, list[int]]:
    """The seqs of each group that any reader of Parquet finds, in order; read without Spark."""
    import pyarrow.dataset as ds

    found: dict[str, list[int]] = {}
    for row in ds.dataset(out / "events", format="parquet").to_table(columns=["run", "seq"]).to_pylist():
        found.setdefault(row["run"], []).append(row["seq"])
    return {group: sorted(seqs) for group, seqs in found.items()}


def everything_in(folder: Path) -> str:
    """The text of all files that Spark has left there."""
    return "\n".join(file.read_bytes().decode(errors="replace") for file in folder.rglob("*") if file.is_file())
