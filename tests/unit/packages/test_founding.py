"""Founding a plane: under the operator's own word, and over nothing that somebody else left."""

import json
import stat
from pathlib import Path

import pytest

from paddock.assembly.blueprint import bare_plane_blueprint
from paddock.assembly.bootstrap import init_bare_plane
from paddock.errors import ConfigError, UsageError
from paddock.ledger.keys import make_key
from paddock.packages.approvals import exact_scope, make_approval, write_approval
from paddock.packages.bootstrap import load_packages
from paddock.packages.founding import Founding, found
from paddock.packages.installed import read_installed
from paddock.packages.keys import enrol_key, find_operator_key, public_half, read_keys
from paddock.packages.names import PLANE_MARKER
from paddock.packages.refusals import GateRefusedError, OwnershipRefusedError
from paddock.packages.signatures import verify_signature
from paddock.plane.environment import Environment, read_environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.registry import register_bare_plane
from paddock.values.planes import PlaneKind
from tests.support.packages import NOW, Runner, archive_of, open_bench, plane_tree

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
    for name in bare_plane_blueprint("production").directories:
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
        with pytest.raises(ConfigError, match=r"somebody else|has a key"):
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
    with pytest.raises(UsageError, match=r"holds 'HOT/kernel/README.md'"):
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
