"""The tables without rules: `[paths]`, `[hook]`, `[agents]`, `[limits]` and the rest.

Each function reads one table over the values that hold already and returns what
then holds; a key that is given replaces its value whole.
"""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from typing import Final, cast

from paddock import limits as hard
from paddock.policy.patterns import PathPattern, compile_pattern
from paddock.policy.problems import PatternError, quote_toml, suggest
from paddock.policy.reader import Table
from paddock.policy.rules import compile_rule
from paddock.policy.settings import (
    HOOK_SHELLS,
    HOOK_WARNINGS,
    ON_ALLOWS,
    AgentBinding,
    AnchorSettings,
    HistorySettings,
    HookSettings,
    HookShell,
    LedgerSettings,
    LoweredLimits,
    McpSettings,
    ProviderSettings,
)
from paddock.policy.shell import host_paths
from paddock.values.decisions import Outcome, Permissions

HISTORY_BYTES_MAX: Final = 10**15
MCP_CALLS_MAX: Final = 1024

PROVIDERS: Final = ("builtin", "scripted", "anthropic", "openai")
APIS: Final = ("responses", "chat")
_LOWERABLE: Final = "those that a policy may lower: " + ", ".join(
    each.name for each in fields(LoweredLimits)
)


@dataclass(frozen=True, slots=True)
class PathsTable:
    """`[paths]` as a file gives it; None for a list that it does not give."""

    protected: tuple[PathPattern, ...] | None = None
    generated: tuple[PathPattern, ...] | None = None
    warned: tuple[PathPattern, ...] | None = None
    safe: tuple[PathPattern, ...] | None = None
    secret: tuple[PathPattern, ...] | None = None


def read_paths(table: Table) -> PathsTable:
    """Read `[paths]`."""
    paths = PathsTable(
        protected=_patterns(table, "protected"),
        generated=_patterns(table, "generated"),
        warned=_patterns(table, "warned"),
        safe=_patterns(table, "safe"),
        secret=_patterns(table, "secret"),
    )
    table.finish()
    return paths


def read_hook(table: Table, base: HookSettings) -> HookSettings:
    """Read `[hook]`. `sandbox_shell` is how `shell` was said before."""
    also_write = host_patterns(table, "also_write")
    hook = HookSettings(
        on_allow=table.word("on_allow", ON_ALLOWS, base.on_allow),
        warnings=table.word("warnings", HOOK_WARNINGS, base.warnings),
        also_write=base.also_write if also_write is None else also_write,
        shell=_hook_shell(table, base),
        outside=_command_patterns(table, "outside", base.outside),
        paranoid=table.boolean("paranoid", base.paranoid),
        sandbox_ignored=table.boolean("sandbox_ignored", base.sandbox_ignored),
        scratch=table.boolean("scratch", base.scratch),
    )
    table.finish()
    return hook


def _hook_shell(table: Table, base: HookSettings) -> HookShell:
    is_said = table.has("shell")
    if not table.has("sandbox_shell"):
        return table.word("shell", HOOK_SHELLS, base.shell)
    before: HookShell = "confine" if table.boolean("sandbox_shell", True) else "read"
    if is_said:
        table.problem(
            "sandbox_shell",
            "sandbox_shell and shell stand both in [hook], and say the same thing",
            f'keep shell = "{before}", and remove sandbox_shell',
        )
    return before


