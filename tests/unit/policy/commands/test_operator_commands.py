"""What of Paddock's own command line is a person's act, by the words of a line."""

import argparse

import pytest

from paddock.apps.cli.main import COMMANDS
from paddock.apps.command import make_parser
from paddock.policy.commands import parse_line
from paddock.policy.commands.operator_commands import (
    CLIENT_RUN,
    READING,
    find_persons_act,
    is_persons_act,
    place_of,
)


def load(name: str):
    from importlib import import_module

    module, _, constant = COMMANDS[name].module.partition(":")
    folder = "" if "." in module else "cli."
    return getattr(import_module(f"paddock.apps.{folder}{module}"), constant or "COMMAND")


def sub_commands(name: str) -> frozenset[str]:
    parser = make_parser(load(name), name)
    found = [
        choice
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action.choices
    ]
    return frozenset(found)


def test_the_list_names_every_command_of_the_parser_and_no_other():
    assert READING.keys() - {"help"} == COMMANDS.keys()
    for name in COMMANDS:
        known = sub_commands(name)
        assert READING[name] <= (known or {""}), name
    for name, sub in CLIENT_RUN:
        assert is_persons_act([name, sub] if sub else [name])
        assert sub in sub_commands(name) | {""}


def test_what_the_parser_gets_and_the_list_does_not_name_is_a_persons_act():
    assert is_persons_act(["new-command"])
    assert is_persons_act(["policy", "new-sub-command"])
    assert is_persons_act(["policy"])


def test_every_command_that_changes_something_is_a_persons_act():
    every = {(name, sub) for name in COMMANDS for sub in sub_commands(name) or {""}}
    acts = {" ".join(each).strip() for each in every if is_persons_act([*filter(None, each)])}
    assert acts == set(
        "demo,init,trust,run,admin,undo,session resume,agent create,agent remove,approvals grant,"
        "approvals refuse,ledger checkpoint,ledger accept-rollback,ledger set-aside,ledger content,ledger erase,ledger signer,"
        "collector init,collector keys,collector enroll,collector push,collector accept,"
        "package hash,package pack,package sign,package approve,package install,package uninstall,"
        "network allow,bootstrap build,bootstrap install,mcp install,mcp uninstall,mcp add,mcp review,mcp import,mcp export,mcp token,web token,hook install,"
        "hook uninstall,scratch clean,plane remove".split(",")
    )


def test_looking_at_the_caches_is_reading_and_clearing_them_is_a_persons_act():
    assert not is_persons_act(["sandbox", "caches"])
    assert is_persons_act(["sandbox", "caches", "clear"])


def test_looking_at_the_network_is_reading_and_asking_the_clients_anew_is_a_persons_act():
    assert not is_persons_act(["network", "show", "--json"])
    assert is_persons_act(["network", "show", "--refresh"])


@pytest.mark.parametrize(
    "text",
    [
        "paddock trust --yes",
        "paddock hook uninstall --yes",
        "paddock approvals grant APR-0123456789abcdef --yes",
        "paddock call run_shell '{}' --yes",
        "paddock call --agent admin view '{}'",
        "paddock call run_shell '{}' $consent",
        "paddock agent create x --profile admin",
        "paddock ledger accept-rollback",
        "paddock hook < event.json",
        "paddock mcp",
        "paddock web",
        "paddock network allow example.org",
        "paddock plane remove x",
        "paddock sandbox caches clear",
        "paddock $what",
        "paddock --plane /x --json trust",
        "paddock --plane=/x trust",
        "paddock trust --yes --help -- x",
        "cd /tmp && paddock undo CALL",
        "/opt/venv/bin/paddock trust",
        "./paddock init",
        "python3 -m paddock trust --yes",
        "python -I -m paddock trust",
        "python3.12 -c 'from paddock.apps.cli.main import console; console()' trust",
        "python -Ic 'import paddock.apps.cli.main as m; m.console()' trust",
        "python3 - <<'END'\nfrom paddock.apps.cli.main import console\nEND",
        "uv run paddock trust",
        "uv run paddock new-command",
        "uv run --no-sync python -m paddock trust",
        "poetry run paddock trust",
        "env A=1 paddock trust",
        "A=1 paddock trust",
        "nohup paddock trust &",
        "timeout 9 nice -n 3 paddock trust",
        "sh -c 'paddock trust --yes'",
        'bash -lc "cd x; paddock trust --yes"',
        "echo $(paddock trust --yes)",
        "echo trust --yes | xargs paddock",
        "alias p='paddock trust'; p",
        "eval paddock trust",
        "if true; then paddock trust; fi",
    ],
)
def test_a_persons_act_is_seen_through_what_starts_it(text):
    assert find_persons_act(parse_line(text))


@pytest.mark.parametrize(
    "text",
    [
        "paddock",
        "paddock --help",
        "paddock --version",
        "paddock trust --help",
        "paddock hook install --help",
        "paddock where",
        "paddock --json where",
        "paddock policy explain 'tool:file:create paddock trust'",
        "paddock policy check --plane trust 'tool:file:view x'",
        "paddock approvals list --json",
        "paddock ledger query --last 3",
        "paddock ledger export --format jsonl",
        "paddock agent list",
        "paddock hook status",
        "paddock sandbox plan",
        "paddock scratch new topic",
        'paddock call view \'{"path": "README.md"}\'',
        'paddock call view "{\\"path\\": \\"$file\\"}"',
        "python3 -m paddock where",
        "uv run paddock policy lint",
        "uv run mypy src/paddock tests",
        "uv run mypy paddock tests",
        "uv run ruff check src/paddock init",
        "python -c 'import paddock; print(paddock.__version__)'",
        "python -m pytest --cov=paddock.apps tests",
        "git commit -m 'paddock trust --yes'",
        "grep -rn 'paddock trust' docs",
        "pip install paddock",
        "cat paddock trust",
        "cd paddock && ls",
        "paddock-exporter trust",
        "echo paddock trust",
    ],
)
def test_what_only_reads_or_only_names_it_is_none(text):
    assert find_persons_act(parse_line(text)) == ""


def test_the_place_of_a_command_is_told_without_its_arguments():
    assert place_of(["--plane", "x", "approvals", "--json", "grant", "APR"]) == (
        "approvals",
        "grant",
    )
    assert place_of(["call", "view", "{}"]) == ("call", "")
    assert place_of(["hook", "--client", "claude"]) == ("hook", "")
    assert place_of([]) == ("", "")
