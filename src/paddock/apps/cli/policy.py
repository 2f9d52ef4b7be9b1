"""`paddock policy`."""

import argparse
from functools import partial
from pathlib import Path
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import environment_of, find_project, override_of
from paddock.assembly.project import (
    Project,
    chain_of_type,
    declared_for,
    is_bound,
    is_yet_to_be_made,
    planned_default_chain,
)
from paddock.assembly.trust import find_policy_files, read_candidate
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.plane.discover import find_root
from paddock.policy.actions import parse_action
from paddock.policy.decide import decide
from paddock.policy.engine import Policy
from paddock.policy.questions.explain import NearMiss, explain, find_nearly, here_json
from paddock.policy.questions.lint import ExampleResult, LintFinding, lint, run_examples
from paddock.text.show import is_cut
from paddock.values.calls import Json
from paddock.values.decisions import (
    Action,
    AgentChain,
    Decision,
    Held,
    Outcome,
    confined,
    rule_as_json,
)

_CHECK_EXITS: Final = {Outcome.ALLOW: 0, Outcome.CONFINE: 0, Outcome.DENY: 1, Outcome.ASK: 6}
_NOT_USABLE: Final = 2
_NOT_LOADED: Final = 3
_ASKED: Final = {
    "check": "paddock policy check 'tool:file:create docs/a.md' decides that one; "
    "for the whole file: paddock policy lint",
    "explain": "paddock policy explain 'tool:file:create docs/a.md', or a call's id: "
    "paddock ledger query --ledger ho1m --json",
}
"""Questions about one action, and what to type where none is given."""
_LEDGER_HELP: Final = "a ledger of the plane, or a .jsonl file (default: ho1m)"