def _command_patterns(table: Table, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Read an array of patterns for commands, as `docker *`, that match exactly."""
    texts = table.texts(name)
    if texts is None:
        return default
    for text in texts:
        try:
            pattern = compile_rule(f"tool:shell:run {text.text}", Outcome.ALLOW, name, text.place)
            if pattern.command is None or pattern.command.is_any:
                raise PatternError(
                    f"{name} in {table.title} holds {quote_toml(text.text)}, which is any command",
                    'name the programs; with shell = "read" every command runs outside',
                )
        except PatternError as problem:
            table.report.add_at(text.place, problem)
    return tuple(text.text for text in texts)


def read_agents(
    table: Table, base: tuple[AgentBinding, ...], profiles: AbstractSet[str]
) -> tuple[AgentBinding, ...]:
    """Read `[agents."NAME"]`; each must name a profile of `profiles`."""
    bindings = {binding.name: binding for binding in base}
    for name in table.names():
        entry = table.table(name)
        if entry is None:
            continue
        profile = entry.string("profile")
        workspace, parent = entry.string("workspace"), entry.string("parent")
        permissions = _read_permissions(entry)
        entry.finish()
        if not profile:
            if not entry.has("profile"):
                table.problem(name, f"{entry.title} has no profile", 'add profile = "locked"')
            continue
        if profile not in profiles:
            message = f"the profile {quote_toml(profile)} of {entry.title} is unknown"
            entry.problem("profile", message, suggest(profile, profiles))
        bindings[name] = AgentBinding(name, profile, workspace, parent, permissions)
        if entry.has("permissions") and not bindings[name].is_declared:
            said = f"permissions in {entry.title} stand with a workspace or a parent alone"
            entry.problem("permissions", said, "without these it maps a client's kind of agent")
    return tuple(bindings.values())


def _read_permissions(entry: Table) -> Permissions:
    table = entry.table("permissions")
    given: dict[str, tuple[str, ...]] = {}
    if table is not None:
        for each in fields(Permissions):
            patterns = _patterns(table, each.name)
            if patterns is not None:
                given[each.name] = tuple(pattern.text for pattern in patterns)
        table.finish()
    return Permissions(**given)


def read_limits(table: Table, base: LoweredLimits) -> LoweredLimits:
    """Read `[limits]`: names of `LoweredLimits`, at most their values in `paddock.limits`."""
    most = {"shell_timeout_s": hard.shell_timeout_raised_s}
    lowered = {
        each.name: table.integer(
            each.name,
            getattr(base, each.name),
            1,
            most.get(each.name, cast("int", each.default)),
        )
        for each in fields(LoweredLimits)
    }
    for name in table.names():
        if name in lowered:
            continue
        if hasattr(hard, name):
            table.problem(name, f"the limit {quote_toml(name)} is fixed", _LOWERABLE)
        else:
            table.problem(name, f"unknown limit {quote_toml(name)}", suggest(name, lowered))
    return LoweredLimits(**lowered)


def read_history(table: Table, base: HistorySettings) -> HistorySettings:
    """Read `[history]`."""
    read = HistorySettings(table.integer("bytes_max", base.bytes_max, 0, HISTORY_BYTES_MAX))
    table.finish()
    return read


def read_mcp(table: Table, base: McpSettings) -> McpSettings:
    """Read `[mcp]`."""
    read = McpSettings(table.integer("calls_max", base.calls_max, 1, MCP_CALLS_MAX))
    table.finish()
    return read


def read_ledger(table: Table, base: LedgerSettings) -> LedgerSettings:
    """Read `[ledger]` of a project: no `anchor`, no `signer`."""
    keep = table.boolean("keep_model_contents", base.keep_model_contents)
    for name in ("anchor", "signer"):
        if table.has(name):
            # Threat: a cloned project that names a command runs it on the host.
            table.problem(
                name,
                f"{name} stands in the user's own configuration, never in a project",
                "move it to paddock/config.toml in the user's configuration directory",
            )
    table.finish()
    return replace(base, keep_model_contents=keep)


def read_user_ledger(table: Table, base: LedgerSettings) -> LedgerSettings:
    """Read `[ledger]` of the user's own configuration, `anchor` and `signer` included.

    `anchor` is a directory as a string, or a table with exactly one of
    `directory`, `git` and `command`; `signer` is a program with its arguments.
    """
    keep = table.boolean("keep_model_contents", base.keep_model_contents)
    anchor = _read_anchor(table, base.anchor) if table.has("anchor") else base.anchor
    signer = table.strings("signer") or base.signer
    table.finish()
    return LedgerSettings(keep, anchor, signer)


def read_providers(table: Table) -> tuple[ProviderSettings, ...]:
    """Read `[providers.NAME]` of the user's own configuration."""
    found: list[ProviderSettings] = []
    for name in table.names():
        entry = table.table(name)
        if entry is None:
            continue
        provider = entry.word("provider", PROVIDERS, "builtin") if entry.has("provider") else ""
        api = entry.word("api", APIS, "responses") if entry.has("api") else ""
        found.append(
            ProviderSettings(
                name,
                provider,
                entry.string("model"),
                entry.string("base_url"),
                api,
                entry.string("api_key_env"),
                entry.strings("api_key_command") or (),
            )
        )
        entry.finish()
    return tuple(found)


def host_patterns(table: Table, name: str) -> tuple[str, ...] | None:
    """Read an array of patterns for paths of the host, from `/` or `~/`."""
    found = host_paths(table, name)
    for position, text in enumerate(found or ()):
        # The part behind the anchor follows the same rules as any path pattern.
        inner = re.sub(r"^~?/*", "", text)
        try:
            compile_pattern(inner or "**")
        except PatternError as problem:
            table.report.add((*table.key, name, position), problem.message, problem.hint)
    return found


def _read_anchor(table: Table, base: AnchorSettings) -> AnchorSettings:
    if table.is_text("anchor"):
        return AnchorSettings(directory=table.string("anchor"))
    entry = table.table("anchor")
    if entry is None:
        return base
    anchor = AnchorSettings(
        entry.string("directory"), entry.string("git"), entry.strings("command") or ()
    )
    entry.finish()
    if sum(map(bool, (anchor.directory, anchor.git, anchor.command))) != 1:
        table.problem(
            "anchor", "anchor names not exactly one place", "give one of directory, git or command"
        )
    return anchor


def _patterns(table: Table, name: str) -> tuple[PathPattern, ...] | None:
    texts = table.texts(name)
    if texts is None:
        return None
    found: list[PathPattern] = []
    for text in texts:
        try:
            found.append(compile_pattern(text.text, text.place))
        except PatternError as problem:
            table.report.add_at(text.place, problem)
    if found and all(pattern.negated for pattern in found):
        table.problem(
            name,
            f"{name} in {table.title} can match nothing: it only takes out",
            "write what is meant before the ! patterns",
        )
    return tuple(found)
