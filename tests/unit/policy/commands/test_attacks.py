"""None of the attacks rides on an allow rule; each is shown to do harm without policy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.policy.commands import compile_command_pattern, parse_line
from tests.unit.policy.commands.attacks import ATTACKS, REDIRECTIONS

RUN_AT_LEAST = 60
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
PRECIOUS = b"precious\n"


def is_allowed(rules, command):
    """What a policy of allow rules decides: every command of the line, and nothing in doubt."""
    patterns = [compile_command_pattern(rule) for rule in rules]
    line = parse_line(command)
    return (
        bool(line.commands)
        and not (line.problems or line.runtime_only)
        and all(any(pattern.matches_exactly(each) for pattern in patterns) for each in line.wanted)
    )


def environment(directory):
    return {
        "PATH": PATH,
        "HOME": f"{directory}/../home",
        "WS": str(directory),
        "EVIL": "./evil",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # most of the time of a start
    }


def run(directory, script):
    return subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


PREPARE = """
git init -q --template= . && git config user.name x && git config user.email x
echo one > in.txt && git add in.txt && git commit -qm one
printf 'two\\nalpha\\n' > in.txt && git commit -qam two
git config --unset user.name; git config --unset user.email
printf 'precious\\n' > victim
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    directory = tmp_path_factory.mktemp("template") / "ws"
    directory.mkdir()
    done = run(directory, PREPARE)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def workspace(template, tmp_path):
    directory = tmp_path / "ws"
    shutil.copytree(template, directory, symlinks=True, copy_function=shutil.copy)
    (tmp_path / "home").mkdir()
    evil = directory / "evil"
    evil.write_text(f'#!/bin/sh\n: > "{directory}/HARM"\n')
    evil.chmod(0o755)
    return directory


def prepare_and_run(directory, setup, command):
    """One shell for both: the set-up must work, and do no harm of its own."""
    # Not with `||` behind it, which would have the set-up go on where something of it fails.
    prepare = f'(set -e\n{setup}\n)\n[ "$?" = 0 ] || exit 99' if setup else ""
    check = '! test -e HARM && test "$(<victim)" = precious || exit 99'
    done = run(directory, f"{prepare}\n{check}\n{command}")
    assert done.returncode != 99, f"the set-up fails: {done.stderr!r}"
    return done


def skip_without_programs(attack):
    absent = missing(attack)
    if absent:
        pytest.skip(f"this machine has no {', '.join(absent)}")


def is_harmed(directory):
    victim = directory / "victim"
    return (directory / "HARM").exists() or not victim.exists() or victim.read_bytes() != PRECIOUS


def missing(attack):
    return [name for name in attack.needs if shutil.which(name, path=PATH) is None]


def numbered():
    return [
        pytest.param(attack, id=f"{number}-{attack.command.splitlines()[0][:40]}")
        for number, attack in enumerate(ATTACKS, 1)
    ]


@pytest.mark.parametrize("attack", numbered())
def test_an_attack_does_harm_and_no_allow_rule_covers_it(attack, workspace):
    assert not is_allowed(attack.rules, attack.command)
    skip_without_programs(attack)
    done = prepare_and_run(workspace, attack.setup, attack.command)
    assert is_harmed(workspace), f"no harm without policy: {done.stdout!r} {done.stderr!r}"


TWINS = {(each.twin, each.setup): each for each in ATTACKS}


@pytest.mark.parametrize("attack", TWINS.values(), ids=lambda attack: attack.twin.splitlines()[0])
def test_the_innocent_twin_is_allowed_and_does_no_harm(attack, workspace):
    assert is_allowed(attack.rules, attack.twin)
    skip_without_programs(attack)
    prepare_and_run(workspace, attack.setup, attack.twin)
    assert not is_harmed(workspace)


def test_at_least_sixty_attacks_run_here():
    assert sum(not missing(attack) for attack in ATTACKS) >= RUN_AT_LEAST


@pytest.mark.parametrize(("command", "target"), REDIRECTIONS)
def test_an_allowed_command_is_judged_by_what_its_redirections_write(command, target, workspace):
    line = parse_line(command)
    assert target in line.writes or line.problems
    run(workspace, command)
    assert is_harmed(workspace)