class PolicyCommand:
    summary = (
        "Check and explain single actions and recorded calls; test and lint the whole policy;\n"
        "decide the recorded history again under another policy; compare two policies, or the\n"
        "project's with what is built in."
    )
    examples = (
        "  paddock policy check 'tool:file:create docs/a.md'\n"
        "  paddock policy check 'tool:shell:run git push origin main' --agent main\n"
        "  paddock policy explain 'tool:file:view .env'\n"
        "  paddock policy explain CALL-1f2e\n"
        "  paddock policy lint\n"
        "  paddock policy test team.toml\n"
        "  paddock policy replay --policy new.toml --since 2026-01-31\n"
        "  paddock policy diff\n"
        "  paddock policy diff paddock.toml new.toml"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
        check = actions.add_parser(
            "check",
            help="decide one action: exit 0 allow or confine, 1 deny, 6 ask, 3 no policy, 2 usage",
            allow_abbrev=False,
        )
        explained = actions.add_parser(
            "explain",
            help="why it is decided so, and what would change it; "
            "of a recorded call, why it was decided so",
            allow_abbrev=False,
        )
        action_help = "tool:<category>:<op> <target>"
        check.add_argument("action", nargs="?", metavar="ACTION", help=action_help)
        explained.add_argument(
            "action",
            nargs="?",
            metavar="ACTION|CALL-ID",
            help=f"{action_help}, or the id of a recorded call",
        )
        for parsed, only in ((check, ""), (explained, "; a recorded call has its own")):
            parsed.add_argument("--agent", metavar="NAME", help=f"for whom (default: main){only}")
        explained.add_argument("--ledger", metavar="NAME|FILE", help=_LEDGER_HELP)
        tested = actions.add_parser("test", help="run the rules' examples", allow_abbrev=False)
        linted = actions.add_parser("lint", help="find doubtful rules", allow_abbrev=False)
        for parsed in (tested, linted):
            about = "a policy file, as if it were trusted (default: the policy in force)"
            parsed.add_argument("file", nargs="?", metavar="FILE", help=about)
        replayed = actions.add_parser(
            "replay",
            help="decide the recorded calls again, under the policy in force or another",
            description="Decide the recorded calls again. No tool is run, no file of a workspace is"
            " opened: what is judged are the actions of the record.",
            allow_abbrev=False,
        )
        replayed.add_argument(
            "--policy",
            metavar="FILE",
            help="in place of the project's own, as if it were trusted (default: the one in force)",
        )
        replayed.add_argument("--ledger", metavar="NAME|FILE", help=_LEDGER_HELP)
        replayed.add_argument("--agent", metavar="NAME", help="only calls of this agent")
        replayed.add_argument("--session", metavar="ID", help="only calls of this session")
        replayed.add_argument("--since", metavar="T", help="RFC 3339, such as 2026-01-31T00:00:00Z")
        replayed.add_argument("--until", metavar="T", help="likewise")
        compared = actions.add_parser(
            "diff",
            help="find calls that two policies decide differently",
            description="Find calls that two policies decide differently. Each one that is shown is"
            " really decided differently; where none is found, the answer says what that proves."
            " With OLD alone the project's own file is compared with it, and without either"
            " with what is built in: what does this project's file change?",
            allow_abbrev=False,
        )
        for name, default in (("old", "built-in"), ("new", "the project's own")):
            about = f"a policy file, or built-in: what holds without one (default: {default})"
            compared.add_argument(name, nargs="?", metavar=name.upper(), help=about)
        for parsed in (check, explained, tested, linted, replayed, compared):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        if options.question in _ASKED and not (options.action or "").strip():
            raise UsageError("no action is given", where="ACTION", hint=_ASKED[options.question])
        if options.question == "check":
            return self._check(options, console)
        if options.question in {"replay", "diff"} or (
            options.question == "explain" and is_call_id(options.action)
        ):
            return _past(options, console)
        if options.question == "explain":
            project = find_project(options, console)
            _warn_of_distrust(project, console)
            return self._explain(project, options, console)
        policy, root = _policy_and_root(options, console)
        if options.question == "test":
            return self._test(policy, options, console)
        return self._lint(policy, root, options, console)

    def _check(self, options: Options, console: Console) -> int:
        try:
            project = find_project(options, console)
            _warn_of_distrust(project, console)
            action = _action_of(options, console)
            policy = policy_of(project, options.agent)
            chain = chain_of(project, options.agent)
            decision = decide(policy, chain, [action])
            nearly = find_nearly(policy, chain, action, decision)
            if decision.outcome is Outcome.CONFINE:
                decision = confined(decision, _held_here(project, policy, chain, action))
        except PaddockError as error:
            console.report(error)
            return _NOT_LOADED if isinstance(error, ConfigError) else _NOT_USABLE
        if options.json:
            console.write_json({**decision_json(decision), "nearly_matched": _nearly_json(nearly)})
        else:
            console.say(f"{decision.said}: {decision.reason}")
            if nearly is not None:
                console.say(f"  nearly matched: {nearly.rule.said}: {nearly.why}")
            if decision.rule is not None:
                console.say(f"  rule: {decision.rule.said}")
            for warning in decision.warnings:
                console.say(f"  warning: {warning}")
        return _CHECK_EXITS[decision.comes_to]

    def _explain(self, project: Project, options: Options, console: Console) -> int:
        action = _action_of(options, console)
        policy = policy_of(project, options.agent)
        chain = chain_of(project, options.agent)
        find_held = partial(_held_here, project, policy, chain, action)
        explanation = explain(policy, chain, action, find_held)
        if options.json:
            console.write_json(explanation.as_json())
        else:
            console.say(explanation.render())
        return 0

    def _test(self, policy: Policy, options: Options, console: Console) -> int:
        results = run_examples(policy)
        failed = [result for result in results if not result.holds]
        if options.json:
            console.write_json(
                {
                    "passed": len(results) - len(failed),
                    "failed": len(failed),
                    "examples": [_example_json(result) for result in results],
                }
            )
        else:
            for result in results:
                console.say(result.render())
            console.say(f"{len(results) - len(failed)} hold, {len(failed)} do not")
        return 1 if failed else 0

    def _lint(self, policy: Policy, root: Path, options: Options, console: Console) -> int:
        tracked: tuple[str, ...] = ()
        if (root / ".git" / "index").exists():
            # It loads the workspace, which a lint without a repository does not need.
            from paddock.sandbox.git.tracked import list_tracked

            tracked = list_tracked(root)
        findings = lint(policy, tracked)
        if options.json:
            console.write_json([_finding_json(finding) for finding in findings])
        else:
            for finding in findings:
                console.say(finding.render())
            console.say("1 finding" if len(findings) == 1 else f"{len(findings)} findings")
        return 1 if findings else 0


def _policy_and_root(options: Options, console: Console) -> tuple[Policy, Path]:
    if options.file is None:
        project = find_project(options, console)
        _warn_of_distrust(project, console)
        return project.policy, project.root.path
    # Neither the project's own file nor its agents have to load for it.
    start = (console.directory, environment_of(console), override_of(options, console))
    files = find_policy_files(*start)
    candidate = read_candidate(console.directory / options.file, options.file, files)
    return candidate.policy(files.kind, files.planes_below), find_root(*start).path


def _held_here(project: Project, policy: Policy, chain: AgentChain, action: Action) -> Held:
    # It tries each backend on this host: for what is to be confined alone.
    from paddock.assembly.runtimes import held_here

    return held_here(project, policy, chain, action)


def _action_of(options: Options, console: Console) -> Action:
    action = parse_action(options.action)
    if action.is_path and " " not in options.action.strip():
        console.warn(f"note: no target is given, so the workspace itself is judged: {action}")
    return action


def _warn_of_distrust(project: Project, console: Console) -> None:
    own = project.files.project
    if own is not None and not own.trusted:
        console.warn(
            f"note: {own.path.name} is not trusted ({own.reason}); "
            "it can only tighten: paddock trust"
        )


def _past(options: Options, console: Console) -> int:
    # A question about one action reads no ledger, and loads nothing that does.
    from paddock.apps.cli.policy_past import explain_call, run_diff, run_replay

    if options.question == "replay":
        return run_replay(options, console)
    if options.question == "diff":
        return run_diff(options, console)
    return explain_call(options, console)


def is_call_id(text: str) -> bool:
    # What the ledger keeps cut says so behind it, with spaces.
    return not text.startswith("tool:") and (" " not in text or is_cut(text))


def chain_of(project: Project, name: str | None) -> AgentChain:
    """Return the chain of agent `name`, or of a client's agent, as the hook judges it."""
    wanted = project.agent_named(name)
    if _is_clients(project, wanted):
        return chain_of_type(project.agents, planned_default_chain(project.agents), wanted)
    if _is_yet_to_be_made(project, wanted):
        return planned_default_chain(project.agents)
    return project.agents.chain(wanted)


def policy_of(project: Project, name: str | None) -> Policy:
    wanted = project.agent_named(name)
    if _is_yet_to_be_made(project, wanted) or _is_clients(project, wanted):
        return project.policy
    return project.policy_for(project.agents.read(wanted))


def _is_clients(project: Project, name: str) -> bool:
    if name == project.default_agent or not is_bound(project, name):
        return False
    return declared_for(project.agents, name) != name


def _is_yet_to_be_made(project: Project, name: str) -> bool:
    return name == project.default_agent and is_yet_to_be_made(project.agents)


def _example_json(result: ExampleResult) -> dict[str, Json]:
    return {
        "profile": result.profile,
        "pattern": result.pattern,
        "example": result.example.text,
        "wanted": result.wanted,
        "holds": result.holds,
        "file": result.example.place.file,
        "line": result.example.place.line,
    }


def _finding_json(finding: LintFinding) -> dict[str, Json]:
    return {
        "code": finding.code,
        "message": finding.message,
        "file": finding.place.file,
        "line": finding.place.line,
        "hint": finding.hint,
    }


def decision_json(decision: Decision) -> dict[str, Json]:
    return {
        "outcome": decision.outcome.word,
        **here_json(decision),
        "action": decision.action,
        "reason": decision.reason,
        "code": decision.code,
        "rule": rule_as_json(decision.rule),
        "matched": [
            {"outcome": m.outcome.word, "text": m.text, "file": m.file, "line": m.line}
            for m in decision.matched
        ],
        "warnings": list(decision.warnings),
        "policy_digest": decision.policy_digest,
    }


def _nearly_json(nearly: NearMiss | None) -> Json:
    return None if nearly is None else {"rule": rule_as_json(nearly.rule), "why": nearly.why}


COMMAND = PolicyCommand()
