"""What can go wrong with Spark, in our words: what happened, what is kept, what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cobalance.errors import CobalanceError, UsageError

SWEEP_DIGITS = 17
"""Digits of a wave's number in a sweep: the moment when it began. Waves of an exported journal are counted from 0."""

INSTALL = "pip install 'cobalance[spark]'"


class SparkMissing(CobalanceError):
    """PySpark, or something it needs on this machine or on a worker, is not installed."""


class SparkTooOld(UsageError):
    """What was asked for needs a newer PySpark."""


class JavaMissing(CobalanceError):
    """There is no Java that this Spark can run on."""


class ClusterUnreachable(CobalanceError):
    """There is no answer at the master or Connect URL, or not any more."""


class WorkerDied(CobalanceError):
    """A Python worker or an executor ended without an answer: a crash, or the machine ran out of memory."""


class CorruptParquet(CobalanceError):
    """A Parquet file cannot be read. Nothing was changed."""


class SparkFailed(CobalanceError):
    """A Spark job ended in an error for which we have no better words."""


class NotASweep(UsageError):
    """The folder holds no sweep, or not one that this version wrote."""


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Translates errors of Spark into ours; ``doing`` says what was going on ("reading the manifest")."""
    try:
        yield
    except (CobalanceError, KeyboardInterrupt):
        raise
    except Exception as error:
        clear = translated(error, doing)
        if clear is None:
            raise
        raise clear from error


def translated(error: Exception, doing: str) -> CobalanceError | None:
    """Returns our error for one of Spark's; None if it is not Spark's."""
    if not _is_sparks(error):
        return None
    text = str(error)
    for recognise in (_missing_module, _missing_source, _died, _unreadable, _gone):
        found = recognise(text, doing)
        if found is not None:
            return found
    return SparkFailed(f"Spark failed while {doing}: {_first_lines(text)} COBALANCE_SPARK_LOG=warn shows what it logs.")


def _is_sparks(error: Exception) -> bool:
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"pyspark", "py4j", "grpc"}) or isinstance(error, ConnectionError)


_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_DEATHS = (
    "worker exited unexpectedly",
    "Python worker process terminated",
    "ExecutorLostFailure",
    "Executor heartbeat timed out",
    "OutOfMemoryError",
    "EOFException",
    "Slave lost",
    "Worker lost",
)
_FILE = re.compile(
    r"(?:Encountered error while reading file|FAILED_READ_FILE|Could not read footer for file:?)\D{0,200}?((?:\b\w{1,20}:/)?/\S+)"
)
_BROKEN = (
    "is not a Parquet file",
    "Could not read footer",
    "CANNOT_READ_FILE_FOOTER",
    "FAILED_READ_FILE",
    "ParquetDecodingException",
)
_PARQUET = re.compile(r"((?:\b\w{1,20}:/)?/[^\s'\",\]]{1,1000}\.parquet)")
_ENDS = (
    "Connection refused",
    "StatusCode.UNAVAILABLE",
    "UNAVAILABLE",
    "Answer from Java side is empty",
    "SparkContext was shut down",
    "stopped SparkContext",
    "All masters are unresponsive",
)


def _missing_module(text: str, doing: str) -> CobalanceError | None:
    found = _MODULE.search(text)
    if found is None:
        return None
    return SparkMissing(
        f"A worker has no module {found[1]!r} (while {doing}): {INSTALL} on every node, for the Python that its workers run "
        f"(the same minor version as here), or name another with PYSPARK_PYTHON."
    )


def _missing_source(text: str, doing: str) -> CobalanceError | None:
    if "Failed to find the data source: cobalance" not in text:
        return None
    return SparkMissing(
        f"Spark has no format cobalance (while {doing}): {INSTALL} where its driver runs (the server of Spark Connect), for the "
        "Python that it uses, and start it again."
    )


def _died(text: str, doing: str) -> CobalanceError | None:
    if not any(sign in text for sign in _DEATHS):
        return None
    return WorkerDied(
        f"A worker died while {doing}: it crashed, or ran out of memory. {_crash_trace(text)}What was finished before is kept: "
        f"the same command goes on from there."
    )


def _crash_trace(text: str) -> str:
    """The innermost lines that Python's faulthandler left, if it did."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(("File ", "Fatal Python error"))]
    return f"Its last words: {' < '.join(lines[:4])}. " if lines else ""


def _unreadable(text: str, doing: str) -> CobalanceError | None:
    if not any(sign in text for sign in _BROKEN):
        return None
    found = _FILE.search(text) or _PARQUET.search(text)
    where = re.sub(r"^file:/+", "/", found[1].rstrip(".,")) if found else "one of its files"
    return CorruptParquet(f"{where} cannot be read (while {doing}): it is damaged, or no Parquet file. {_cure(where)}")


def _cure(file: str) -> str:
    wave = re.search(r"^(.*)/(?:events|handovers|outcomes|manifest)/(wave=(\d+))/", file)
    if wave is None:
        return "Remove it, or write it again."
    if len(wave[3]) < SWEEP_DIGITS:
        return (
            f"Bring {wave[1]} back from a backup, or export the journal into a new folder, as far back as Redis still has it; "
            "without the file, its events are missing."
        )
    return (
        f"Remove {wave[1]}/manifest/{wave[2]} and run the same sweep again: that wave's scenarios are simulated again, "
        f"all others are kept."
    )


def _gone(text: str, doing: str) -> CobalanceError | None:
    if not any(sign in text for sign in _ENDS):
        return None
    return ClusterUnreachable(
        f"Spark went away while {doing}. What was finished before is kept: once it is back, the same command goes on from there."
    )


def _first_lines(text: str) -> str:
    """The text of the error without its stack of Java frames."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("at ", "..."))]
    return " ".join(lines[:3])[:600]
