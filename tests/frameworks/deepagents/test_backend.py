"""What LangChain's suite does not ask of a backend: refusals, deletion, async work, a real agent."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    LsResult,
    WriteResult,
)

from paddock.integrations.deepagents import PaddockBackend
from tests.frameworks.conftest import ASKS_ABOUT_CHANGES, Reader
from tests.support.places import Place

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


@pytest.fixture
def backend(place: Place, write_policy: Callable[[str], None]) -> Iterator[PaddockBackend]:
    with PaddockBackend(place.project) as made:
        yield made


def test_who_looks_at_the_top_is_shown_the_workspace(backend: PaddockBackend):
    root = backend.runtime.root
    shown = LsResult(entries=[{"path": root, "is_dir": True}])

    assert [backend.ls(path) for path in ("/", root.rpartition("/")[0])] == [shown, shown]
    assert {"path": f"{root}/src", "is_dir": True, "size": 0} in (backend.ls(root).entries or [])


def test_what_policy_refuses_is_an_error_and_nothing_happens(backend: PaddockBackend, place: Place):
    root, before = backend.runtime.root, place.untouchable()
    refused = [
        backend.write(f"{root}/locked/new", "x").error,
        backend.edit(f"{root}/.env", "TOKEN", "x").error,
        backend.read(f"{root}/.env").error,
        backend.delete(f"{root}/.git").error,
        *(each.error for each in backend.upload_files([(f"{root}/paddock.toml", b"")])),
        *(each.error for each in backend.download_files([f"{root}/.env"])),
    ]

    assert [(each or "").partition(":")[0] for each in refused] == ["permission_denied"] * 6
    assert place.untouchable() == before


@pytest.mark.parametrize("path", ["relative", "../up", "/tmp/../etc/passwd/x"])
def test_a_path_that_names_nothing_here_is_an_error(backend: PaddockBackend, path: str):
    assert backend.read(path).error
    assert backend.edit(path, "a", "b").error
    assert backend.ls(path).error
    assert backend.glob("*", path).error
    assert backend.grep("x", path).error


def test_a_command_that_policy_denies_does_not_run(
    place: Place, write_policy: Callable[[str], None]
):
    write_policy('[profiles.standard]\nallow = ["tool:file:*"]\ndeny = ["tool:shell:*"]\n')
    with PaddockBackend(place.project) as backend:
        done = backend.execute("touch new")

    assert (done.exit_code, done.output.partition(":")[0]) == (126, "permission_denied")
    assert not (place.project / "new").exists()


def test_what_policy_kept_from_a_command_stands_in_its_output(backend: PaddockBackend):
    script = b"echo done; mkdir locked; echo x > locked/new; echo y > new"
    backend.upload_files([(f"{backend.runtime.root}/script", script)])
    done = backend.execute("sh script")

    assert done.exit_code == 0
    assert done.output.startswith("done\npaddock: not changed: locked/new: ")
    assert backend.read(f"{backend.runtime.root}/new").error is None


def test_a_command_whose_changes_wait_for_a_person_has_failed(
    place: Place, write_policy: Callable[[str], None]
):
    write_policy(ASKS_ABOUT_CHANGES)
    with PaddockBackend(place.project) as backend:
        waits = backend.execute("echo x > made")
        done = backend.execute("echo x")

    assert (waits.exit_code, "changes wait for a person" in waits.output) == (1, True)
    assert (done.exit_code, done.output) == (0, "x")
    assert not (place.project / "made").exists()


def test_a_command_that_takes_too_long_ends_with_124(backend: PaddockBackend):
    done = backend.execute("echo begun; sleep 60", timeout=1)

    assert (done.exit_code, done.output.splitlines()[0]) == (124, "begun")


def test_a_directory_is_deleted_with_what_is_in_it(backend: PaddockBackend, place: Place):
    root = backend.runtime.root
    backend.upload_files([(f"{root}/d/deep/f", b"1"), (f"{root}/d/g", b"2")])

    assert backend.delete(f"{root}/d") == DeleteResult(path=f"{root}/d")
    assert backend.delete(f"{root}/README.md") == DeleteResult(path=f"{root}/README.md")
    assert not (place.project / "d").exists()
    assert not (place.project / "README.md").exists()


@pytest.mark.parametrize("target", ["src", "../outside", "nowhere"])
def test_a_link_is_deleted_and_nothing_of_what_it_leads_to(
    backend: PaddockBackend, place: Place, target: str
):
    link, before = place.project / "link", names_below(place.base)
    link.symlink_to(target)

    assert backend.delete(str(link)) == DeleteResult(path=str(link))
    assert names_below(place.base) == before


def test_the_root_is_not_deleted_and_nothing_that_is_in_it(backend: PaddockBackend, place: Place):
    before = names_below(place.base)

    for path in (backend.runtime.root, "/", str(place.outside)):
        assert str(backend.delete(path).error).startswith("invalid_path: ")
    assert names_below(place.base) == before


def names_below(directory: Path) -> list[Path]:
    return sorted(directory.glob("project/**/*")) + sorted(directory.glob("outside/**/*"))


def test_a_glob_without_a_path_answers_absolute_paths(backend: PaddockBackend):
    root = backend.runtime.root
    found = backend.glob("*.py")

    assert found == GlobResult(
        matches=[{"path": f"{root}/src/a.py", "is_dir": False, "size": 17}], truncated=False
    )
    assert backend.glob("../*").error


async def test_every_method_has_its_async_twin(backend: PaddockBackend):
    path = f"{backend.runtime.root}/new"

    assert await backend.awrite(path, "one\n") == WriteResult(path=path)
    assert await backend.aedit(path, "one", "two") == EditResult(path=path, occurrences=1)
    assert await backend.aexecute("cat new") == ExecuteResponse("two", 0, truncated=False)
    assert await backend.adownload_files([path]) == [FileDownloadResponse(path, b"two\n")]
    assert await backend.aupload_files([(path, b"3")]) == [FileUploadResponse(path)]
    assert (await backend.agrep("3", path)).matches == [{"path": path, "line": 1, "text": "3"}]
    assert (await backend.aread(path)).file_data == {"content": "3", "encoding": "utf-8"}
    assert (await backend.aglob("new")).matches == [{"path": path, "is_dir": False, "size": 1}]
    assert (await backend.als("/")).error is None
    assert await backend.adelete(path) == DeleteResult(path=path)


async def test_who_stops_waiting_for_a_command_ends_it(backend: PaddockBackend, place: Place):
    running = asyncio.create_task(backend.aexecute("echo > begun; sleep 60; echo > over"))
    await asyncio.sleep(0.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not (place.project / "over").exists()


def test_what_an_agent_did_is_on_record(backend: PaddockBackend, recorded: Callable):
    backend.write(f"{backend.runtime.root}/new", "x")
    backend.execute("cat new")

    assert [each for each in recorded() if each[0] == "TOOL_INTENT"] == [
        ("TOOL_INTENT", "write_bytes", "allow"),
        ("TOOL_INTENT", "exec", "allow"),
    ]


def test_a_runtime_that_was_brought_open_stays_open(backend: PaddockBackend):
    with PaddockBackend(backend.runtime) as other:
        assert other.id == backend.id

    assert backend.execute("true") == ExecuteResponse("", 0, truncated=False)


def test_the_page_can_be_followed(reader: Reader):
    assert reader.follow("deepagents.md") == []


def test_the_example_runs(reader: Reader):
    shown = reader.run("deepagents_agent.py").splitlines()

    assert shown[0].startswith("grep: …/README.md")
    assert shown[-1] == "README.md is right now, and .env is not for me."
    assert (reader.project / "README.md").read_text() == "# Widgets\n\nWidgets for the web.\n"
