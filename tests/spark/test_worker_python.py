"""The Python of a local Spark: a streaming source's process connects before it imports PySpark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cobalance_sims.spark import worker_python
from cobalance_sims.spark.early_worker import MODULE

SECRET = "of-this-test"

RUNNER = """\
from pyspark.{module} import local_connect_and_auth
file, connection = local_connect_and_auth(1, "another")
file.write(b"hello")
file.flush()
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python, "cache_folders", lambda: iter([tmp_path / "cache"]))


def slow_pyspark(folder: Path, module: str) -> Path:
    """A PySpark whose import waits until the returned file is written to."""
    gate = folder / "gate"
    os.mkfifo(gate)
    package = folder / "pyspark" / "sql" / "streaming"
    package.mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").write_text(f"open({str(gate)!r}).read()\n")
    for name in ("util", "worker_util"):
        (folder / "pyspark" / f"{name}.py").write_text("local_connect_and_auth = None\n")
    for inner in (package.parent, package):
        (inner / "__init__.py").touch()
    (package / f"{MODULE.rpartition('.')[2]}.py").write_text(RUNNER.format(module=module))
    return gate


@pytest.mark.parametrize("module", ["worker_util", "util"])
def test_a_stream_connects_before_it_imports(tmp_path: Path, module: str) -> None:
    """Spark has its connection, and receives the secret, while PySpark is being imported; that connection is used."""
    gate = slow_pyspark(tmp_path, module)
    with socket.create_server(("127.0.0.1", 0)) as server:
        spark = {
            "PYTHONPATH": str(tmp_path),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
        }
        with subprocess.Popen([worker_python.worker_python(), "-m", MODULE], env={**os.environ, **spark}) as process:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as stream:
                assert stream.read(4 + len(SECRET)) == len(SECRET).to_bytes(4, "big") + SECRET.encode()
                stream.write((2).to_bytes(4, "big") + b"ok")
                stream.flush()
                assert process.poll() is None
                gate.write_text("now\n")
                assert stream.read() == b"hello"
    assert process.returncode == 0


def test_all_else_is_started_as_it_is(tmp_path: Path) -> None:
    """With the same Python and arguments."""
    program = worker_python.worker_python()
    assert Path(program).is_relative_to(tmp_path)
    asked = "import sys; print(sys.executable, sys.argv[1:])"
    said = subprocess.run([program, "-c", asked, "-m", MODULE], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"{sys.executable} {['-m', MODULE]}"


def test_without_a_place_for_it_there_is_no_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers then start as slowly as PySpark makes them."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(worker_python, "cache_folders", lambda: iter([tmp_path / "file"]))
    assert worker_python.worker_python() == sys.executable
