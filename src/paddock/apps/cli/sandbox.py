"""`paddock sandbox`."""

import argparse
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import use_project
from paddock.errors import HostError, UsageError
from paddock.limits import shell_cache_bytes_max
from paddock.plane.environment import real_path
from paddock.sandbox.caches import FOLDER, Caches
from paddock.sandbox.facts import FactsWanted, collect_facts
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.plan import CompiledPlan, ReadJudge, compile_plan, plan_digest, plan_json
from paddock.sandbox.values import GitConfig
from paddock.text.show import quote
from paddock.values.calls import Json

_SHOWN_MAX = 20
"""Hidden names in the table; `--json` has all."""
_MOVED: Final = "commands can change it; to run what is there, name it by its path"


class Sandbox:
    summary = "Show what the commands of an agent may read, write and reach."
    examples = (
        "  paddock sandbox plan\n"
        "  paddock sandbox plan --agent main --json\n"
        "  paddock sandbox caches\n"
        "  paddock sandbox caches clear"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
        plan = parts.add_parser(
            "plan", help="what commands may read, write and reach", allow_abbrev=False
        )
        plan.add_argument(
            "--agent", metavar="NAME", help="whose commands (default: main, or admin)"
        )
        add_common(plan)
        caches = parts.add_parser(
            "caches", help="what commands of an agent's workspace cache", allow_abbrev=False
        )
        caches.add_argument(
            "act", nargs="?", choices=("show", "clear"), default="show", help="(default: show)"
        )
        caches.add_argument(
            "--agent", metavar="NAME", help="whose workspace (default: main, or admin)"
        )
        add_common(caches)

    def run(self, options: Options, console: Console) -> int:
        if options.part == "caches":
            return _caches(options, console)
        project = use_project(options, console)
        name = project.agent_named(options.agent)
        record = project.agents.read(name)
        policy, chain = project.policy_for(record), project.agents.chain(name)
        facts = collect_facts(FactsWanted(policy, project.agents, name, console.variables))
        with _opened(facts.workspace) as root_fd:
            hidden = NameIndex(ReadJudge(policy, chain)).find(root_fd)
        compiled = compile_plan(policy, chain, facts, hidden)
        if options.json:
            console.write_json(_as_json(name, compiled))
        else:
            _say(name, compiled, console)
        return 0


def _caches(options: Options, console: Console) -> int:
    project = use_project(options, console)
    record = project.agents.read(project.agent_named(options.agent))
    home = real_path(project.layout.objects / FOLDER)
    caches = Caches.of(home, str(real_path(record.workspace)))
    before = caches.size_bytes()
    is_clear = options.act == "clear" and caches.clear()
    size = 0 if is_clear else before
    if options.json:
        facts: dict[str, Json] = {"place": str(caches.tree), "bytes": size}
        facts |= {"bytes_max": shell_cache_bytes_max, "cleared": is_clear}
        console.write_json(facts)
    elif is_clear:
        console.say(f"cleared {caches.tree}: {before / 1e6:,.1f} MB")
    else:
        console.say(f"caches  {caches.tree}")
        console.say(f"size    {size / 1e6:,.1f} of {shell_cache_bytes_max / 1e6:,.0f} MB")
    if options.act == "clear" and not is_clear:
        raise UsageError("a command uses the caches now", hint="clear them when it has ended")
    return 0


@contextmanager
def _opened(directory: str) -> Generator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(directory, flags)
    except OSError as error:
        raise HostError(
            f"the workspace {quote(directory)} cannot be opened: {error.strerror}"
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _as_json(agent: str, compiled: CompiledPlan) -> dict[str, Json]:
    left_out: list[Json] = [{"path": each.path, "why": each.why} for each in compiled.left_out]
    return {
        "agent": agent,
        "digest": plan_digest(compiled.plan),
        **plan_json(compiled.plan),
        "toolchains": list(compiled.toolchains),
        "left_out": left_out,
    }


def _say(agent: str, compiled: CompiledPlan, console: Console) -> None:
    plan, limits = compiled.plan, compiled.plan.limits
    console.say(f"agent        {agent}")
    console.say(f"workspace    {plan.workspace}")
    console.say(f"network      {plan.network}")
    console.say(f"git          {plan.git}")
    console.say(f"commit       {plan.commit}")
    console.say(f"enforcement  {plan.enforcement}")
    console.say(
        f"limits       {limits.processes} processes, {limits.memory_mb} MB of memory,"
        f" {limits.file_mb} MB a file, {_processor_time(limits.cpu_s)}"
    )
    _list("readable", plan.readable, "nothing outside the workspace", console)
    _list("toolchains", compiled.toolchains, "none found", console)
    _list("caches", (plan.caches,) if plan.caches else (), "none", console)
    _list("writable", plan.writable, "nothing outside the workspace", console)
    if plan.git_outside is not None:
        console.say(f"git outside  {plan.git_outside.common}")
    hidden = plan.hidden[:_SHOWN_MAX]
    more = len(plan.hidden) - len(hidden)
    if more:
        hidden = (*hidden, f"(and {more} more: --json lists them)")
    _list("hidden", hidden, "nothing that stands there now", console)
    _list("links", tuple(f"{name} -> {text}" for name, text in plan.links), "none", console)
    variables = tuple(f"{name}={value}" for name, value in plan.environment)
    _list("environment", variables, "nothing", console)
    _list("git config", _git_rows(plan.git_config), "nothing of yours", console)
    if compiled.moved_last:
        rows = tuple(f"{each}: {_MOVED}" for each in compiled.moved_last)
        _list("last in PATH", rows, "", console)
    if compiled.left_out:
        lines = tuple(f"{each.path}: {each.why}" for each in compiled.left_out)
        _list("left out", lines, "", console)
    console.say(f"policy       {plan.policy_digest}")
    console.say(f"plan         {plan_digest(plan)}")


def _processor_time(seconds: int) -> str:
    return f"{seconds} s of processor time" if seconds else "any processor time"


def _git_rows(config: GitConfig) -> tuple[str, ...]:
    rows = [f"{key}={value}" for key, value in config.values]
    for what, text in (("ignore file", config.ignored), ("attributes", config.attributes)):
        rows += [f"{what}: {text.count(chr(10))} lines"] if text else []
    rows += [f"{name}={value}" for name, value in config.variables]
    return (*rows, *(["commits are not signed"] if config.is_signing else []))


def _list(title: str, rows: tuple[str, ...], nothing: str, console: Console) -> None:
    for number, row in enumerate(rows or (nothing,)):
        console.say(f"{'' if number else title:<13}{row}")


COMMAND = Sandbox()
