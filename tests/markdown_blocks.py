"""The code blocks of a Markdown page, with the remark that stands before each.

A remark is an HTML comment right before a block:

    <!-- not run: why -->        the block is not carried out; commands are still parsed
    <!-- needs: torch, pandas --> it is carried out where these packages are installed
"""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    """One block: `language` is "indented" for a block without a fence."""

    page: Path
    line: int
    heading: str
    language: str
    text: str
    remark: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def skipped(self) -> str:
        """Why the block is not carried out; "" if it is."""
        if found := re.fullmatch(r"not run: (\S.*)", self.remark):
            return found[1]
        if found := re.fullmatch(r"needs: (\S.*)", self.remark):
            absent = [name for name in found[1].split(", ") if find_spec(name) is None]
            return f"needs {', '.join(absent)}" if absent else ""
        assert not self.remark, f"{self}: the remark {self.remark!r} is neither not run nor needs"
        return ""

    def commands(self) -> list[list[str]]:
        """The words of every line that begins with "$ ", comments left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    """All code blocks of a page, in order, those in lists too."""
    found, heading, remark = [], "", ""
    tokens = MarkdownIt().parse(page.read_text())
    for token, before in zip(tokens, [None, *tokens], strict=False):
        if before is not None and before.type == "heading_open":
            heading = token.content
        if token.type in ("fence", "code_block"):
            said = re.fullmatch(r"\s*<!--\s*(.*?)\s*-->\s*", remark, flags=re.S)
            language = token.info.strip() if token.type == "fence" else "indented"
            line = (token.map or [0])[0] + 1
            found.append(
                Block(page, line, heading, language, token.content, said[1] if said else "")
            )
        remark = token.content if token.type == "html_block" else ""
    return found
