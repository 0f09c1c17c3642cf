"""The parts of the READMEs that come from the code: ``python -m tests.readme_sections`` writes them, a test compares."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import attrs
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser

from cobalance import errors, settings
from cobalance.member.holding import TABLE, State
from cobalance.member.session import TRANSITIONS, Phase

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
READMES = (
    README,
    *(path for folder in ("src", "sims", "tests", "examples") for path in sorted(ROOT.glob(f"{folder}/**/README.md"))),
)
"""The front page first; then that of each folder that has one."""

DOCUMENTS = (
    *READMES,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "sims/proof/PROOF.md",
)
SOURCES = Path(errors.__file__).parent / "coordinator"

MARKED = re.compile(r"(<!-- generated: (?P<name>[\w ]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def read(path: Path) -> str:
    """A document's text."""
    return path.read_text("utf-8")


def code_blocks(language: str, *paths: Path) -> list[str]:
    """What the code blocks in that language hold, by default those of all READMEs."""
    found: list[str] = []
    system = Sybil([CodeBlockParser(language=language, evaluator=lambda example: found.append(str(example.parsed)))])
    for path in paths or READMES:
        for example in system.parse(path).examples():
            example.evaluate()
    return found


def settings_table() -> str:
    """Every field of both classes, with its default and the sentences that follow it in the source."""
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for owner in (settings.GroupSettings, settings.MemberSettings):
        rows.append(f"| **`{owner.__name__}`** | | {_first_sentence(owner)} |")
        words = _attribute_docs(owner)
        rows += [f"| `{it.name}` | {_default(it.default)} | {words[it.name]} |" for it in attrs.fields(owner)]
    return "\n".join(rows)


def errors_table() -> str:
    """The tree of errors, each below its parent."""
    rows = ["| Error | Meaning |", "|---|---|"]
    rows += [
        f"| {'&emsp;' * depth}`{kind.__name__}` | {_first_sentence(kind)} |"
        for depth, kind in _tree(errors.CobalanceError)
    ]
    return "\n".join(rows)


def member_diagram() -> str:
    """The diagram of the session's table."""
    edges = [f"    {_name(a)} --> {_name(b)}" for a in Phase for b in Phase if b in TRANSITIONS[a]]
    return _mermaid([f"    [*] --> {_name(Phase.NEW)}", *edges, f"    {_name(Phase.LEFT)} --> [*]"])


def tenure_diagram() -> str:
    """The diagram of a tenure's table, without the steps that change nothing."""
    edges = []
    for a in State:
        for b in State:
            steps = [step.value for step, after in TABLE.get(a, {}).items() if after is b and a is not b]
            if steps:
                edges.append(f"    {_name(a)} --> {_name(b)}: {', '.join(steps)}")
    return _mermaid([f"    [*] --> {_name(State.HELD)}", *edges, f"    {_name(State.GONE)} --> [*]"])


def acl_line() -> str:
    """Everything that the scripts and the transport send, and nothing else."""
    rules = [f"+{command}" for command in sorted(commands())]
    words = [
        "ACL SETUSER cobalance on >PASSWORD",
        "resetkeys ~cobalance:*",
        "resetchannels &cobalance:*",
        "-@all",
        *rules,
    ]
    return f"```text\n{' '.join(words)}\n```"


def commands() -> set[str]:
    """The Redis commands in the sources, subcommands with a bar; `select` is for URLs with a database number."""
    scripts = "".join(path.read_text() for path in sorted(SOURCES.glob("lua/**/*.lua")))
    python = "".join(path.read_text() for path in sorted(SOURCES.glob("redis/*.py")))
    found = [it.replace("PUBSUB", "PUBSUB|NUMSUB") for it in re.findall(r"call\('(\w+)'", scripts)]
    found += re.findall(r'(?:_exchange\(connection, |send_command\()"(\w+)"(?!, "(?:LOAD|SLOTS)")', python)
    found += ["|".join(words) for words in re.findall(r'\.ask\("(\w+)", "(\w+)"', python)]  # of a cluster
    return {command.lower() for command in found} - {"script"} | {"script|load", "evalsha", "select"}


SECTIONS: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "errors": errors_table,
    "member": member_diagram,
    "tenure": tenure_diagram,
    "acl": acl_line,
}


def renewed(text: str) -> str:
    """Returns a README with every generated part as it should be."""
    return MARKED.sub(lambda found: f"{found[1]}{SECTIONS[found['name']]()}\n{found[3]}", text)


def _attribute_docs(owner: type) -> dict[str, str]:
    body = ast.parse(inspect.getsource(owner)).body[0]
    statements = body.body if isinstance(body, ast.ClassDef) else []
    return {
        before.target.id: " ".join(ast.literal_eval(after.value).split()).replace("``", "`")
        for before, after in pairwise(statements)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr)
    }


def _default(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"`{value}`" if isinstance(value, str) else "none"


def _first_sentence(kind: type) -> str:
    paragraph = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", paragraph)[0].replace("``", "`")


def _tree(kind: type, depth: int = 0) -> Iterator[tuple[int, type]]:
    yield depth, kind
    children: list[type] = kind.__subclasses__()
    for child in children:
        if child.__module__ == errors.__name__:
            yield from _tree(child, depth + 1)


def _name(state: Phase | State) -> str:
    return state.name.capitalize()


def _mermaid(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", "    direction LR", *lines, "```"])


if __name__ == "__main__":
    for document in READMES:
        document.write_text(renewed(read(document)), "utf-8")
