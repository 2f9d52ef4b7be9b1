"""Founding a plane: under the operator's own word, and over nothing that somebody else left."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from paddock import limits
from paddock.assembly.bootstrap import bare_plane_blueprint, init_bare_plane
from paddock.assembly.packages import is_development_plane
from paddock.assembly.project_open import open_project
from paddock.errors import ConfigError, UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.signing import make_key
from paddock.packages.bootstrap import Founding, found, load_packages
from paddock.packages.installed import read_installed
from paddock.packages.ledger import PackageLedger, find_deviations, replay
from paddock.packages.manifest import PLANE_MARKER
from paddock.packages.rows import GateRefusedError, OwnershipRefusedError
from paddock.packages.signing import (
    enrol_key,
    exact_scope,
    find_operator_key,
    make_approval,
    public_half,
    read_keys,
    verify_signature,
    write_approval,
)
from paddock.plane.discover import register_bare_plane
from paddock.plane.environment import Environment, read_environment
from paddock.plane.layout import BARE_DIRECTORIES, PlaneLayout
from paddock.values.decisions import PlaneKind
from tests.support.packages import (
    NOW,
    Runner,
    StoppedError,
    archive_of,
    open_bench,
    plane_tree,
    require_whole,
)

STRANGER = make_key("stranger/operator", b"x" * 32)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    (tmp_path / "home").mkdir()
    return read_environment({"HOME": str(tmp_path / "home")})


@pytest.fixture
def plane(tmp_path: Path) -> Path:
    return tmp_path / "plane"


def left_behind(plane: Path) -> PlaneLayout:
    """What looks as if an `init` had been stopped there."""
    for name in BARE_DIRECTORIES:
        (plane / name).mkdir(parents=True, mode=0o700, exist_ok=True)
    return PlaneLayout(plane, PlaneKind.BARE)


def test_each_package_is_approved_and_signed_by_the_operators_own_key(environment, plane):
    init_bare_plane(plane, environment, "production")
    layout = PlaneLayout(plane, PlaneKind.BARE)
    own = find_operator_key(environment)
    assert own is not None
    keys = read_keys(layout)
    assert set(keys) == {public_half(own).key_id}
    packages = read_installed(layout).packages.values()
    assert len(packages) == len(load_packages())
    used = [package.receipt.wo_id for package in packages]
    assert len(set(used)) == len(used)
    for package in packages:
        assert package.receipt.signature is not None
        verify_signature(package.receipt.signature, package.manifest.digest, keys)
    key_file = environment.config_home / "keys/operator.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    secret = key_file.read_bytes().split(b"+", 4)[4].strip()
    assert not any(secret in path.read_bytes() for path in plane.rglob("*") if path.is_file())


def test_a_key_that_somebody_else_left_there_founds_nothing(environment, plane):
    """Threat: it would be an operator's of the new plane."""
    layout = left_behind(plane)
    enrol_key(layout, public_half(STRANGER))
    before = plane_tree(plane)
    with pytest.raises(UsageError, match="neither empty nor a bare plane"):
        init_bare_plane(plane, environment, "production")
    assert plane_tree(plane) == before
    # Even where we know the place: what stands there is not ours.
    register_bare_plane(plane, environment)
    for profile in ("production", "development"):
        with pytest.raises(ConfigError, match=r"another operator's key|a key or an approval"):
            init_bare_plane(plane, environment, profile)
        assert not (plane / PLANE_MARKER).exists()
        assert read_installed(layout).packages == {}


def test_an_approval_that_somebody_else_left_there_is_not_taken_up(environment, plane):
    layout = left_behind(plane)
    register_bare_plane(plane, environment)
    archive = load_packages()[0]
    paths = exact_scope(archive.manifest.by_path)
    forged = make_approval(STRANGER, "WO-" + "0" * 32, archive.manifest.digest, paths, NOW * 2)
    write_approval(layout, forged)
    init_bare_plane(plane, environment, "production")
    used = {each.receipt.wo_id for each in read_installed(layout).packages.values()}
    assert forged.wo_id not in used


def test_a_file_of_a_package_that_somebody_wrote_there_before_is_not_taken_over(environment, plane):
    left_behind(plane)
    register_bare_plane(plane, environment)
    (plane / "HOT/kernel/README.md").write_bytes(b"mine\n")
    with pytest.raises(UsageError, match=r"contains 'HOT/kernel/README.md'"):
        init_bare_plane(plane, environment, "production")
    assert (plane / "HOT/kernel/README.md").read_bytes() == b"mine\n"


