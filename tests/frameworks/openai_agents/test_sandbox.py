"""A sandbox of the OpenAI Agents SDK, side by side with its own local one."""

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents.sandbox import Manifest
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import (
    ExposedPortUnavailableError,
    SandboxError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
)
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.sandbox.types import Group, User
from agents.sandbox.workspace_paths import SandboxPathGrant

import paddock
from paddock.integrations.openai_agents import PaddockSandboxClient
from tests.support.places import SECRET, Place

pytestmark = pytest.mark.needs("stage")

Recorded = Callable[[], list[tuple[str, str, str]]]
ENTRIES = {"notes": Dir(children={"todo.txt": File(content=b"one\n")})}


@pytest.fixture
def client(place: Place, write_policy: Callable[[str], None]) -> Iterator[PaddockSandboxClient]:
    with PaddockSandboxClient(place.project) as opened:
        yield opened


@asynccontextmanager
async def running(
    client: BaseSandboxClient[Any], root: Path, **more: Any
) -> AsyncIterator[BaseSandboxSession]:
    manifest = Manifest(root=str(root), **more)
    session = await client.create(manifest=manifest, options=None)
    async with session:
        yield session
    await client.delete(session)


async def outcome_of(awaited: Awaitable[Any]) -> Any:
    """What it came to, in plain values; of an error its kind."""
    try:
        result = await awaited
    except (SandboxError, OSError, RuntimeError) as error:
        return type(error).__name__
    if isinstance(result, io.IOBase):
        return result.read()
    if isinstance(result, list):
        return sorted((Path(each.path).name, each.kind.value, each.size) for each in result)
    if hasattr(result, "stdout"):
        return result.stdout, result.stderr, result.exit_code
    return result


async def script(session: BaseSandboxSession, root: Path) -> list[Any]:
    """Whatever a session can do, and what each came to."""

    def data(content: bytes) -> io.BytesIO:
        return io.BytesIO(content)

    create = {"type": "create_file", "path": "made/new.txt", "diff": "+hello\n+world\n"}
    update = {"type": "update_file", "path": "made/new.txt", "diff": "@@\n hello\n-world\n+all\n"}
    steps: list[Callable[[], Awaitable[Any]]] = [
        session.running,
        lambda: session.exec("printf out; printf err >&2; exit 3"),
        lambda: session.exec("pwd; cat notes/todo.txt; echo $GREETING"),
        lambda: session.exec("printf", "%s|", "a b", "c'd", "$x"),
        lambda: session.exec("printf", "%s|", "a b", "$HOME", shell=False),
        lambda: session.exec("echo $0 $BASH_VERSINFO", shell=["bash", "-c"]),
        lambda: session.exec("no-such-program 2>/dev/null"),
        lambda: session.exec("sleep 600", timeout=0.5),
        lambda: session.write(Path("deep/down/data"), data(bytes(range(256)))),
        lambda: session.read(Path("deep/down/data")),
        lambda: session.read(root / "deep/down/data"),
        lambda: session.read_bounded(Path("deep/down/data"), max_bytes=7),
        lambda: session.read(Path("none")),
        lambda: session.read(Path("deep")),
        lambda: session.read(Path("../outside/kept.txt")),
        lambda: session.read(Path("/etc/passwd")),
        lambda: session.write(Path("deep"), data(b"")),
        lambda: session.write(Path("../x"), data(b"")),
        lambda: session.mkdir("a/b", parents=True),
        lambda: session.mkdir("a/b", parents=True),
        lambda: session.mkdir("x/y"),
        lambda: session.ls("a"),
        lambda: session.ls("none"),
        lambda: session.apply_patch(create),
        lambda: session.apply_patch(create),
        lambda: session.apply_patch(update),
        lambda: session.apply_patch({**update, "move_to": "made/moved.txt"}),
        lambda: session.apply_patch({**update, "diff": "@@\n-world\n+x\n", "move_to": "m.txt"}),
        lambda: session.apply_patch({"type": "delete_file", "path": "none.txt"}),
        lambda: session.read(Path("made/new.txt")),
        lambda: session.mv("made/new.txt", "a/b/new.txt"),
        lambda: session.mv("none", "x"),
        lambda: session.same_file("a/b/new.txt", "a/../a/b/new.txt"),
        lambda: session.same_file("a/b/new.txt", "notes/todo.txt"),
        lambda: session.rm("deep/down/data"),
        lambda: session.rm("deep/down/data"),
        lambda: session.rm("deep/down/data", recursive=True),
        lambda: session.rm("deep", recursive=True),
        lambda: session.exec("find . -not -path './.git*' -type f -size -1000c | sort"),
        lambda: session.resolve_exposed_port(8000),
    ]
    return [await outcome_of(step()) for step in steps]


