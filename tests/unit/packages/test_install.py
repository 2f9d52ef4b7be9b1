"""Installing, upgrading, removing: what stands in the plane afterwards, and what is refused."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.errors import (
    ConfigError,
    HostError,
    IntegrityError,
    LedgerDamagedError,
    SandboxUnavailableError,
    UsageError,
)
from paddock.ledger.signing import make_key
from paddock.packages.change import settle
from paddock.packages.install import InstallWish, install
from paddock.packages.installed import digest_of_set, read_installed
from paddock.packages.ledger import replay
from paddock.packages.manifest import PLANE_MARKER
from paddock.packages.rows import Failure, GateRefusedError, OwnershipRefusedError
from paddock.packages.signing import sign_digest
from paddock.packages.statements import approve
from paddock.storage.disk import Disk
from paddock.values.entries import digest_of
from tests.support.changes import memory_directory
from tests.support.packages import (
    KEY,
    NOW,
    PROGRAM,
    Meddling,
    Runner,
    StoppedError,
    archive_of,
    manifest_of,
    open_bench,
    require_whole,
    stop,
)

FILES = {"HOT/kernel/a.txt": b"a\n", "HOT/scripts/sub/run.sh": PROGRAM}
NEW = {"HOT/kernel/a.txt": b"A\n", "HOT/kernel/new.txt": b"n\n"}
DEV = InstallWish(dev=True)
OTHER = make_key("other/operator", bytes(32))


@pytest.fixture
def bench():
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        yield bench
        require_whole(bench)


def refused_by(gate: str, act) -> tuple:
    with pytest.raises(GateRefusedError) as caught:
        act()
    assert caught.value.gate == gate, caught.value
    return caught.value.failures


# Installing


def test_a_package_is_installed_with_manifest_receipt_and_entry(bench):
    report = bench.install(FILES)

    assert (report.status, report.package_id, report.version) == ("installed", "PKG-A-001", "1.0.0")
    assert (bench.root / "HOT/kernel/a.txt").read_bytes() == b"a\n"
    assert (bench.root / "HOT/kernel/a.txt").stat().st_mode & 0o777 == 0o644
    assert (bench.root / "HOT/scripts/sub/run.sh").stat().st_mode & 0o777 == 0o755
    installed = read_installed(bench.layout).packages["PKG-A-001"]
    assert installed.manifest == manifest_of(FILES)
    assert installed.receipt.ledger_entry == report.ledger_entry
    assert installed.receipt.dev is True
    entry = bench.log().entries[-1]
    assert (entry.id, entry.entry.event_type) == (report.ledger_entry, "PACKAGE_INSTALLED")
    assert entry.entry.metadata["digest"] == manifest_of(FILES).digest
    assert entry.entry.metadata["set_digest"] == digest_of_set([manifest_of(FILES)])
    assert entry.entry.metadata["set_digest"] == read_installed(bench.layout).digest


def test_the_umask_has_no_say(bench):
    before = os.umask(0o077)
    try:
        bench.install(FILES)
    finally:
        os.umask(before)
    assert (bench.root / "HOT/scripts/sub/run.sh").stat().st_mode & 0o777 == 0o755


def test_the_very_digest_again_changes_nothing(bench):
    bench.install(FILES)
    before, events = bench.tree(), bench.events()

    assert bench.install(FILES).status == "unchanged"
    assert (bench.tree(), bench.events()) == (before, events)


def test_a_dry_run_says_what_would_happen_and_does_not_do_it(bench):
    before = bench.tree()

    report = install(bench.depot, archive_of(FILES), replace(DEV, is_dry_run=True))

    assert report.status == "planned"
    assert [change.path for change in report.changes] == [
        "HOT/kernel/a.txt",
        "HOT/scripts/sub/run.sh",
        "HOT/installed/PKG-A-001/manifest.json",
        "HOT/installed/PKG-A-001/receipt.json",
    ]
    assert (bench.tree(), bench.events()) == (before, [])
    assert os.listdir(bench.layout.objects / "packages") == ["lock"]


def test_an_upgrade_replaces_adds_and_removes_in_one_swap(bench):
    bench.install(FILES)

    report = bench.install(NEW, version="1.1.0")

    assert (report.status, report.previous) == ("upgraded", "1.0.0")
    assert {
        change.path: (change.before is None, change.after is None) for change in report.changes
    } == {
        "HOT/kernel/a.txt": (False, False),
        "HOT/kernel/new.txt": (True, False),
        "HOT/scripts/sub/run.sh": (False, True),
        "HOT/installed/PKG-A-001/manifest.json": (False, False),
        "HOT/installed/PKG-A-001/receipt.json": (False, False),
    }
    assert (bench.root / "HOT/kernel/a.txt").read_bytes() == b"A\n"
    assert not (bench.root / "HOT/scripts/sub").exists()
    assert bench.log().entries[-1].entry.metadata["previous"]["version"] == "1.0.0"


def test_another_digest_of_one_version_is_an_upgrade(bench):
    bench.install(FILES)
    assert bench.install(NEW).status == "upgraded"


def test_what_gives_way_is_in_the_history(bench):
    bench.install(FILES)
    version = manifest_of(FILES).by_path["HOT/kernel/a.txt"].sha256
    bench.install(NEW, version="1.1.0")
    assert bench.depot.objects.read(version) == b"a\n"


def test_uninstalling_leaves_the_plane_as_it_was(bench):
    before = bench.tree()
    bench.install(FILES)

    report = bench.uninstall()

    assert report.status == "uninstalled"
    assert bench.tree() == before
    assert bench.events() == ["PACKAGE_INSTALLED", "PACKAGE_UNINSTALLED"]


def test_what_is_not_installed_cannot_be_removed(bench):
    with pytest.raises(UsageError):
        bench.uninstall("PKG-B")
    with pytest.raises(UsageError):
        bench.uninstall("../../x")


def test_a_directory_that_holds_something_else_stays(bench):
    bench.install({"HOT/kernel/sub/a": b"a"})
    (bench.root / "HOT/kernel/sub/mine").write_bytes(b"mine")
    bench.uninstall()
    assert (bench.root / "HOT/kernel/sub/mine").read_bytes() == b"mine"
    os.unlink(bench.root / "HOT/kernel/sub/mine")


def test_a_file_may_become_a_directory_in_an_upgrade(bench):
    bench.install({"HOT/kernel/x": b"file"})
    bench.install({"HOT/kernel/x/y": b"below"}, version="2.0.0")
    assert (bench.root / "HOT/kernel/x/y").read_bytes() == b"below"


# Versions


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0-rc.1"])
def test_a_lower_version_is_refused(version, bench):
    bench.install(FILES)
    before = bench.tree()

    refused_by("G5", lambda: bench.install(NEW, version=version))
    assert bench.tree() == before


def test_a_version_below_the_last_one_is_refused_after_an_uninstall_too(bench):
    bench.install(FILES, version="2.0.0")
    bench.uninstall()

    refused_by("G5", lambda: bench.install(FILES, version="1.9.9"))
    assert bench.install(FILES, version="2.0.0").status == "installed"


def test_another_package_has_versions_of_its_own(bench):
    bench.install(FILES, version="2.0.0")
    other = bench.install({"HOT/kernel/b": b"b"}, package_id="PKG-B", version="0.1.0")
    assert other.status == "installed"
    assert (bench.root / "HOT/kernel/b").read_bytes() == b"b"


# Dependencies


def test_a_dependency_has_to_be_there(bench):
    before = bench.tree()
    refused_by("G3", lambda: bench.install(FILES, dependencies=["PKG-B"]))
    assert bench.tree() == before

    bench.install({"HOT/kernel/b": b"b"}, package_id="PKG-B")
    bench.install(FILES, dependencies=["PKG-B"])


def test_an_upgrade_may_not_close_a_circle(bench):
    bench.install({"HOT/kernel/b": b"b"}, package_id="PKG-B")
    bench.install(FILES, dependencies=["PKG-B"])

    refused_by(
        "G3",
        lambda: bench.install(
            {"HOT/kernel/b": b"b"}, package_id="PKG-B", version="2.0.0", dependencies=["PKG-A-001"]
        ),
    )


def test_what_others_need_is_not_removed(bench):
    bench.install({"HOT/kernel/b": b"b"}, package_id="PKG-B")
    bench.install(FILES, dependencies=["PKG-B"])

    failures = refused_by("G3", lambda: bench.uninstall("PKG-B"))
    assert [failure.file for failure in failures] == ["PKG-A-001"]
    bench.uninstall()
    bench.uninstall("PKG-B")


# What stands there


def test_a_file_that_no_package_brought_is_not_replaced(bench):
    bench.write("HOT/kernel/a.txt", b"mine\n")
    before = bench.tree()

    with pytest.raises(OwnershipRefusedError):
        bench.install(FILES)
    assert (bench.tree(), bench.events()) == (before, [])
    os.unlink(bench.root / "HOT/kernel/a.txt")


def test_a_file_that_is_the_same_already_is_taken_in(bench):
    os.chmod(bench.write("HOT/kernel/a.txt", b"a\n"), 0o600)
    bench.install(FILES)
    assert (bench.root / "HOT/kernel/a.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_nothing_but_a_file_is_replaced(kind, bench):
    path = bench.root / "HOT/kernel/a.txt"
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("../config/admin_config.json")
    else:
        os.mkfifo(path)
    with pytest.raises(OwnershipRefusedError):
        bench.install(FILES)
    path.rmdir() if kind == "directory" else path.unlink()


def test_nothing_is_written_through_a_linked_directory(bench, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    link = bench.root / "HOT/scripts/sub"
    link.symlink_to(tmp_path / "outside")

    with pytest.raises(GateRefusedError):
        bench.install(FILES)
    assert list((tmp_path / "outside").iterdir()) == []
    assert not (bench.root / "HOT/kernel/a.txt").exists()
    link.unlink()


def test_a_lower_tier_brings_nothing_to_the_one_above(bench):
    refused_by("G0B", lambda: bench.install(FILES, plane_id="ho1"))
    bench.install({"HO1/contracts/a.json": b"{}"}, plane_id="ho1")


def test_a_changed_file_is_replaced_by_an_upgrade_and_kept_in_the_history(bench):
    bench.install(FILES)
    bench.write("HOT/kernel/a.txt", b"edited\n")

    report = bench.install(NEW, version="1.1.0")

    assert report.notes == (note_of("HOT/kernel/a.txt", b"edited\n"),)
    assert bench.depot.objects.read(digest_of(b"edited\n")) == b"edited\n"


def note_of(path: str, content: bytes) -> str:
    kept = f"its content is kept in objects as {digest_of(content)}"
    return f"{path} had been changed; {kept}, until the history needs the room"


def test_a_file_that_was_changed_to_what_an_upgrade_brings_gave_way_to_nothing(bench):
    bench.install(FILES)
    bench.write("HOT/kernel/a.txt", NEW["HOT/kernel/a.txt"])
    assert bench.install(NEW, version="1.1.0").notes == ()


@pytest.mark.parametrize("act", ["uninstall", "upgrade"])
def test_a_changed_file_that_goes_away_is_named_and_kept(act, bench):
    bench.install(FILES)
    path = "HOT/scripts/sub/run.sh"
    bench.write(path, b"edited\n")

    report = bench.uninstall() if act == "uninstall" else bench.install(NEW, version="1.1.0")

    assert report.notes == (note_of(path, b"edited\n"),)
    assert bench.depot.objects.read(digest_of(b"edited\n")) == b"edited\n"


def test_a_link_in_the_place_of_a_file_is_named_when_it_goes(bench):
    bench.install(FILES)
    path = bench.root / "HOT/kernel/a.txt"
    path.unlink()
    path.symlink_to("elsewhere")
    assert bench.uninstall().notes == (
        "HOT/kernel/a.txt had been replaced by a link to 'elsewhere', which is gone",
    )


def test_files_that_are_as_they_were_brought_go_without_a_note(bench):
    bench.install(FILES)
    assert bench.install(NEW, version="1.1.0").notes == ()
    assert bench.uninstall().notes == ()


def test_a_missing_file_comes_back_with_an_upgrade(bench):
    bench.install(FILES)
    os.unlink(bench.root / "HOT/kernel/a.txt")
    report = bench.install(NEW, version="1.1.0")
    assert any("was missing" in note for note in report.notes)


def test_a_missing_file_does_not_stop_an_uninstall(bench):
    bench.install(FILES)
    os.unlink(bench.root / "HOT/kernel/a.txt")
    assert bench.uninstall().notes == ("HOT/kernel/a.txt was missing",)


def test_a_stranger_in_the_installed_set_stops_everything(bench):
    (bench.root / "HOT/installed/PKG-X").mkdir()
    refused_by("G0B", lambda: bench.install(FILES))
    (bench.root / "HOT/installed/PKG-X").rmdir()


# Configuration


CONFIG = {"HOT/config/x.json": b"default\n"}


LOCKING = {
    "a policy that is no TOML": ("HOT/config/policy.toml", b"[paths"),
    "a policy with a rule that is none": (
        "HOT/config/policy.toml",
        b"[profiles.admin]\nallow = 1\n",
    ),
    "a policy that is too long": ("HOT/config/policy.toml", b"#" * 1_000_001),
    "a policy in JSON that is none": ("HOT/config/policy.json", b"{"),
    "an admin who is none": ("HOT/config/admin_config.json", b'{"tool_profile": "all"}'),
    "a contract that is too long": ("HO1/contracts/PRC-A-001.json", b" " * 262_145),
    "a directory as a contract": ("HO1/contracts/PRC-A-001.json/x", b"{}"),
}


@pytest.mark.parametrize(("path", "content"), LOCKING.values(), ids=LOCKING)
@pytest.mark.parametrize("is_config", [True, False])
def test_what_no_command_could_load_is_not_installed(bench, path, content, is_config):
    # Threat: the plane would be locked, and the package could not be taken out again.
    if path == PLANE_MARKER:
        before = bench.root / path
        brought = before.read_bytes()
        bench.install({path: brought}, config=(path,), package_id="PKG-GIVER")
        fields = {"version": "2.0.0", "package_id": "PKG-GIVER"}
        brought_by = ["PKG-GIVER"]
    else:
        fields, brought_by = {}, []
    tree, told = bench.tree(), bench.events()
    files = {"HOT/kernel/a.txt": b"a\n", path: content}
    config = (path,) if is_config else ()
    for wish in (DEV, replace(DEV, is_dry_run=True)):
        act = partial(bench.install, files, wish, config=config, **fields)
        (failure,) = refused_by("G0B", act)
        assert failure.file == path
        assert (bench.tree(), bench.events()) == (tree, told)
    assert sorted(read_installed(bench.layout).packages) == brought_by


def test_a_policy_that_loads_is_installed_and_a_second_one_is_not(bench):
    toml, json = (
        {f"HOT/config/policy.{kind}": text} for kind, text in (("toml", b""), ("json", b"{}"))
    )
    bench.install(toml, config=toml)
    before = bench.tree()
    (failure,) = refused_by(
        "G0B", lambda: bench.install(json, package_id="PKG-SECOND", config=json)
    )
    assert failure == Failure("HOT/config/policy.json", "the plane would have two policies")
    assert bench.tree() == before
    # An upgrade may bring the one in the place of the other.
    bench.install(json, config=json, version="2.0.0")
    assert not (bench.root / "HOT/config/policy.toml").exists()
    assert (bench.root / "HOT/config/policy.json").read_bytes() == b"{}"


def test_a_policy_that_an_operator_edited_stays_whatever_the_package_brings(bench):
    files = {"HOT/config/policy.toml": b""}
    bench.install(files, config=files)
    bench.write("HOT/config/policy.toml", b"# mine\n")
    bench.install({"HOT/config/policy.toml": b"[paths"}, config=files, version="2.0.0")
    assert (bench.root / "HOT/config/policy.toml").read_bytes() == b"# mine\n"


def test_configuration_that_is_there_already_is_taken_over_as_it_is(bench):
    bench.write("HOT/config/x.json", b"mine\n")
    bench.install(CONFIG, config=CONFIG)
    assert (bench.root / "HOT/config/x.json").read_bytes() == b"mine\n"


def test_an_upgrade_leaves_edited_configuration_and_renews_the_rest(bench):
    bench.install({**CONFIG, "HOT/config/y": b"1\n"}, config=(*CONFIG, "HOT/config/y"))
    bench.write("HOT/config/x.json", b"edited\n")

    report = bench.install(
        {"HOT/config/x.json": b"new default\n", "HOT/config/y": b"2\n"},
        config=(*CONFIG, "HOT/config/y"),
        version="1.1.0",
    )

    assert (bench.root / "HOT/config/x.json").read_bytes() == b"edited\n"
    assert (bench.root / "HOT/config/y").read_bytes() == b"2\n"
    assert report.notes == ("HOT/config/x.json is configuration, and was kept",)


def test_configuration_goes_with_its_package_and_stays_in_the_history(bench):
    bench.install(CONFIG, config=CONFIG)
    bench.write("HOT/config/x.json", b"edited\n")
    bench.uninstall()
    assert not (bench.root / "HOT/config/x.json").exists()


def test_the_planes_marker_is_not_taken_away(bench):
    name = "HOT/config/admin_config.json"
    bench.install({name: b"{}\n", "HOT/kernel/a": b"a"}, config=(name,))

    refused_by("G0B", bench.uninstall)
    refused_by("G0B", lambda: bench.install({"HOT/kernel/a": b"a"}, version="2.0.0"))
    assert (bench.root / name).read_bytes() == b"{}\n"


# Acceptance

TESTED = [{"command": "pass", "timeout_s": 5}]
FAILING = [*TESTED, {"command": "fail", "timeout_s": 5}]


def test_acceptance_commands_run_before_anything_changes():
    seen = []

    def look(staged):
        seen.append(
            {each.path: each.after.content for each in staged if each.after}.get("HOT/kernel/a.txt")
        )
        seen.append((bench.tree() == before, bench.events()))

    with memory_directory() as base, open_bench(base / "plane", Runner(look)) as bench:
        before = bench.tree()
        report = bench.install(FILES, acceptance=TESTED)
        assert seen == [b"a\n", (True, [])]
        assert [result.passed for result in report.acceptance] == [True]
        assert bench.log().entries[-1].entry.metadata["acceptance"] == [
            {"command": "pass", "passed": True, "exit_code": 0, "duration_ms": 0}
        ]
        require_whole(bench)


def test_what_an_upgrade_takes_away_is_taken_away_for_its_tests():
    seen = []

    def look(staged):
        seen.append(tuple(each.path for each in staged if each.after is None))

    with memory_directory() as base, open_bench(base / "plane", Runner(look)) as bench:
        bench.install(FILES)
        bench.install(NEW, version="1.1.0", acceptance=TESTED)
    assert seen == [("HOT/scripts/sub/run.sh",)]


@pytest.mark.parametrize("acceptance", [FAILING, FAILING[1:]])
def test_a_command_that_fails_stops_the_install(acceptance, bench):
    before = bench.tree()
    refused_by("G4", lambda: bench.install(FILES, acceptance=acceptance))
    assert (bench.tree(), bench.events()) == (before, [])


def test_a_command_that_fails_stops_an_upgrade(bench):
    bench.install(FILES)
    bench.write("HOT/kernel/a.txt", b"edited\n")
    os.unlink(bench.root / "HOT/scripts/sub/run.sh")
    os.symlink("somewhere", bench.root / "HOT/scripts/sub/run.sh")
    before = bench.tree()

    refused_by("G4", lambda: bench.install(NEW, version="1.1.0", acceptance=FAILING))

    assert bench.tree() == before
    bench.install(NEW, version="1.1.0", acceptance=TESTED)


def test_without_a_sandbox_nothing_that_is_to_be_tested_is_installed():
    with memory_directory() as base, open_bench(base / "plane") as bench:
        before = bench.tree()
        with pytest.raises(SandboxUnavailableError):
            bench.install(FILES, acceptance=TESTED)
        assert bench.tree() == before
        require_whole(bench)


def test_an_interrupted_acceptance_stops_the_install():
    def interrupt(_staged):
        raise KeyboardInterrupt

    with memory_directory() as base, open_bench(base / "plane", Runner(interrupt)) as bench:
        before = bench.tree()
        with pytest.raises(KeyboardInterrupt):
            bench.install(FILES, acceptance=TESTED)
        assert bench.tree() == before
        require_whole(bench)


def test_what_somebody_writes_while_it_is_tested_stops_the_swap():
    def meddle(_staged):
        bench.write("HOT/kernel/a.txt", b"newer\n")

    with memory_directory() as base, open_bench(base / "plane", Runner(meddle)) as bench:
        with pytest.raises(HostError, match="meanwhile"):
            bench.install(FILES, acceptance=TESTED)
        assert (bench.root / "HOT/kernel/a.txt").read_bytes() == b"newer\n"
        assert not (bench.root / "HOT/scripts/sub").exists()
        assert (read_installed(bench.layout).packages, bench.events()) == ({}, [])


def test_an_approval_is_not_used_by_an_install_that_fails_its_tests(bench):
    archive = archive_of(FILES, acceptance=FAILING)
    approve(bench.depot, archive.manifest, KEY, (), 60)
    for _ in range(2):
        refused_by("G4", lambda: install(bench.depot, archive, InstallWish()))


# Approvals and signatures


@pytest.fixture
def approved(bench):
    """A plane with a key, and the package approved."""
    approve(bench.depot, manifest_of(FILES), KEY, (), 60)
    return bench


def plain(bench, files=None, **fields):
    return install(bench.depot, archive_of(files or FILES, **fields), InstallWish())


def test_without_an_approval_nothing_is_installed(bench):
    before = bench.tree()
    refused_by("G2", lambda: plain(bench))
    assert (bench.tree(), bench.events()) == (before, [])


def test_an_approved_package_is_installed_and_names_its_approval(approved):
    report = plain(approved)

    entry = approved.log().entries[-1].entry
    assert report.wo_id == entry.metadata["wo_id"] == entry.submission_id
    assert entry.metadata["dev"] is False
    receipt = read_installed(approved.layout).packages["PKG-A-001"].receipt
    assert (receipt.wo_id, receipt.dev) == (report.wo_id, False)
    assert (approved.layout.registries / "approvals" / f"{report.wo_id}.json").exists()


def test_the_first_approval_brings_the_operators_key_on_record(bench):
    made = approve(bench.depot, manifest_of(FILES), KEY, (), 60)

    assert made.enrolled
    assert bench.events() == ["OPERATOR_KEY_ENROLLED", "PACKAGE_SET_SIGNED"]
    assert not approve(bench.depot, manifest_of(FILES), KEY, (), 60).enrolled


def test_a_strangers_key_approves_nothing(approved):
    with pytest.raises(ConfigError):
        approve(approved.depot, manifest_of(NEW), OTHER, (), 60)


def test_an_approval_is_used_once(approved):
    plain(approved)
    approved.uninstall()
    failures = refused_by("G2", lambda: plain(approved))
    assert "used already" in failures[0].reason


def test_an_approval_whose_file_was_put_back_stays_used(approved):
    file = next((approved.layout.registries / "approvals").iterdir())
    content = file.read_bytes()
    plain(approved)
    approved.uninstall()
    file.unlink()
    file.write_bytes(content)
    refused_by("G2", lambda: plain(approved))


def test_an_approval_expires(approved):
    approved.clock[0] = NOW + 61
    failures = refused_by("G2", lambda: plain(approved))
    assert "expired" in failures[0].reason


def test_an_approval_of_another_digest_does_not_count(approved):
    refused_by("G2", lambda: plain(approved, NEW))


def test_an_approval_holds_within_its_scope_alone(bench):
    approve(bench.depot, manifest_of(FILES), KEY, ("HOT/kernel/**",), 60)
    failures = refused_by("G2", lambda: plain(bench))
    assert "scope" in failures[0].reason
    approve(bench.depot, manifest_of(FILES), KEY, ("HOT/**",), 60)
    plain(bench)


def test_the_scope_covers_what_an_upgrade_takes_away(approved):
    plain(approved)
    approve(approved.depot, manifest_of(NEW, version="1.1.0"), KEY, tuple(NEW), 60)
    refused_by("G2", lambda: plain(approved, NEW, version="1.1.0"))
    approve(approved.depot, manifest_of(NEW, version="1.1.0"), KEY, (), 60)
    plain(approved, NEW, version="1.1.0")


def test_of_several_approvals_the_one_that_expires_first_is_used(bench):
    late = approve(bench.depot, manifest_of(FILES), KEY, (), 600).approval
    early = approve(bench.depot, manifest_of(FILES), KEY, (), 60).approval
    assert plain(bench).wo_id == early.wo_id
    bench.uninstall()
    assert plain(bench).wo_id == late.wo_id


def test_a_plane_that_was_made_for_development_asks_for_nothing(bench):
    report = install(bench.depot, archive_of(FILES), InstallWish(plane_is_dev=True))
    assert (report.status, report.wo_id) == ("installed", None)


def test_an_install_without_approval_is_approved_afterwards(bench):
    bench.install(FILES)
    assert replay(bench.log().entries).approval_of("PKG-A-001", manifest_of(FILES).digest) is None

    made = approve(bench.depot, manifest_of(FILES), KEY, (), 60)

    assert made.settles_install
    assert bench.events()[-1] == "PACKAGE_APPROVED"
    assert (
        replay(bench.log().entries).approval_of("PKG-A-001", manifest_of(FILES).digest)
        == made.approval.wo_id
    )
    assert not approve(bench.depot, manifest_of(FILES), KEY, (), 60).settles_install
    bench.uninstall()
    # The second approval is still unused, the first is not.
    assert plain(bench).wo_id != made.approval.wo_id


def test_an_approval_that_is_too_narrow_settles_no_install(bench):
    bench.install(FILES)
    assert not approve(bench.depot, manifest_of(FILES), KEY, ("HOT/kernel/**",), 60).settles_install


def test_a_signature_that_comes_along_has_to_hold(approved):
    digest = manifest_of(FILES).digest
    archive = archive_of(FILES)
    for key, signed in ((OTHER, digest), (KEY, manifest_of(NEW).digest)):
        wish = InstallWish(signature=sign_digest(key, signed))
        refused_by("G5", partial(install, approved.depot, archive, wish))
    install(approved.depot, archive, InstallWish(signature=sign_digest(KEY, digest)))
    receipt = read_installed(approved.layout).packages["PKG-A-001"].receipt
    assert receipt.signature == sign_digest(KEY, digest)


# The ledger


def test_a_damaged_ledger_stops_everything(approved):
    plain(approved)
    path = approved.depot.ledger.path
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"wo_id":"WO-', b'"wo_id":"WX-', 1))
    with pytest.raises(LedgerDamagedError):
        approved.uninstall()
    path.write_bytes(good)


def test_a_ledger_that_is_gone_stops_everything(approved):
    plain(approved)
    path = approved.depot.ledger.path
    path.rename(path.with_suffix(".away"))
    with pytest.raises(LedgerDamagedError):
        approved.install(NEW, version="2.0.0")
    path.with_suffix(".away").rename(path)


def test_one_change_is_made_at_a_time(bench, monkeypatch):
    monkeypatch.setattr("paddock.limits.path_lock_timeout_s", 0.05)
    with bench.depot.pending.locked(), pytest.raises(HostError, match="locked"):
        bench.install(FILES)


def test_a_file_that_changes_between_look_and_swap_stops_the_swap():
    """The set expects exactly what was seen."""
    with memory_directory() as base:
        with open_bench(base / "plane", Runner()) as bench:
            bench.install(FILES)
            before = bench.tree()
        disk = Meddling(base / "plane/HOT/kernel/a.txt", b"somebody else's\n")
        with open_bench(base / "plane", Runner(), disk) as bench:
            disk.is_armed = True
            with pytest.raises(HostError, match="meanwhile"):
                bench.install(NEW, version="1.1.0")
            (bench.root / "HOT/kernel/a.txt").write_bytes(b"a\n")
            assert bench.tree() == before
            require_whole(bench)


@pytest.mark.parametrize("is_on_record", [True, False])
def test_a_change_that_was_stopped_after_the_swap_is_completed_and_recorded_once(is_on_record):
    with memory_directory() as base:
        with (
            open_bench(base / "plane", before_entry=stop) as bench,
            pytest.raises(StoppedError),
        ):
            bench.install(FILES)
        with open_bench(base / "plane") as bench:
            if is_on_record:
                bench.depot.ledger.append(bench.depot.pending.read().changes[0].entry)
            refused = read_installed(bench.layout).problems
            assert ["has no entry of it yet" in each.reason for each in refused] == [True]

            assert settle(bench.depot) == "PKG-A-001"

            assert bench.events() == ["PACKAGE_INSTALLED"]
            require_whole(bench)


def test_an_uninstall_that_was_stopped_after_the_swap_is_completed():
    with memory_directory() as base:
        with open_bench(base / "plane") as bench:
            before = bench.tree()
            bench.install(FILES)
        with (
            open_bench(base / "plane", before_entry=stop) as bench,
            pytest.raises(StoppedError),
        ):
            bench.uninstall()
        with open_bench(base / "plane") as bench:
            assert settle(bench.depot) == "PKG-A-001"
            assert (bench.tree(), bench.events()) == (
                before,
                ["PACKAGE_INSTALLED", "PACKAGE_UNINSTALLED"],
            )
            require_whole(bench)


class WithoutRecord(Disk):
    """Gives no file the record's name."""

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        if to == "transaction.json":
            raise OSError(errno.EIO, "it is broken")
        super().move_new(from_fd, name, to_fd, to)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_change_whose_swap_fails_never_was(is_there):
    """It fails at its last name, the record's: everything is put back, and no record tells of it."""
    with memory_directory() as base:
        with open_bench(base / "plane") as bench:
            if is_there:
                bench.install(FILES)
            before, events = bench.tree(), bench.events()
        with (
            open_bench(base / "plane", disk=WithoutRecord()) as bench,
            pytest.raises(HostError),
        ):
            bench.install(NEW, version="1.1.0")
        with open_bench(base / "plane") as bench:
            assert settle(bench.depot) is None
            assert (bench.tree(), bench.events()) == (before, events)
            require_whole(bench)


def test_a_receipt_that_tells_nothing_is_written_anew():
    """Nobody but a package's own change touches it, and the record says what was to stand there."""
    with memory_directory() as base:
        with (
            open_bench(base / "plane", before_entry=stop) as bench,
            pytest.raises(StoppedError),
        ):
            bench.install(FILES)
        with open_bench(base / "plane") as bench:
            bench.write("HOT/installed/PKG-A-001/receipt.json", b"{}\n")
            assert settle(bench.depot) == "PKG-A-001"
            require_whole(bench)


def test_a_record_of_another_version_stops_everything(bench):
    """It was written before its swap, and tells of none."""
    path = bench.root / "objects/packages/transaction.json"
    path.parent.mkdir()
    path.write_text('{"format": 2}')
    with pytest.raises(IntegrityError, match="another version"):
        bench.install(FILES)
    assert bench.events() == []
    path.unlink()