def test_a_development_plane_has_receipts_without_anybodys_word(environment, plane):
    init_bare_plane(plane, environment, "development")
    layout = PlaneLayout(plane, PlaneKind.BARE)
    for package in read_installed(layout).packages.values():
        assert (package.receipt.dev, package.receipt.wo_id, package.receipt.signature) == (
            True,
            None,
            None,
        )
    assert read_keys(layout) == {}
    assert find_operator_key(environment) is None
    shipped = json.loads(bare_plane_blueprint("production").config)
    assert json.loads((plane / PLANE_MARKER).read_bytes()) == {
        **shipped,
        "tool_profile": "development",
    }


def test_a_second_init_by_somebody_without_a_key_makes_none(environment, plane, tmp_path):
    init_bare_plane(plane, environment, "production")
    (tmp_path / "other").mkdir()
    other = read_environment({"HOME": str(tmp_path / "other")})
    made, _ = init_bare_plane(plane, other, "production")
    assert made.made == ()
    assert find_operator_key(other) is None


# What stands there may be a founding that was stopped, or a plane that lost its configuration


def stop(plane: Path, environment: Environment, profile: str) -> PlaneLayout:
    """As an `init` leaves it that was killed before its last file."""
    init_bare_plane(plane, environment, profile)
    layout = PlaneLayout(plane, PlaneKind.BARE)
    layout.admin_config.unlink()
    for path in layout.ledger_paths()["governance"].parent.glob("governance*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return layout


def whole_tree(plane: Path) -> dict[str, bytes]:
    """Ledgers, keys and approvals too; not what programs keep beside them."""
    files = (path for path in plane.rglob("*") if path.is_file())
    named = {path.relative_to(plane).as_posix(): path.read_bytes() for path in files}
    return {name: content for name, content in named.items() if ".d/" not in name}


@pytest.mark.parametrize("profile", ["production", "development"])
def test_a_plane_that_lost_its_configuration_gets_no_default_one(environment, plane, profile):
    """Threat: it grants what the operator took away, and installs what nobody approved anew."""
    init_bare_plane(plane, environment, profile)
    config = (plane / PLANE_MARKER).read_bytes()
    (plane / PLANE_MARKER).unlink()
    (plane / "HO2/kernel/README.md").unlink()
    before = whole_tree(plane)
    for each in ("production", "development"):
        with pytest.raises(ConfigError, match="lost its HOT/config/admin_config.json") as refused:
            init_bare_plane(plane, environment, each)
        assert refused.value.hint.startswith("restore that file from a backup")
        assert whole_tree(plane) == before
    (plane / PLANE_MARKER).write_bytes(config)
    made, _ = init_bare_plane(plane, environment, profile)
    assert made.made == ()


def test_an_approval_that_a_founding_used_installs_nothing_again(environment, plane):
    """Threat: the used approvals of a plane whose governance ledger is gone as well."""
    layout = stop(plane, environment, "production")
    removed = plane / "HO2/kernel/README.md"
    content = removed.read_bytes()
    removed.unlink()
    before = whole_tree(plane)
    with pytest.raises(ConfigError, match=r"'HO2/kernel/README.md' differs from the recorded set"):
        init_bare_plane(plane, environment, "production")
    assert whole_tree(plane) == before
    removed.write_bytes(content)
    removed.chmod(0o644)
    init_bare_plane(plane, environment, "production")
    assert layout.admin_config.exists()


def test_a_package_that_was_taken_out_does_not_come_back_without_a_record(tmp_path):
    archive = archive_of({"HOT/kernel/a.txt": b"a\n"})
    founding = Founding((archive,), None, frozenset())
    with open_bench(tmp_path / "plane", Runner()) as bench:
        found(bench.depot, founding)
        bench.uninstall()
        before, told = bench.tree(), bench.events()
        with pytest.raises(ConfigError, match="PKG-A-001 was uninstalled"):
            found(bench.depot, founding)
        assert (bench.tree(), bench.events()) == (before, told)


@pytest.mark.parametrize(
    ("stopped", "other", "how"),
    [("development", "production", "with"), ("production", "development", "without")],
)
def test_a_stopped_init_goes_on_under_the_word_that_it_began_with(
    environment, plane, stopped, other, how
):
    layout = stop(plane, environment, stopped)
    before = whole_tree(plane)
    with pytest.raises(ConfigError, match=f"an init {how} --dev was interrupted here") as refused:
        init_bare_plane(plane, environment, other)
    assert "nothing was changed" in refused.value.hint
    assert whole_tree(plane) == before
    init_bare_plane(plane, environment, stopped)
    assert find_deviations(replay(log_of(layout)), read_installed(layout)) == ()


def test_a_stopped_init_goes_on_under_its_approvals_when_their_time_is_over(tmp_path):
    archive = archive_of({"HOT/kernel/a.txt": b"a\n"})
    founding = Founding((archive,), STRANGER, frozenset())
    with open_bench(tmp_path / "plane", Runner()) as bench:
        found(bench.depot, founding)
        before = bench.tree()
        bench.clock[0] += limits.plane_approval_expires_s + 1
        assert found(bench.depot, founding) == ()
        assert bench.tree() == before
        installed = read_installed(bench.layout)
        assert find_deviations(replay(bench.log().entries), installed) == ()


@pytest.mark.parametrize("on_record", [0, 1, 2])
def test_a_founding_that_was_stopped_while_it_was_told_is_recorded_once(tmp_path, on_record):
    archives = tuple(
        archive_of({f"HOT/kernel/{name}": b"x"}, package_id=name) for name in ("PKG-A", "PKG-B")
    )
    founding = Founding(archives, None, frozenset())
    opened = iter((None, StoppedError))

    def stop_the_second_time() -> None:
        if next(opened) is not None:
            raise StoppedError

    plane = tmp_path / "plane"
    with open_bench(plane, before_entry=stop_the_second_time) as bench:
        with pytest.raises(StoppedError):
            found(bench.depot, founding)
        changes = bench.depot.pending.read().changes
    with open_bench(plane) as bench:
        for change in changes[:on_record]:
            bench.depot.ledger.append(change.entry)
        assert found(bench.depot, founding) == ()
        assert bench.events() == ["PACKAGE_INSTALLED"] * 2
        require_whole(bench)


def log_of(layout: PlaneLayout) -> tuple[StoredEntry, ...]:
    return PackageLedger(layout.ledger_paths()["packages"], lambda: None).read().entries


@pytest.mark.parametrize("profile", ["production", "development"])
def test_how_a_plane_was_made_does_not_hang_on_a_configuration_that_nobody_recorded(
    environment, plane, profile
):
    """Threat: `init` is killed before its first record, and the dual gate is opened meanwhile."""
    stop(plane, environment, profile)
    other = {"production": "development", "development": "production"}[profile]
    (plane / PLANE_MARKER).write_bytes(bare_plane_blueprint(other).config)
    project = open_project(plane, environment, plane)
    assert project.gate.tool_profile == other
    assert is_development_plane(project) is (profile == "development")


# The questions of every install are asked


@pytest.mark.parametrize(
    ("fields", "gate"),
    [
        ({"dependencies": ["PKG-NOWHERE"]}, "G3"),
        ({"plane_id": "ho1"}, "G0B"),
    ],
)
def test_packages_that_no_install_would_take_found_nothing(tmp_path, fields, gate):
    archive = archive_of({"HOT/kernel/a.txt": b"a\n"}, **fields)
    with open_bench(tmp_path / "plane", Runner()) as bench:
        before = bench.tree()
        with pytest.raises(GateRefusedError) as refused:
            found(bench.depot, Founding((archive,), None, frozenset()))
        assert refused.value.gate == gate
        assert bench.tree() == before


def test_two_packages_never_bring_one_file(tmp_path):
    twice = tuple(
        archive_of({"HOT/kernel/a.txt": b"a\n"}, package_id=name) for name in ("PKG-A", "PKG-B")
    )
    near = (twice[0], archive_of({"HOT/kernel/A.txt": b"a\n"}, package_id="PKG-B"))
    for archives in (twice, near):
        with open_bench(tmp_path / "plane", Runner()) as bench:
            before = bench.tree()
            with pytest.raises(GateRefusedError, match="G0B"):
                found(bench.depot, Founding(archives, None, frozenset()))
            assert bench.tree() == before


def test_what_stands_in_a_place_of_theirs_is_not_written_over(tmp_path):
    archive = archive_of({"HOT/kernel/a.txt": b"a\n"})
    with open_bench(tmp_path / "plane", Runner()) as bench:
        bench.write("HOT/kernel/a.txt", b"mine\n")
        with pytest.raises(OwnershipRefusedError):
            found(bench.depot, Founding((archive,), None, frozenset()))
        assert (bench.root / "HOT/kernel/a.txt").read_bytes() == b"mine\n"
        assert read_installed(bench.layout).packages == {}
        assert bench.log().entries == ()