def test_the_same_script_comes_to_the_same_as_in_the_sdks_own_sandbox(
    place: Place, client: PaddockSandboxClient
):
    root = place.project
    (root / ".env").unlink()
    (root / "fifo").unlink()

    async def both() -> list[list[Any]]:
        came_to = []
        for each in (UnixLocalSandboxClient(), client):
            more = {"entries": ENTRIES, "environment": {"value": {"GREETING": "it's me"}}}
            async with running(each, root, **more) as session:
                came_to.append(await script(session, root))
            assert (root / "notes/todo.txt").read_bytes() == b"one\n"
            place.fill()
            (root / ".env").unlink()
            (root / "fifo").unlink()
        return came_to

    theirs, ours = asyncio.run(both())
    assert ours == theirs


def names_in(archive: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {
            each.name.removeprefix("./"): {tarfile.DIRTYPE: "dir", tarfile.SYMTYPE: "link"}.get(
                each.type, "file"
            )
            for each in opened.getmembers()
        }


def test_a_workspace_is_packed_as_the_sdk_packs_it_but_for_secrets(
    place: Place, client: PaddockSandboxClient
):
    async def packed(each: BaseSandboxClient[Any]) -> dict[str, str]:
        async with running(each, place.project) as session:
            session.register_persist_workspace_skip_path("src/latin")
            return names_in((await session.persist_workspace()).read())

    ours = asyncio.run(packed(client))
    theirs = asyncio.run(packed(UnixLocalSandboxClient()))
    assert theirs.pop(".env") == "file"
    assert ours == theirs
    assert "src/a.py" in ours
    assert "src/latin" not in ours


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_session_is_resumed_from_its_snapshot(
    place: Place, client: PaddockSandboxClient, tmp_path: Path, has_changed: bool
):
    async def stop() -> dict[str, object]:
        session = await client.create(
            snapshot=LocalSnapshotSpec(base_path=tmp_path), manifest=Manifest(entries=ENTRIES)
        )
        async with session:
            await session.write(Path("kept/here"), io.BytesIO(b"\0kept"))
        return json.loads(json.dumps(client.serialize_session_state(session.state)))

    async def resume(state: dict[str, object]) -> list[Any]:
        session = await client.resume(client.deserialize_session_state(state))
        assert not await session.running()
        async with session:
            assert await session.running()
            found = [await outcome_of(session.read(Path(each))) for each in ("kept/here", "stray")]
        assert not await session.running()
        return found

    for name in ("fifo", "out", "out.txt", "proc"):
        (place.project / name).unlink()
    state = asyncio.run(stop())
    assert state["type"] == "paddock"
    if has_changed:
        (place.project / "kept/here").write_bytes(b"other")
        (place.project / "stray").write_bytes(b"")
    untouchable = place.untouchable()
    assert asyncio.run(resume(state)) == [b"\0kept", "WorkspaceReadNotFoundError"]
    assert place.untouchable() == untouchable


def test_an_archive_that_leads_out_is_not_unpacked(place: Place, client: PaddockSandboxClient):
    def archive(name: str, link: str = "") -> io.BytesIO:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as opened:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (tarfile.SYMTYPE if link else tarfile.REGTYPE), link
            opened.addfile(member)
        made.seek(0)
        return made

    async def unpack(*archives: io.BytesIO) -> list[Any]:
        async with running(client, place.project) as session:
            return [await outcome_of(session.hydrate_workspace(each)) for each in archives]

    before = place.untouchable()
    found = asyncio.run(
        unpack(
            archive("../outside/x"), archive("/etc/x"), archive("l", "/etc"), io.BytesIO(b"no tar"),
            archive("locked/x"), archive("unlocked/x"),
        )
    )  # fmt: skip
    assert found == ["WorkspaceArchiveWriteError"] * 5 + [None]
    assert place.untouchable() == before
    assert [(place.project / each).exists() for each in ("locked/x", "unlocked/x")] == [False, True]


@pytest.mark.parametrize(
    ("attempt", "kind"),
    [
        (lambda it: it.read(Path(".env")), WorkspaceArchiveReadError),
        (lambda it: it.write(Path(".git/config"), io.BytesIO()), WorkspaceArchiveWriteError),
        (lambda it: it.write(Path("locked/x"), io.BytesIO()), WorkspaceArchiveWriteError),
        (lambda it: it.mkdir("locked/x", parents=True), WorkspaceArchiveWriteError),
        (lambda it: it.rm(".env"), WorkspaceArchiveWriteError),
        (lambda it: it.rm(".git", recursive=True), WorkspaceArchiveWriteError),
        (
            lambda it: it.apply_patch({"type": "create_file", "path": "locked/x", "diff": "+x\n"}),
            WorkspaceArchiveWriteError,
        ),
    ],
)
def test_what_policy_refuses_is_the_sdks_error_of_that_operation(
    attempt: Callable[[BaseSandboxSession], Awaitable[Any]],
    kind: type[SandboxError],
    place: Place,
    client: PaddockSandboxClient,
):
    async def refused() -> None:
        async with running(client, place.project) as session:
            with pytest.raises(kind) as caught:
                await attempt(session)
            said = f"{caught.value} {caught.value.context}"
            assert "error[policy." in said or "paddock: not changed: " in said

    before = place.untouchable()
    asyncio.run(refused())
    assert place.untouchable() == before


def test_a_command_that_is_refused_fails_and_says_why(place: Place, client: PaddockSandboxClient):
    async def run() -> list[Any]:
        async with running(client, place.project) as session:
            whole = await session.exec("echo x > .env")
            part = await session.exec("mkdir locked; cd locked; touch x; touch ../y")
            return [whole.exit_code, whole.stderr.decode(), part.exit_code, part.stderr.decode()]

    code, why, part_code, part_why = asyncio.run(run())
    assert (code, why.split(": ")[0]) == (126, "error[policy.secret]")
    assert (part_code, part_why.split(": ")[:2]) == (0, ["paddock", "not changed"])
    assert (place.project / "y").exists()
    assert not (place.project / "locked/x").exists()
    assert SECRET in (place.project / ".env").read_text()


async def pty_script(session: BaseSandboxSession) -> list[Any]:
    short = await session.pty_exec_start("echo done $GREETING; exit 4", yield_time_s=20)
    shell = await session.pty_exec_start("sh", "-i", shell=False, tty=True, yield_time_s=0.3)
    assert shell.process_id is not None
    answer = b""
    chars = "echo $((6*7)) > answer; echo a''nswered\n"
    while b"answered" not in answer:
        more = await session.pty_write_stdin(
            session_id=shell.process_id, chars=chars, yield_time_s=0.3
        )
        answer, chars = answer + more.output, ""
    ended = more = await session.pty_write_stdin(session_id=shell.process_id, chars="exit 5\n")
    while more.process_id is not None:
        ended = more = await session.pty_write_stdin(session_id=shell.process_id, chars="")
    piped = await session.pty_exec_start("sleep 600", yield_time_s=0.3)
    assert piped.process_id is not None
    return [
        (short.process_id, short.output, short.exit_code),
        ended.exit_code,
        await outcome_of(session.read(Path("answer"))),
        await outcome_of(session.pty_write_stdin(session_id=piped.process_id, chars="x")),
        await outcome_of(session.pty_write_stdin(session_id=shell.process_id, chars="x")),
    ]


def test_commands_that_go_on_running_are_as_in_the_sdks_own_sandbox(
    place: Place, client: PaddockSandboxClient
):
    async def drive(each: BaseSandboxClient[Any]) -> list[Any]:
        more = {"environment": {"value": {"GREETING": "it's me"}}}
        async with running(each, place.project, **more) as session:
            assert session.supports_pty()
            return await pty_script(session)

    theirs = asyncio.run(drive(UnixLocalSandboxClient()))
    (place.project / "answer").unlink()
    ours = asyncio.run(drive(client))

    assert ours == theirs
    left = client.runtime.call("shell_list", {}).details
    assert left["sessions"] == []
    assert not any(each["running"] for each in left["processes"])


def test_what_is_not_supported_is_an_error_of_the_sdk(place: Place, client: PaddockSandboxClient):
    async def run() -> None:
        for more in (
            {"users": [User(name="a")]},
            {"groups": [Group(name="a", users=[])]},
            {"extra_path_grants": (SandboxPathGrant(path="/srv"),)},
            {"root": "/elsewhere"},
        ):
            with pytest.raises(ValueError, match="PaddockSandboxClient does not support"):
                await client.create(manifest=Manifest(**more))
        async with running(client, place.project) as session:
            with pytest.raises(ExposedPortUnavailableError):
                await session.resolve_exposed_port(80)
            for attempt in (
                session.exec("true", user="nobody"),
                session.read(Path("README.md"), user="nobody"),
                session.write(Path("x"), io.BytesIO(), user="nobody"),
            ):
                with pytest.raises(ValueError, match="other users"):
                    await attempt

    asyncio.run(run())


def test_an_open_runtime_stays_open_and_its_record_has_it_all(
    place: Place, write_policy: Callable[[str], None], recorded: Recorded
):
    async def use(runtime: paddock.Runtime) -> None:
        with PaddockSandboxClient(runtime) as client:
            async with running(client, place.project) as session:
                await session.write(Path("a"), io.BytesIO(b"a"))
                await session.exec("cat a")

    with paddock.open(place.project) as runtime:
        asyncio.run(use(runtime))
        assert not runtime.is_closed
    assert [tool for event, tool, _ in recorded() if event == "TOOL_RESULT"] == [
        "ls", "write_bytes", "exec",
    ]  # fmt: skip
