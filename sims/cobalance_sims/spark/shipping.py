"""Sends this code to the workers of a cluster, so that they run the same version. Its imports must be there."""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES = ("cobalance", "cobalance_sims", "pyspark_cobalance")
LEFT_OUT = {"__pycache__"}
EPOCH = (1980, 1, 1, 0, 0, 0)
"""A fixed timestamp: the same code makes the same bytes, which Spark then recognises."""


def ship(spark: SparkSession) -> None:
    """Puts our packages, the Lua among them, first on the path of every Python worker of this session."""
    content = packed()
    folder = Path(tempfile.mkdtemp(prefix="cobalance-shipped-"))
    atexit.register(
        shutil.rmtree, folder, ignore_errors=True
    )  # a cluster fetches the file from here for as long as we run
    file = folder / f"cobalance-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    file.write_bytes(content)
    spark.addArtifacts(str(file), pyfile=True)


def packed() -> bytes:
    """The code as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_files()):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    for module in MODULES:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            yield origin.name, origin
            continue
        for file in origin.parent.rglob("*"):
            if file.is_file() and not LEFT_OUT & set(file.parts):
                yield str(file.relative_to(origin.parents[1])), file
