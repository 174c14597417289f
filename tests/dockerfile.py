"""Reads a Dockerfile into its instructions; enough of the language for the one at hand."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import REPOSITORY


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``RUN pip install .`` is ("RUN", "pip install .")."""

    keyword: str
    text: str

    @property
    def command(self) -> list[str]:
        """The words of an exec-form argument: ``["python", "-m", "x"]``."""
        words = json.loads(self.text[self.text.index("[") :])
        if not isinstance(words, list):
            raise TypeError(self.text)
        return [str(word) for word in words]

    @property
    def settings(self) -> dict[str, str]:
        """The pairs of an ``ENV`` instruction, values as written."""
        return dict(re.findall(r"(\w+)=(\S*)", self.text))


def instructions(path: Path = REPOSITORY / "Dockerfile") -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, continued lines joined, comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    for line in joined.splitlines():
        keyword, _, text = line.strip().partition(" ")
        if keyword:
            yield Instruction(keyword.upper(), text.strip())
