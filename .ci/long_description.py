"""The README as PyPI shows it: what is relative in it leads into the repository, since PyPI has nothing else."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)]+)\)")


class LongDescription(MetadataHookInterface):
    """Run by hatchling whenever metadata are made."""

    def update(self, metadata: dict) -> None:
        """Sets the README, for which the project's metadata name this hook (``dynamic``)."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Repository"])}


def absolute(text: str, repository: str) -> str:
    """Relative links and pictures lead to the repository's main branch."""

    def replaced(found: re.Match) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}[{found[2]}]({repository}/{kind}/main/{found[3]})"

    return LINK.sub(replaced, text)
