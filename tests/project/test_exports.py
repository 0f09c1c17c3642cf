"""What is public: complete, sorted, typed, and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from importlib.resources import files
from types import FunctionType
from typing import Any

import pytest
from tests.readme_sections import code_blocks

import cobalance

PUBLIC = ["cobalance", "cobalance.admin", "cobalance.operate", "cobalance.rabbitmq", "cobalance.servers"]


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_sorted_and_there(name: str) -> None:
    """`__all__` names what exists, in order, once."""
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(set(module.__all__))
    for item in module.__all__:
        assert hasattr(module, item)


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_else_is_imported_into_a_public_module(name: str) -> None:
    """So that no user comes to depend on what is there by accident."""
    module = importlib.import_module(name)
    classes_and_functions = {
        item
        for item, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not item.startswith("_")
    }
    assert classes_and_functions <= set(module.__all__)


CLASSES_AND_FUNCTIONS = [
    f"{module.__name__}:{name}"
    for module in map(importlib.import_module, (*PUBLIC, "cobalance.testing"))
    for name in module.__all__
    if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))
]


@pytest.mark.parametrize("exported", CLASSES_AND_FUNCTIONS)
def test_public_things_are_documented(exported: str) -> None:
    """Each class and function has a docstring of its own, and so has each public method and property of a class."""
    module, _, name = exported.partition(":")
    thing = getattr(importlib.import_module(module), name)
    assert thing.__doc__
    for member_name, member in inspect.getmembers_static(thing):
        if not member_name.startswith("_") and isinstance(member, DOCUMENTED):
            assert inspect.getdoc(getattr(thing, member_name)), f"{name}.{member_name}"


DOCUMENTED = (FunctionType, classmethod, staticmethod, property)

SHOWN = {
    "Group": {
        "commit",
        "declare",
        "describe",
        "failed",
        "given_up",
        "health",
        "leadership",
        "leave",
        "member",
        "name",
        "pause",
        "paused",
        "resume",
    }
    | {"revoked_unfinished", "settings", "start", "stop", "tenures", "wait_held", "wait_joined", "wait_left"},
    "Tenure": {
        "active",
        "commit",
        "committed",
        "paused",
        "processing",
        "resource",
        "scope",
        "token",
        "using",
        "wait_draining",
    }
    | {"fake", "wait_resumed"},
    "GroupConnection": {
        "add_callback_threadsafe",
        "channel",
        "close",
        "consume",
        "health",
        "leave",
        "process_data_events",
        "sleep",
    },
}
SHOWN["ConsumerGroup"] = SHOWN["Group"] | {"ack", "reject", "seek"}
ENGINES = {
    "abort",
    "begin",
    "drain",
    "forget_reply",
    "joined",
    "keep",
    "left",
    "on_ready",
    "post",
    "problem",
    "sample",
    "share",
    "start_soon",
}


@pytest.mark.parametrize("name", [name for name in cobalance.__all__ if inspect.isclass(getattr(cobalance, name))])
def test_public_classes_show_what_is_for_programs(name: str) -> None:
    """As notebooks complete names: nothing that only other parts of the library call."""
    thing: Any = getattr(cobalance, name)
    if name == "Group":
        made = cobalance.Group("g")
    elif name == "ConsumerGroup":
        made = cobalance.ConsumerGroup("g", "t", lambda _: None)
    else:
        made = thing.__new__(thing)
    shown = {it for it in dir(made) if not it.startswith("_")}
    assert not shown & ENGINES
    assert shown == SHOWN.get(name, shown)


README_BLOCKS = [*code_blocks("py"), *code_blocks("python")]


@pytest.mark.parametrize("block", README_BLOCKS, ids=str)
def test_what_the_readme_uses_can_be_imported(block: str) -> None:
    """As written; what it does not import itself is in ``cobalance``."""
    tree = ast.parse(block)
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, it.name) for it in node.names), ast.unparse(node)
            imported |= {it.name for it in node.names}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    classes = {name for name in names if name[0].isupper() and not name.isupper()}
    assert classes <= {*cobalance.__all__, *imported}


@pytest.mark.parametrize(
    ("statement", "unused"),
    [
        ("import cobalance", ["anyio", "attrs", "cyclopts", "pika", "redis"]),
        ("from cobalance import Group", ["cyclopts", "pika", "redis"]),
        ("from cobalance import ConsumerGroup, GroupAdmin", ["cyclopts", "prometheus_client", "http.server"]),
        ("import cobalance.cli.app", ["anyio", "pika", "redis"]),
        ("import cobalance.cli.group", ["anyio", "pika", "redis"]),
    ],
)
def test_only_what_is_used_is_loaded(statement: str, unused: list[str]) -> None:
    """A command starts in half the time without the rest of the library."""
    left = f"{statement}; import sys; print(*sys.modules.keys() & {unused})"
    ended = subprocess.run([sys.executable, "-c", left], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_threads_that_use_it_first_at_the_same_time_get_all_of_it() -> None:
    """Pika's modules import each other in circles: two threads that begin at different ones would get half of it."""
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=True, timeout=100)
    assert ended.stdout.split() == []


AT_ONCE = """
import sys, threading, cobalance
sys.setswitchinterval(1e-5)
begin = threading.Barrier(len(cobalance.__all__))

def use(name):
    begin.wait()
    try:
        getattr(cobalance, name)
    except BaseException as error:
        print(name, repr(error))

threads = [threading.Thread(target=use, args=(name,)) for name in cobalance.__all__]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_a_fork_waits_for_what_is_being_imported() -> None:
    """The child would find a module locked by a thread that it does not have."""
    ended = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=100)
    assert ended.stdout.split() == ["child", "0"]


FORKED = """
import importlib.abc, os, sys, threading, cobalance
under_way = threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pika":
            under_way.set()
            threading.Event().wait(0.5)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: cobalance.ConsumerGroup)
thread.start()
under_way.wait()
child = os.fork()
if not child:
    import signal
    signal.alarm(30)
    cobalance.ConsumerGroup
    os._exit(0)
print("child", os.waitpid(child, 0)[1])
thread.join()
"""


def test_a_package_has_its_folders_and_nothing_that_is_misspelt() -> None:
    """What is loaded on use looks like what has been loaded."""
    used = (
        "import cobalance; print(cobalance.rabbitmq.create_topic is cobalance.create_topic, 'Group' in dir(cobalance))"
    )
    ended = subprocess.run([sys.executable, "-c", used], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "True"]
    with pytest.raises(AttributeError, match="module 'cobalance' has no attribute 'Gruop'"):
        getattr(cobalance, "Gruop")  # noqa: B009


@pytest.mark.parametrize("module", ["cobalance", "cobalance.cli"])
def test_the_command_is_a_module_too(module: str) -> None:
    """For machines where scripts are not on the path."""
    ended = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: cobalance" in ended.stdout


def test_types_are_shipped() -> None:
    """The marker that makes type checkers read our annotations."""
    assert (files(cobalance) / "py.typed").is_file()
