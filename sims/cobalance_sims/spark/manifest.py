"""Which runs of a sweep are done. A wave counts once its folder in the manifest is complete, and not before.

::

    OUT/grid.json/                            one line for each sweep command: its grid, versions, when
    OUT/manifest/wave=N/*.parquet             the runs of each finished wave
    OUT/{events,handovers,outcomes}/wave=N/   their results; a wave that is not in the manifest was interrupted
    OUT/staged/wave=N/                        where Spark may keep nothing in memory, results on their way; may be deleted

A wave is numbered by the moment it begins, so that everything an interrupted one still writes lands in a folder of its
own. Everything is written through Spark, which may run on a machine with other disks than ours.
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import attrs
import pyarrow as pa

from cobalance.errors import UsageError
from cobalance_sims.spark.errors import NotASweep, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "run": "string",
    "status": "string",
    "error": "string",
    "replay": "string",
    "shape": "string",
    "cpu_s": "double",
}
"""Columns of a run. Runs of one shape are expected to cost about the same."""

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
"""What file systems say that know no locks: some network mounts, and object stores mounted as folders."""


@attrs.frozen
class Manifest:
    """The manifest of the sweep in one folder."""

    spark: SparkSession
    out: str
    """Absolute, or a URI."""

    @property
    def _path(self) -> str:
        return f"{self.out}/manifest"

    def runs(self) -> DataFrame | None:
        """The runs that are done, with the ``wave`` of each; None if nothing is there yet.

        Raises:
            NotASweep: there is something else.
            CorruptParquet: a file of it is damaged.
        """
        with spark_errors("reading the manifest"):
            found = self._columns()
        if found is None:
            return None
        if found != {**COLUMNS, "wave": "bigint"}:
            raise NotASweep(
                f"{self._path} is not a manifest of this version (it has {', '.join(found)}): name another folder."
            )
        return self.spark.read.schema(f"{SCHEMA}, wave bigint").parquet(self._path)

    def _columns(self) -> dict[str, str] | None:
        from pyspark.errors import AnalysisException

        try:
            return dict(self.spark.read.parquet(self._path).dtypes)
        except AnalysisException as error:
            if error.getCondition() in {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}:
                return None
            raise

    def waves(self) -> list[int]:
        """The finished waves, in order."""
        runs = self.runs()
        if runs is None:
            return []
        with spark_errors("reading the manifest"):
            return sorted(row.wave for row in runs.select("wave").distinct().collect())

    def failed(self) -> list[dict[str, Any]]:
        """The runs that failed, with run, error and replay."""
        runs = self.runs()
        if runs is None:
            return []
        with spark_errors("reading the manifest"):
            found = runs.where("status <> 'ok'").select("run", "error", "replay").orderBy("run").collect()
        return [row.asDict() for row in found]

    def commit(self, wave: int, runs: Sequence[dict[str, Any]]) -> None:
        """Marks the wave as done: ``runs`` have the columns of COLUMNS."""
        kinds = {"string": pa.string(), "double": pa.float64()}
        table = pa.Table.from_pylist(list(runs), pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()]))
        self.spark.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(f"{self._path}/wave={wave}")

    def note_grid(self, words: dict[str, Any]) -> None:
        """Records what was asked for."""
        line = self.spark.createDataFrame([(json.dumps(words, sort_keys=True),)], "value string")
        line.coalesce(1).write.mode("append").text(f"{self.out}/grid.json")


def wave_number(now: datetime | None = None) -> int:
    """The moment, as YYYYMMDDhhmmssmmm in UTC."""
    now = now or datetime.now(UTC)
    return int(now.strftime("%Y%m%d%H%M%S")) * 1000 + now.microsecond // 1000


def absolute(out: str) -> str:
    """The folder in the form that Spark needs, wherever it runs."""
    return out.rstrip("/") if urlsplit(out).scheme else str(Path(out).expanduser().absolute())


def folder_of(out: str) -> Path | None:
    """The folder, if it is one of this machine, or mounted on it."""
    parts = urlsplit(out)
    if not parts.scheme:
        return Path(absolute(out))
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@contextmanager
def only_writer(out: str) -> Iterator[None]:
    """Keeps a second command away from a folder of this machine. For other places, and file systems without locks, the
    caller has to.

    Raises:
        UsageError: another one is writing there, the folder cannot be written to, or its name is not usable.
    """
    _check_name(out)
    folder = folder_of(out)
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to ({error.strerror}): name another folder.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another command is at work in {folder}: wait for its end, or name another folder."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UsageError(f"{folder} cannot be locked ({error.strerror}): name another folder.") from None
        yield


def _check_name(out: str) -> None:
    """Spark would write to such a folder, and later not find its contents."""
    if not out.strip():
        raise UsageError("--out is empty: no folder is named.")
    if found := sorted(set(absolute(out)) & set("*?[]{}\\")):
        raise UsageError(
            f"{out} has {' '.join(found)} in its name, which Spark takes for a pattern: name another folder."
        )
