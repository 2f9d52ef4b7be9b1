"""Samples in Inspect's own runner: their files, their policy, and what is left of them."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from inspect_ai.log import EvalLog
from pydantic import ValidationError

from examples import inspect_task
from paddock.errors import ConfigError
from paddock.integrations.inspect_ai import PaddockConfig, PaddockSandboxEnvironment
from paddock.ledger.verify import verify
from tests.frameworks.conftest import ASKS_ABOUT_CHANGES, Reader
from tests.support.places import SECRET, Place

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

NO_COMMANDS = '[profiles.standard]\nallow = ["tool:file:*"]\ndeny = ["tool:shell:*"]\n'


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def heard(log: EvalLog) -> list[str]:
    """What the tools of each sample said."""
    assert log.status == "success", log.error
    return [
        "\n".join(
            message.error.message if message.error else message.text
            for message in sample.messages
            if message.role == "tool"
        )
        for sample in log.samples or []
    ]


def test_two_samples_work_apart_and_leave_their_ledgers(place: Place, temporary: Path):
    log = inspect_task.run(str(place.outside))
    counted, refused = heard(log)

    assert counted.strip() == "3"
    assert "paddock.toml" in refused
    assert [sample.scores["includes"].value for sample in log.samples or []] == ["C", "C"]
    planes = [e.data["plane"] for s in log.samples or [] for e in s.events if e.event == "info"]
    assert len({*planes}) == 2
    for plane in planes:
        (ledger,) = Path(plane).rglob("ho1m.jsonl")
        assert verify(str(ledger)).problems == ()
    assert os.listdir(temporary) == []


def test_a_policy_file_governs_each_sample(place: Place, temporary: Path):
    policy = place.outside / "policy.toml"
    policy.write_text(NO_COMMANDS)

    log = inspect_task.run(str(place.outside), str(policy))

    assert ["is denied" in each for each in heard(log)] == [True, True]
    assert "profiles.standard.deny" in heard(log)[0]


async def test_a_root_is_worked_on_under_its_own_policy_and_stays(
    place: Place, write_policy: Callable[[str], None]
):
    config = PaddockConfig(root=str(place.project))
    environments = await PaddockSandboxEnvironment.sample_init("task", config, {})
    sandbox = environments["default"]

    await sandbox.write_file("new", "x")
    for path in (".env", "locked/new"):
        with pytest.raises(PermissionError):
            await sandbox.write_file(path, "x")
    with pytest.raises(PermissionError):
        await sandbox.read_file(".env")
    shown = await sandbox.exec(["cat", "new", "src/a.py"])
    await PaddockSandboxEnvironment.sample_cleanup("task", config, environments, interrupted=False)

    assert (shown.returncode, shown.stdout[:1]) == (0, "x")
    assert SECRET not in shown.stdout
    assert (place.project / "new").read_text() == "x"


async def test_a_command_whose_changes_wait_for_a_person_has_failed(
    place: Place, write_policy: Callable[[str], None]
):
    write_policy(ASKS_ABOUT_CHANGES)
    config = PaddockConfig(root=str(place.project))
    environments = await PaddockSandboxEnvironment.sample_init("task", config, {})
    run = environments["default"].exec
    waits, done = [await run(["sh", "-c", each]) for each in ("echo x > made", "echo x")]
    await PaddockSandboxEnvironment.sample_cleanup("task", config, environments, interrupted=False)

    assert (waits.success, waits.returncode) == (False, 1)
    assert "changes wait for a person" in waits.stderr
    assert (done.success, done.returncode, done.stderr) == (True, 0, "")
    assert not (place.project / "made").exists()


async def test_directories_without_write_bits_go_with_their_sample_and_no_link_is_followed(
    place: Place, temporary: Path
):
    kept = place.outside / "kept"
    kept.mkdir(0o500)
    environments = await PaddockSandboxEnvironment.sample_init("task", None, {})
    script = f"mkdir -p a/b/c; echo x >a/b/f; ln -s {kept} a/link; chmod 0 a/b/c; chmod 500 a/b a"
    ran = await environments["default"].exec(["sh", "-c", script])
    await PaddockSandboxEnvironment.sample_cleanup("task", None, environments, interrupted=False)

    assert ran.success, ran.stderr
    assert os.listdir(temporary) == []
    assert kept.stat().st_mode & 0o777 == 0o500


def test_a_configuration_that_says_two_things_is_an_error():
    with pytest.raises(ValidationError, match="a root has its own policy"):
        PaddockConfig(policy="policy.toml", root=".")


async def test_a_policy_that_does_not_load_leaves_no_directory(place: Place, temporary: Path):
    policy = place.outside / "policy.toml"
    policy.write_text("[profiles.standard]\nallow = 3\n")
    with pytest.raises(ConfigError):
        await PaddockSandboxEnvironment.sample_init("task", str(policy), {})

    assert os.listdir(temporary) == []


def test_the_page_can_be_followed(reader: Reader):
    assert reader.follow("inspect.md") == []
