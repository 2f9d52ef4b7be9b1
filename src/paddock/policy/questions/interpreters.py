"""Programs that a rule for them says too little about: what they run, or what they need."""

import shlex
from typing import Final

from paddock.policy.presets import RARELY_CONFINED
from paddock.policy.rules import Rule

INTERPRETERS: Final = frozenset(
    (
        "awk bash bun busybox dash deno docker env eval find gawk ksh lua make node npx parallel "
        "perl php pip podman python python3 ruby sed sh sudo tclsh uv uvx vim xargs zsh"
    ).split()
)
"""Programs that run whatever their arguments or a file say."""

RUNNERS: Final = frozenset(
    (
        "IPython asyncio bdb bpython cProfile code codeop coverage debugpy doctest execnet idlelib "
        "inspect invoke ipdb ipykernel jupyter kernprof line_profiler memory_profiler memray nox "
        "pdb pickle pipx poetry profile profiling ptpython pudb py_spy pydoc pyinstrument pyperf "
        "rlcompleter runpy scalene slipcover sqlite3 timeit torch.distributed tox trace trepan "
        "viztracer watchfiles xonsh"
    ).split()
)
"""Modules that run a text, a file or a module that their arguments name, as `python` does."""


def find_interpreter(rule: Rule) -> str:
    """Return the program or module of an allow whose star covers what it runs; else empty.

    A module that `-m` names is looked at in place of Python, as the decision itself does.
    """
    words = rule.pattern.target.split()
    program = words[0].rpartition("/")[2]
    if program not in INTERPRETERS or not words[-1].endswith("*"):
        return ""
    module = _module(rule) if program.startswith("python") else ""
    if not module:
        return program
    packages = module.split(".")
    names = {".".join(packages[:count]) for count in range(1, len(packages) + 1)}
    return f"{program} -m {module}" if names & (RUNNERS | INTERPRETERS) else ""


def find_unconfined(rule: Rule) -> str:
    """Return the program of a rule that rarely works in a sandbox; else empty."""
    words = rule.pattern.target.split()
    program = words[0].rpartition("/")[2] if words else ""
    return program if program in RARELY_CONFINED else ""


def _module(rule: Rule) -> str:
    """Return the module of `python -m MODULE …` where the rule has it word for word."""
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    if rule.command is None:
        return ""
    texts: list[str] = []
    for word in rule.command.words:
        if not word.is_literal:
            break
        texts.append(word.parts[0])
    command = parse_line(shlex.join(texts)).commands[0]
    return texts[command.starts[1]] if len(command.starts) > 1 else ""
