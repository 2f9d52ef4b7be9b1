"""`[shell]` as a file gives it: some keys, to be laid over what holds already."""

import re
from dataclasses import dataclass, replace
from typing import Final

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

PROCESSES_MAX: Final = 65_536
MEMORY_MB_MAX: Final = 1_048_576
FILE_MB_MAX: Final = 1_048_576
CPU_S_MAX: Final = 86_400
CONFINED_MAX: Final = 10**9


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
    confine_max: ConfineMax | None = None

    def over(self, base: ShellSettings) -> ShellSettings:
        """Return `base` with each given key replaced whole."""
        return replace(
            base,
            network=self.network or base.network,
            git=self.git or base.git,
            read=base.read if self.read is None else self.read,
            write=base.write if self.write is None else self.write,
            enforcement=self.enforcement or base.enforcement,
            approve=self.approve or base.approve,
            commit=self.commit or base.commit,
            limits=self.limits or base.limits,
            confine_max=self.confine_max or base.confine_max,
        )


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
        limits=_read_limits(table),
        confine_max=_read_confine_max(table),
    )
    table.finish()
    return changes


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


def _read_limits(table: Table) -> ShellLimits | None:
    limits = table.table("limits")
    if limits is None:
        return None
    default = _DEFAULT.limits
    read = ShellLimits(
        processes=limits.integer("processes", default.processes, 1, PROCESSES_MAX),
        memory_mb=limits.integer("memory_mb", default.memory_mb, 1, MEMORY_MB_MAX),
        file_mb=limits.integer("file_mb", default.file_mb, 1, FILE_MB_MAX),
        cpu_s=limits.integer("cpu_s", default.cpu_s, 1, CPU_S_MAX),
    )
    limits.finish()
    return read


def _read_confine_max(table: Table) -> ConfineMax | None:
    entry = table.table("confine_max")
    if entry is None:
        return None
    default = _DEFAULT.confine_max
    read = ConfineMax(
        files=entry.integer("files", default.files, 0, CONFINED_MAX),
        mb=entry.integer("mb", default.mb, 0, CONFINED_MAX),
        deleted=entry.integer("deleted", default.deleted, 0, CONFINED_MAX),
    )
    entry.finish()
    return read
