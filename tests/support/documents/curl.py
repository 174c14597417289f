"""Reads a console session of curl commands as requests of httpx: curl itself may be absent."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = "…"


@dataclass(slots=True)
class Step:
    """One command of a session, and the output shown under it."""

    command: str
    output: list[str] = field(default_factory=list)

    def matches(self, output: str) -> bool:
        """Whether ``output`` is the one shown, ``…`` standing for anything."""
        shown = "\n".join(self.output)
        pattern = ".*".join(re.escape(part) for part in shown.split(VARIES))
        return re.fullmatch(pattern, output.rstrip("\n"), re.DOTALL) is not None


def steps(markdown: str) -> Iterator[Step]:
    """Yield the commands of every ``console`` block; a line after ``> `` continues one."""
    step: Step | None = None
    for session in CONSOLE.findall(markdown):
        for line in session.splitlines():
            if line.startswith("$ "):
                if step:
                    yield step
                step = Step(line.removeprefix("$ ").removesuffix("\\"))
            elif step and line.startswith("> "):
                step.command += line.removeprefix(">").removesuffix("\\")
            elif step:
                step.output.append(line)
    if step:
        yield step


def request(command: str) -> httpx.Request:
    """Return what ``[printf FORMAT WORD... |] curl OPTION... URL`` would send."""
    before, _, words = command.rpartition("curl ")
    printf, form, *printed = shlex.split(before.rstrip("| ")) or ["printf", "%s\\n"]
    piped = "".join(f"{word}\n" for word in printed)
    method, url, body = "", "", None
    headers: dict[str, str] = {}
    params: dict[str, str] | None = None
    remaining = iter(shlex.split(words))
    if (printf, form) != ("printf", "%s\\n"):
        raise ValueError(command)
    for word in remaining:
        match word:
            case "-s" | "-G":
                continue
            case "--data-urlencode":  # with -G
                params = dict([next(remaining).split("=", 1)])
            case "-X":
                method = next(remaining)
            case "-H":
                name, _, value = next(remaining).partition(":")
                headers[name] = value.strip()
            case "--json" | "--data-binary":
                body = next(remaining)
                body = piped if body == "@-" else body
                if word == "--json":
                    headers |= {"Content-Type": "application/json", "Accept": "application/json"}
            case _ if word.startswith("localhost:8000/"):
                url = f"http://{word}"
            case _:
                raise ValueError(word)
    method = method or ("GET" if body is None else "POST")
    return httpx.Request(method, url, params=params, content=body, headers=headers)
