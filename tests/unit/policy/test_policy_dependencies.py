"""Names that look secret, in places that are not: samples to commit, and folders of dependencies."""

import pytest

from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, Writer, load_policy
from paddock.policy.presets import INSTALLED_FOLDERS, MIXED_FOLDERS
from paddock.values.decisions import Action, Agent, Decision

DEFAULT = load_policy(None)


def said(
    operation: str, path: str, writer: Writer = Writer.COMMAND, policy: Policy = DEFAULT
) -> Decision:
    return decide(policy, (Agent("main", "open"),), (Action("file", operation, path),), writer)


def codes(operation: str, *paths: str, writer: Writer = Writer.COMMAND) -> list[str]:
    return [said(operation, path, writer).code for path in paths]


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("operation", ["view", "create", "delete"])
def test_what_is_made_to_be_read_is_open_and_its_neighbours_are_not(operation, writer):
    open_to_all = (
        *(".env.example", "sub/.env.sample", ".env.template", ".env.dist"),
        *(".envoy/x.yaml", ".environment", "x.env", "env", ".env_vars"),
    )
    closed = (".env", "sub/.ENV", ".env.local", ".env.production", ".envrc", "tls.key")
    closed += (".env.example.local", ".env.samples", "x.env/.env")

    assert codes(operation, *open_to_all, writer=writer) == [""] * len(open_to_all)
    assert codes(operation, *closed, writer=writer) == ["policy.secret"] * len(closed)


@pytest.mark.parametrize("folder", [*INSTALLED_FOLDERS, *MIXED_FOLDERS])
def test_a_command_writes_names_that_look_secret_into_folders_of_dependencies(folder):
    paths = tuple(f"{at}{folder}/{name}" for at in ("", "a/b/") for name in ("c.pem", "x/.env"))

    assert codes("create", *paths) == [""] * 4
    assert codes("delete", *paths) == [""] * 4
    # A file tool meets the patterns there as everywhere.
    assert codes("create", paths[0], writer=Writer.FILE_TOOL) != [""]
    assert codes("create", paths[1], writer=Writer.FILE_TOOL) != [""]
    assert codes("view", paths[1], writer=Writer.FILE_TOOL) == ["policy.secret"]


@pytest.mark.parametrize("folder", INSTALLED_FOLDERS)
def test_a_command_reads_what_an_installer_put_there(folder):
    assert codes("view", f"{folder}/x/.env", f"sub/{folder}/server.key") == ["", ""]


@pytest.mark.parametrize("folder", MIXED_FOLDERS)
def test_a_command_reads_no_secret_where_the_projects_own_files_may_stand(folder):
    secret = (f"{folder}/prod.key", f"{folder}/classes/.env")
    assert codes("view", *secret) == ["policy.secret"] * 2
    assert codes("view", f"{folder}/classes/a.pem", f"{folder}/a.go") == ["", ""]


def test_file_tools_still_edit_what_is_vendored():
    assert codes("create", "vendor/x.go", "target/x.txt", writer=Writer.FILE_TOOL) == ["", ""]


def test_the_projects_own_level_keeps_its_patterns():
    names = {
        ".env": "policy.secret",
        "certs/x.pem": "policy.protected",
        "src/tls.key": "policy.secret",
        # No folder of dependencies: another name, another case, a file of that name.
        "my_node_modules/x.pem": "policy.protected",
        "Vendor/x.pem": "policy.protected",
        "node_modules.pem": "policy.protected",
        "vendored/.env": "policy.secret",
        "deps/.env": "policy.secret",
    }
    assert dict(zip(names, codes("create", *names), strict=True)) == names


@pytest.mark.parametrize(
    "path",
    [
        "node_modules/x/.git/hooks/pre-commit",
        ".venv/src/x/.git/config",
        "vendor/x/.GIT",
        "node_modules/x/paddock.toml",
        "vendor/.claude/settings.json",
        "target/.codex/hooks.json",
    ],
)
def test_git_and_paddocks_own_files_keep_their_protection_there(path):
    assert codes("create", path) == ["policy.protected"]
    assert codes("create", path.replace(".git", ".gut").replace(".GIT", "GIT") + ".txt") == [""]


@pytest.mark.parametrize(
    ("pattern", "path", "reaches"),
    [
        ("/vendor/secret/", "vendor/secret/a", True),
        ("/vendor/secret/", "vendor/other/a", False),
        ("vendor/**/*.key", "vendor/x/a.key", True),
        ("**/*.key", "node_modules/x/a.key", True),
        ("node_modules/x/.env", "node_modules/x/.env", True),
        ("vendor", "vendor/x/a.key", True),
        ("secrets/", "node_modules/x/secrets/a", True),
        (".git", "node_modules/x/.git", True),
        ("*.key", "node_modules/x/a.key", False),
        ("*.key", "a.key/node_modules/x", True),
        ("*.key", "a.key", True),
    ],
)
@pytest.mark.parametrize("name", ["protected", "secret"])
def test_what_names_a_folder_reaches_into_it_and_a_mere_name_does_not(name, pattern, path, reaches):
    text = f'[paths]\nprotected = []\nsecret = []\n{name} = ["{pattern}"]\n'
    text = text.replace(f"{name} = []\n", "")
    own = load_policy(PolicySource("paddock.toml", text.encode(), True))

    assert said("create", path, policy=own).code == (f"policy.{name}" if reaches else "")


def test_an_exception_counts_there_as_elsewhere():
    text = '[paths]\nsecret = ["/vendor/**", "!*.txt"]\n'
    own = load_policy(PolicySource("paddock.toml", text.encode(), True))

    assert said("create", "vendor/a.txt", policy=own).code == ""
    assert said("create", "vendor/a.md", policy=own).code == "policy.secret"


@pytest.mark.parametrize(
    ("path", "lifting"),
    [
        (".env.staging", '"!.env.staging" last to secret in [paths]'),
        ("a/.env.d/x", '"!.env.d" last to secret in [paths]'),
        ("certs/Ca.PEM", '"!Ca.PEM" last to protected in [paths]'),
    ],
)
def test_a_denial_names_what_a_person_lifts_it_by_and_that_does(path, lifting):
    refused = said("create", path, Writer.FILE_TOOL)
    assert refused.reason.endswith(f"; a person can lift it: add {lifting}")

    name, pattern = lifting.split()[3], lifting.split('"')[1]
    listed = {"secret": '".env.*"', "protected": '"*.pem"'}[name]
    text = f'[paths]\n{name} = [{listed}, "{pattern}"]\n'
    own = load_policy(PolicySource("paddock.toml", text.encode(), True))
    assert said("create", path, Writer.FILE_TOOL, own).code == ""


@pytest.mark.parametrize("path", [".git/config", "paddock.toml", ".claude/settings.json"])
def test_what_a_person_lifts_otherwise_has_no_such_hint(path):
    refused = said("create", path)
    assert (refused.code, "lifts" in refused.reason) == ("policy.protected", False)
