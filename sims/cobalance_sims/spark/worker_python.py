"""The Python of a local Spark's workers: this one, with a launcher in front that makes streams connect in time."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from cobalance_sims.spark import early_worker
from cobalance_sims.spark.java import cache_folders, write_program

LAUNCHER = """\
#!/bin/sh
# Made by cobalance: starts Python for Spark. The process of a streaming source connects before it imports PySpark.
if [ "$1 $2" = "-m {module}" ]; then
    exec {python} -P {early}
fi
exec {python} "$@"
"""


def worker_python() -> str:
    """The value for PYSPARK_PYTHON; if no launcher can be written, this Python itself."""
    python, early = shlex.quote(sys.executable), shlex.quote(early_worker.__file__)
    text = LAUNCHER.format(module=early_worker.MODULE, python=python, early=early)
    name = f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    for folder in cache_folders():
        program = Path(folder, name, "python3")
        try:
            program.parent.mkdir(parents=True, exist_ok=True)
            write_program(program, text)
        except OSError:
            continue
        if os.access(program, os.X_OK):  # a mount may forbid it
            return str(program)
    return sys.executable
