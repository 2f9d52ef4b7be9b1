"""`paddock policy`."""

import argparse
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import find_project
from paddock.assembly import Project
from paddock.errors import PaddockError
from paddock.policy.actions import parse_action
from paddock.policy.decide import decide
from paddock.policy.engine import Policy
from paddock.policy.examples import ExampleResult, run_examples
from paddock.policy.explain import explain
from paddock.policy.lint import LintFinding, lint
from paddock.policy.problems import place_text
from paddock.values.agents import Agent, AgentChain
from paddock.values.calls import Json
from paddock.values.decisions import Decision, Outcome

_CHECK_EXITS: Final = {Outcome.ALLOW: 0, Outcome.DENY: 1, Outcome.ASK: 3}
_CHECK_INVALID: Final = 2


class PolicyCommand:
    """Questions to the policy in force. Nothing is run, nothing is recorded."""

    summary = "Check and explain single actions; test and lint the whole policy."
    examples = (
        "  paddock policy check 'tool:file:create docs/a.md'\n"
        "  paddock policy check 'tool:shell:run git push origin main' --agent main\n"
        "  paddock policy explain 'tool:file:view .env'\n"
        "  paddock policy lint"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The sub-commands."""
        actions = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
        check = actions.add_parser(
            "check",
            help="decide one action: exit 0 allow, 1 deny, 3 ask, 2 invalid",
            allow_abbrev=False,
        )
        explained = actions.add_parser(
            "explain", help="why it is decided so, and what would change it", allow_abbrev=False
        )
        for parsed in (check, explained):
            parsed.add_argument("action", metavar="ACTION", help="tool:<category>:<op> <target>")
            parsed.add_argument("--agent", metavar="NAME", help="for whom (default: main)")
        tested = actions.add_parser("test", help="run the rules' examples", allow_abbrev=False)
        linted = actions.add_parser("lint", help="find doubtful rules", allow_abbrev=False)
        for parsed in (check, explained, tested, linted):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        """Answer the question."""
        if options.question == "check":
            return self._check(options, console)
        project = find_project(options, console)
        if options.question == "explain":
            return self._explain(project, options, console)
        if options.question == "test":
            return self._test(project, options, console)
        return self._lint(project, options, console)

    def _check(self, options: Options, console: Console) -> int:
        try:
            project = find_project(options, console)
            action = parse_action(options.action)
            policy = policy_of(project, options.agent)
            decision = decide(policy, chain_of(project, options.agent), [action])
        except PaddockError as error:
            console.report(error)
            return _CHECK_INVALID
        if options.json:
            console.write_json(decision_json(decision))
        else:
            console.say(f"{decision.outcome.word}: {decision.reason}")
            if decision.rule is not None:
                place = place_text(decision.rule.file, decision.rule.line)
                console.say(f"  rule: {decision.rule.text} ({decision.rule.source}, {place})")
            for warning in decision.warnings:
                console.say(f"  warning: {warning}")
        return _CHECK_EXITS[decision.outcome]

    def _explain(self, project: Project, options: Options, console: Console) -> int:
        action = parse_action(options.action)
        policy = policy_of(project, options.agent)
        explanation = explain(policy, chain_of(project, options.agent), action)
        if options.json:
            console.write_json(explanation.as_json())
        else:
            console.say(explanation.render())
        return 0

    def _test(self, project: Project, options: Options, console: Console) -> int:
        results = run_examples(project.policy)
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

    def _lint(self, project: Project, options: Options, console: Console) -> int:
        findings = lint(project.policy)
        if options.json:
            console.write_json([_finding_json(finding) for finding in findings])
        else:
            for finding in findings:
                console.say(finding.render())
            console.say(f"{len(findings)} findings")
        return 1 if findings else 0


def chain_of(project: Project, name: str | None) -> AgentChain:
    """The chain of agent `name`; before the plane is made, the one it would be made with."""
    wanted = name or project.default_agent
    if _is_yet_to_be_made(project, wanted):
        return (Agent(wanted, "standard"),)
    return project.agents.chain(wanted)


def policy_of(project: Project, name: str | None) -> Policy:
    """The policy as agent `name` meets it."""
    wanted = name or project.default_agent
    if _is_yet_to_be_made(project, wanted):
        return project.policy
    return project.policy_for(project.agents.read(wanted))


def _is_yet_to_be_made(project: Project, name: str) -> bool:
    return (
        project.layout.kind == "project"
        and name == project.default_agent
        and not project.layout.agent_file(name).exists()
    )


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
    """A decision as `--json` prints it."""
    rule = decision.rule
    return {
        "outcome": decision.outcome.word,
        "action": decision.action,
        "reason": decision.reason,
        "code": decision.code,
        "rule": None
        if rule is None
        else {"text": rule.text, "source": rule.source, "file": rule.file, "line": rule.line},
        "matched": [
            {"outcome": m.outcome.word, "text": m.text, "file": m.file, "line": m.line}
            for m in decision.matched
        ],
        "warnings": list(decision.warnings),
        "policy_digest": decision.policy_digest,
    }


COMMAND = PolicyCommand()
