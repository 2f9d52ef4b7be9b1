"""`paddock call` and `paddock tools`."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from paddock import errors, limits
from paddock.apps.command import Command, Options, Reply, flag, opt, use_project
from paddock.apps.console import EXIT_NO, Console, NoTerminalError, ask_yes, exit_of_call
from paddock.assembly.runtimes import open_runtime, tools_of
from paddock.runtime import approvals
from paddock.runtime.runtime import Runtime
from paddock.text.json import parse_object
from paddock.values.calls import Json, Refusal, ToolResult

Pairs = list[tuple[str, str]]
_FORMS: Final = "give arguments as NAME=VALUE pairs or one JSON object: paddock call --help"


def _call(options: Options, console: Console) -> int:
    approver = _approver(options, console)
    source = _read_arguments(options.arguments, console)
    try:
        project = use_project(options, console)
        progress = ProgressLine(console) if console.stderr.isatty() else None
        with open_runtime(
            project, agent=options.agent, approver=approver, progress=progress
        ) as runtime:
            result = _run(runtime, options.tool, source)
        if progress is not None:
            progress.wipe()
    except errors.ToolError as error:
        # The runtime could not open, such as a busy ledger: the caller still gets an object.
        refusal = Refusal(error.code, error.message, error.hint)
        result = ToolResult("", options.tool, refusal.as_text(), refusal=refusal)
    # `policy explain`, `ledger proof` and `undo` take this id.
    named: dict[str, Json] = {"call": result.call_id} if result.call_id else {}
    if console.stdout.isatty() and not options.json:
        console.say(result.content)
    else:
        console.write_json({**result.as_json(), **named})
    is_lost = result.details.get("exit_code") == 0 and _has_lost(result.details)
    return EXIT_NO if is_lost else exit_of_call(result.refusal)


def _has_lost(details: Mapping[str, Json]) -> bool:
    from paddock.tools.outcome import has_lost_changes  # only a command has it

    return has_lost_changes(details) or not {"conflict", "pending"}.isdisjoint(details)


class ProgressLine:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_shown = False

    def __call__(self, seconds: float, output_bytes: int) -> None:
        self._is_shown = True
        self._write(f"running {seconds:.0f} s, {output_bytes / 1000:,.0f} kB of output")

    def wipe(self) -> None:
        if self._is_shown:
            self._write("")

    def _write(self, text: str) -> None:
        self._console.stderr.write(f"\r\x1b[K{text}")
        self._console.stderr.flush()


def _run(runtime: Runtime, tool: str, given: bytes | str | Pairs) -> ToolResult:
    try:
        source = _object_of(given, runtime, tool) if isinstance(given, list) else given
        arguments = parse_object(source)
    except errors.InvalidArgumentsError as error:
        return runtime.refuse(tool, Refusal(error.code, error.message, error.hint))
    return runtime.call(tool, arguments)


def _read_arguments(words: list[str], console: Console) -> bytes | str | Pairs:
    """Return one JSON object, or names with values. Raises: UsageError: a mixture."""
    pairs = [(name, text) for name, sign, text in (word.partition("=") for word in words) if sign]
    if words and len(pairs) == len(words) and all(name.isidentifier() for name, _ in pairs):
        return pairs
    if len(words) > 1:
        raise errors.UsageError(
            f"unrecognized arguments: {' '.join(words[1:])}", where="paddock call", hint=_FORMS
        )
    if words != ["-"]:
        return words[0] if words else "{}"
    # Bytes, not text: input that is not UTF-8 is then reported as the caller's mistake.
    buffer = getattr(console.stdin, "buffer", None)
    if buffer is None:
        return console.stdin.read(limits.argument_bytes_max + 1)
    return buffer.read(limits.argument_bytes_max + 1)


def _object_of(pairs: Pairs, runtime: Runtime, tool: str) -> str:
    """Return the pairs as a JSON object: strings, unless the tool takes another type.

    A value that does not parse stays a string, and the tool reports what is wrong with it.
    """
    try:
        known: Mapping[str, Any] = runtime.tools.get(tool).binder.schema["properties"]
    except errors.UnknownToolError:
        known = {}  # the runtime refuses and records the call
    members: list[str] = []
    for name, text in pairs:
        value = json.dumps(text)
        if known.get(name, {}).get("type", "string") != "string":
            with suppress(ValueError, RecursionError):
                json.loads(text)
                value = text
        members.append(f"{json.dumps(name)}: {value}")
    return f"{{{', '.join(members)}}}"


def _approver(options: Options, console: Console) -> approvals.Approver:
    if options.yes:
        return approvals.YesApprover("--yes")
    # Standard input held the arguments, so it cannot also answer a question.
    if options.no_input or options.arguments == ["-"] or not console.is_interactive:
        return approvals.NoApprover()
    return PromptApprover(console)


_QUESTION: Final = "allow this once? [y/N] "


class PromptApprover:
    """Asks on the terminal; anything but an explicit yes is no.

    Threat: arguments with terminal sequences or direction overrides could draw a
    fake question, and keys typed before the question was shown could answer it.
    The former are escaped, the latter are discarded.
    """

    def __init__(self, console: Console, timeout_s: float = limits.approval_timeout_s) -> None:
        self._console = console
        self._timeout_s = timeout_s

    def answer(self, request: approvals.ApprovalRequest) -> approvals.Approval:
        console = self._console
        console.warn(approvals.question_of(request))
        try:
            said = ask_yes(console.stdin, console.stderr, _QUESTION, self._timeout_s)
        except NoTerminalError:
            return approvals.Approval(
                False, "terminal", errors.ApprovalUnavailableError.code, "no terminal to ask on"
            )
        if said is None:
            note = f"no answer within {self._timeout_s:g} s"
            console.warn("")
            return approvals.Approval(False, "terminal", errors.ApprovalUnavailableError.code, note)
        return approvals.Approval(said, "terminal")


def _tools(options: Options, console: Console) -> Reply:
    registry = tools_of(use_project(options, console), options.agent)
    if options.native and options.provider is None:
        raise errors.UsageError("--native needs --provider", hint="such as --provider anthropic")
    if options.provider is not None:
        schemas = registry.for_provider(options.provider, native=options.native)
        return Reply(schemas, json.dumps(schemas, ensure_ascii=True))
    specs = [tool.spec for tool in registry.list_all()]
    rows: list[Json] = [
        {
            "name": spec.name,
            "title": spec.title,
            "toolset": spec.toolset,
            "reads_only": spec.effects.reads_only,
            "description": spec.description,
        }
        for spec in specs
    ]
    text = (
        f"{spec.name:<16}{spec.toolset:<12}"
        f"{'reads' if spec.effects.reads_only else 'writes':<8}{spec.title}"
        for spec in specs
    )
    return Reply(rows, text)


CALL = Command(
    "Run one tool call, checked by policy and recorded in the ledger, and print its result as\n"
    "one JSON object; at a terminal, without --json, as text. Give the arguments as NAME=VALUE\n"
    "pairs, as one JSON object, or as - to read the object from standard input. The exit status\n"
    "is 1 if the call was refused, or if its command succeeded and changes of it did not land;\n"
    "the command's own status is in the result.",
    "  paddock call view path=README.md limit=20\n"
    '  paddock call view \'{"path": "README.md"}\'\n'
    '  paddock call str_replace \'{"path": "README.md", "old_str": "teh", "new_str": "the"}\'\n'
    "  paddock call create_file - --no-input < arguments.json",
    opt("tool", "TOOL", "a tool; paddock tools lists them"),
    opt("arguments", "NAME=VALUE|JSON|-", "arguments of the tool", nargs="*", default=[]),
    opt("--agent", "NAME", "the agent that calls (default: main)"),
    (
        flag("--yes", "answer yes if policy asks for an approval"),
        flag("--no-input", "do not ask: refuse, and keep the request for paddock approvals"),
    ),
    do=_call,
)
TOOLS = Command(
    "List the tools that an agent has, or print their schemas for a model provider.",
    "  paddock tools\n  paddock tools --provider anthropic --native",
    opt("--agent", "NAME", "the agent (default: main; admin in a bare plane)"),
    opt(
        "--provider",
        None,
        "print the schemas for this provider",
        choices=("anthropic", "openai", "openai-responses", "mcp"),
    ),
    flag("--native", "use the provider's built-in tool types where it has them"),
    do=_tools,
)
