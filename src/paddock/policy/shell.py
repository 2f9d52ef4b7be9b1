"""`[shell]` as a file gives it: some keys, to be laid over what holds already."""

import re
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

from paddock.policy.problems import quote_toml
from paddock.policy.reader import Table
from paddock.policy.settings import (
    APPROVES,
    COMMITS,
    ENFORCEMENTS,
    GITS,
    NETWORKS,
    Approve,
    Commit,
    ConfineMax,
    EnforcementMode,
    Git,
    Network,
    ShellLimits,
    ShellSettings,
)

_DEFAULT: Final = ShellSettings()
_HOST_PATH: Final = re.compile(r"(/|~/)[^\0]*|~", re.DOTALL)

_ENV_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_ENV_RESERVED: Final = (
    *("PATH", "LD_*", "BASH_ENV", "GIT_*", "NODE_OPTIONS", "PYTHON*"),
    # The same by other means: what a shell reads at its start, and where programs look for
    # their configuration.
    *("ENV", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_*", "IFS", "PS4", "CDPATH", "PERL5*", "RUBYOPT"),
    *("RUBYLIB", "HOME", "TMPDIR", "PWD", "XDG_CONFIG_*"),
)
"""Threat: a call for a command that a rule allows sets what its name stands for."""

_BOUNDS: Final = {
    "processes": (1, 65_536),
    "memory_mb": (0, 1_048_576),
    "file_mb": (1, 1_048_576),
    "cpu_s": (0, 86_400),
    "files": (0, 10**9),
    "mb": (0, 10**9),
    "deleted": (0, 10**9),
}
"""The least and the most of what is counted in `limits` and `confine_max`."""

Counted = TypeVar("Counted", ShellLimits, ConfineMax)
Under = TypeVar("Under", ShellSettings, "ShellChanges")


@dataclass(frozen=True, slots=True)
class ShellChanges:
    """The keys of `[shell]` that are given; None for the others."""

    network: Network | None = None
    git: Git | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    enforcement: EnforcementMode | None = None
    approve: Approve | None = None
    commit: Commit | None = None
    limits: ShellLimits | None = None
    env: tuple[str, ...] | None = None
    caches: bool | None = None
    confine_max: ConfineMax | None = None

    def over(self, base: Under) -> Under:
        """Return `base` with each given key replaced whole."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return replace(base, **{name: value for name, value in values if value is not None})


def read_shell_changes(table: Table) -> ShellChanges:
    """Read `[shell]` or `[profiles.NAME.shell]`; problems go to the table's report."""
    changes = ShellChanges(
        network=table.given_word("network", NETWORKS),
        git=table.given_word("git", GITS),
        read=host_paths(table, "read"),
        write=host_paths(table, "write"),
        enforcement=table.given_word("enforcement", ENFORCEMENTS),
        approve=table.given_word("approve", APPROVES),
        commit=table.given_word("commit", COMMITS),
        limits=_read_counts(table, "limits", _DEFAULT.limits),
        env=_env_names(table),
        caches=table.boolean("caches", default=True) if table.has("caches") else None,
        confine_max=_read_counts(table, "confine_max", _DEFAULT.confine_max),
    )
    table.finish()
    return changes


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern of `env` is, or covers, a name, or another pattern whole."""
    if not pattern.endswith("*"):
        return pattern == name
    return name.startswith(pattern[:-1])


def _env_names(table: Table) -> tuple[str, ...] | None:
    found = table.strings("env")
    for position, pattern in enumerate(found or ()):
        why = ""
        if _ENV_PATTERN.fullmatch(pattern) is None:
            why = "which is no name of a variable; a * may stand at its end"
        for reserved in _ENV_RESERVED:
            if covers(pattern, reserved) or covers(reserved, pattern):
                why = f"which would cover {reserved}: that changes what a command's names run"
                break
        if why:
            table.report.add(
                (*table.key, "env", position),
                f"env in {table.title} holds {quote_toml(pattern)}, {why}",
                'name what tests read, as ["CI", "PYTEST_*"]',
            )
    return found


def host_paths(table: Table, name: str) -> tuple[str, ...] | None:
    """Read an array of paths of the host: absolute, or beginning with `~/`."""
    found = table.strings(name)
    for position, path in enumerate(found or ()):
        if _HOST_PATH.fullmatch(path) is None or ".." in path.split("/"):
            table.report.add(
                (*table.key, name, position),
                f"{name} in {table.title} holds {quote_toml(path)}, not an absolute path",
                "write it from / or ~/, without ..",
            )
    return found


def _read_counts(table: Table, name: str, default: Counted) -> Counted | None:
    entry = table.table(name)
    if entry is None:
        return None
    given = {
        each.name: entry.integer(each.name, getattr(default, each.name), *_BOUNDS[each.name])
        for each in fields(default)
    }
    entry.finish()
    return replace(default, **given)
