"""What installs dependencies works in a command, whatever the installed files are called."""

from pathlib import Path

import pytest

from tests.support.shells import a_terminal, refused

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


@pytest.fixture
def terminal(tmp_path: Path):
    with a_terminal(tmp_path) as made:
        yield made


def test_a_virtual_environment_lands_whole_with_its_certificates(terminal):
    said = terminal.run("python3 -m venv .venv", timeout=120)
    assert (said["exit_code"], said["changes_refused"]) == (0, [])

    found = "import pip._vendor.certifi as c; print(len(open(c.where()).read()) > 100_000)"
    said = terminal.run(f".venv/bin/python -c '{found}'")
    assert said["stdout"] == "True\n"


def test_what_packages_ship_is_read_and_removed_again_and_the_projects_own_is_not(terminal):
    ship = "mkdir -p node_modules/x vendor/y && for f in .env a.key b.pem"
    said = terminal.run(f"{ship}; do echo v > node_modules/x/$f; echo v > vendor/y/$f; done")
    assert (said["exit_code"], said["changes_refused"]) == (0, [])

    terminal.yard.write({".env": "own\n", "certs/a.pem": "own\n"})
    said = terminal.run("cat node_modules/x/.env node_modules/x/a.key")
    assert said["stdout"] == "v\nv\n"
    said = terminal.run("cat .env vendor/y/.env vendor/y/a.key; echo end")
    assert said["stdout"] == "end\n"
    said = terminal.sneak("echo w > .env; echo w > certs/a.pem; echo w > b.key; rm -r node_modules")
    assert refused(said).keys() >= {"certs/a.pem", "b.key"}
    root = terminal.yard.root
    assert [(root / each).exists() for each in ("node_modules", "b.key")] == [False, False]
    assert [(root / each).read_text() for each in (".env", "certs/a.pem")] == ["own\n"] * 2


def test_git_and_a_clients_settings_stay_closed_in_them(terminal):
    hook = "mkdir -p node_modules/x/.git/hooks && echo x > node_modules/x/.git/hooks/pre-commit"
    said = terminal.sneak(f"{hook}; mkdir vendor/.claude -p; echo x > vendor/.claude/settings.json")
    assert refused(said).keys() >= {
        "node_modules/x/.git/hooks/pre-commit",
        "vendor/.claude/settings.json",
    }
    root = terminal.yard.root
    assert not (root / "node_modules/x/.git/hooks/pre-commit").exists()
    assert not (root / "vendor/.claude/settings.json").exists()
