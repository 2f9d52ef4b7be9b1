"""The bootstrap: packages that say what the code says, and an archive that is the same anywhere."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import jsonschema
import pytest

import paddock
from paddock.agent.contracts import default_contracts, load_contracts
from paddock.errors import ConfigError, UsageError
from paddock.packages.archive import PackedFile, read_members, write_hashes, write_members
from paddock.packages.bootstrap import (
    INDEX,
    SOURCES,
    build_bootstrap,
    find_differences,
    load_packages,
    read_unpacked,
)
from paddock.packages.manifest import place_problem
from paddock.packages.rows import ArchiveRefusedError, Failure
from paddock.values.entries import digest_of
from scripts.bootstrap_sources import generated_files
from tests.support.bad_archives import made
from tests.support.disks import tree
from tests.support.planes import operator_in
from tests.support.repository import ROOT
from tests.support.users import give_to_plain_user, run_as_plain_user

PACKAGE = Path(paddock.__file__).parent
BUILD = """
import locale, os, sys
sys.path.insert(0, sys.argv[1])
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
from paddock.packages.bootstrap import build_bootstrap
from paddock.values.entries import digest_of
print(digest_of(build_bootstrap()))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this program: nobody edits it while a test builds it twice."""
    copy = tmp_path_factory.mktemp("src") / "paddock"
    return shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(scope="module")
def archive(program: Path) -> bytes:
    return build_bootstrap(program)


def unpack(content: bytes, directory: Path) -> Path:
    """As a person does it."""
    directory.mkdir(mode=0o755)
    tar = ["tar", "--no-same-owner", "-xzf", "-", "-C", str(directory)]
    subprocess.run(tar, input=content, check=True, umask=0o022)
    return directory


# The packages say what the code says


def test_what_the_code_says_itself_stands_in_the_packages():
    stale = [
        name
        for name, content in generated_files().items()
        if (SOURCES / name).read_bytes() != content
    ]
    assert stale == [], "run scripts/write-bootstrap"


def test_every_hash_in_the_sources_is_fresh():
    for source in sorted(SOURCES.iterdir()):
        assert write_hashes(source, check=True).stale == (), "run scripts/write-bootstrap"


def test_the_contracts_in_the_packages_are_the_built_in_ones():
    found = load_contracts(SOURCES / "PKG-CONTRACTS-001/HO1/contracts")
    for default in default_contracts():
        own = found.get(default.contract_id)
        assert own.digest != default.digest
        assert (own.input_schema, own.output_schema, own.template, own.boundary) == (
            default.input_schema,
            default.output_schema,
            default.template,
            default.boundary,
        )


def test_what_python_needs_is_what_the_project_declares():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    listed = (PACKAGE / "bootstrap/requirements.txt").read_text().splitlines()
    assert [line for line in listed if not line.startswith("#")] == declared


def test_packages_come_in_an_order_in_which_each_can_be_installed():
    known: set[str] = set()
    for each in load_packages():
        assert known >= set(each.manifest.dependencies)
        known.add(each.manifest.package_id)
        for asset in each.manifest.assets:
            assert place_problem(asset.path, each.manifest.plane_id) == ""
        assert {file.mode for file in each.files} == {0o644}
    assert known == {path.name for path in SOURCES.iterdir()}


def test_every_package_explains_itself_and_some_test_themselves():
    archives = load_packages()
    assert sum(bool(each.manifest.acceptance) for each in archives) >= 6
    for each in archives:
        assert len(each.manifest.description) > 40
        for file in each.files:
            assert file.content.endswith(b"\n")
            assert file.content.decode("utf-8")


def test_every_file_of_a_plane_has_a_schema_that_it_fits(tmp_path):
    plane = operator_in(tmp_path).make().plane
    schemas = plane / "HOT/schemas"
    fits = {
        "admin_config": "HOT/config/admin_config.json",
        "manifest": "HOT/installed/*/manifest.json",
        "receipt": "HOT/installed/*/receipt.json",
        "approval": "HOT/registries/approvals/*.json",
        "operator_key": "HOT/registries/keys/*.json",
        "spec": "HOT/registries/specs/*.json",
        "framework": "HOT/registries/frameworks/*.json",
        "prompt_contract": "HO1/contracts/*.json",
    }
    for name, pattern in fits.items():
        schema = json.loads((schemas / f"{name}.schema.json").read_bytes())
        jsonschema.Draft202012Validator.check_schema(schema)
        judge = jsonschema.Draft202012Validator(schema)
        files = list(plane.glob(pattern))
        assert files
        for file in files:
            value = json.loads(file.read_bytes())
            judge.validate(value)
            assert not judge.is_valid({**value, "unknown": 1})
    receipt = json.loads(next(plane.glob(fits["receipt"])).read_bytes())
    signature = json.loads((schemas / "signature.schema.json").read_bytes())
    jsonschema.Draft202012Validator(signature).validate(receipt["signature"])
    assert {path.name.removesuffix(".schema.json") for path in schemas.glob("*.json")} == {
        *fits,
        "signature",
    }


# One source, one archive


def test_the_archive_is_read_by_tar_and_holds_only_plain_files(archive, tmp_path):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = tar.getmembers()
    assert all(member.isreg() and member.mode in (0o644, 0o755) for member in members)
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {
        (0, 0, 0, "")
    }
    names = [member.name for member in members]
    assert names == sorted(names, key=str.encode)
    top = {name for name in names if "/" not in name}
    assert top == {"README.md", "bootstrap.json", "install.sh", "paddock", "requirements.txt"}
    assert {member.name for member in members if member.mode == 0o755} == {"install.sh", "paddock"}


def test_the_same_source_makes_the_same_bytes_under_another_everything(archive, program, tmp_path):
    """Place, order of files, modes, times, umask, locale, time zone, hash seed and user."""
    copy = tmp_path / "elsewhere" / "paddock"
    copy.parent.mkdir()
    for path in sorted(program.rglob("*"), reverse=True):
        target = copy / path.relative_to(program)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o777 if path.suffix == ".py" else 0o600)
            os.utime(target, (1_000_000_000, 2_000_000_000))
    (copy / ".DS_Store").write_bytes(b"litter")
    (copy / "packages/__pycache__").mkdir(exist_ok=True)
    (copy / "packages/__pycache__/x.cpython-311.pyc").write_bytes(b"litter")
    (copy / "ruff.toml").write_bytes(b"")
    give_to_plain_user(copy.parent)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Apia",
        "PYTHONHASHSEED": "7",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", BUILD, str(copy.parent)],
        env=environment,
        umask=0o077,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == digest_of(archive)


def test_an_archive_makes_itself_again(archive, tmp_path):
    unpacked = unpack(archive, tmp_path / "unpacked")
    ran = subprocess.run(
        [sys.executable, "-B", "-c", BUILD, str(unpacked / "src")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == digest_of(archive)


def test_where_an_archive_differs_is_said(archive, program):
    assert find_differences(archive, program) == ()
    members = dict(read_members(archive))
    members["README.md"] = PackedFile("README.md", b"another\n", 0o644)
    members["more.txt"] = PackedFile("more.txt", b"", 0o644)
    del members["paddock"]
    assert find_differences(write_members(members.values()), program) == (
        Failure("paddock", "it is not in the archive"),
        Failure("README.md", "it differs from this distribution's"),
        Failure("more.txt", "it is in the archive, but not in this distribution"),
    )
    with pytest.raises(ArchiveRefusedError):
        find_differences(archive[:-1], program)


def test_a_link_in_the_source_is_refused(program, tmp_path):
    copy = shutil.copytree(program, tmp_path / "paddock")
    (copy / "linked.py").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="is a link or a special file"):
        build_bootstrap(copy)


# Unpacked


def test_an_unpacked_archive_is_the_packages_that_we_bring(archive, tmp_path):
    found = read_unpacked(unpack(archive, tmp_path / "unpacked"))
    assert [each.manifest for each in found.archives] == [each.manifest for each in load_packages()]
    assert [each.sha256 for each in found.archives] == [each.sha256 for each in load_packages()]
    assert found.names == read_members(archive).keys()


@pytest.mark.parametrize(
    "name", ["packages/PKG-KERNEL-001.tar.gz", "install.sh", "src/paddock/errors.py"]
)
def test_a_file_that_is_missing_or_another_one_is_refused(archive, tmp_path, name):
    directory = unpack(archive, tmp_path / "unpacked")
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(content + b"\n")
    with pytest.raises(ArchiveRefusedError, match=re.escape(name)):
        read_unpacked(directory)
    (directory / name).unlink()
    with pytest.raises(ArchiveRefusedError, match="missing"):
        read_unpacked(directory)


def edit_index(directory: Path, **fields) -> None:
    value = json.loads((directory / INDEX).read_text())
    (directory / INDEX).write_text(json.dumps(value | fields))


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "HOT/kernel/x", "HO1/x", "agents/a", "objects/x", "a//b"]
)
def test_an_index_that_names_a_place_that_is_not_the_archives_is_refused(tmp_path, path):
    (tmp_path / INDEX).write_text(
        json.dumps(
            {
                "format": 1,
                "packages": [],
                "files": [{"path": path, "sha256": digest_of(b"")}],
            }
        )
    )
    with pytest.raises(ConfigError, match="is not a file of an archive"):
        read_unpacked(tmp_path)


def test_packages_in_another_order_or_none_are_refused(archive, tmp_path):
    directory = unpack(archive, tmp_path / "unpacked")
    names = json.loads((directory / INDEX).read_text())["packages"]
    for packages in ([], names[::-1]):
        edit_index(directory, packages=packages)
        with pytest.raises(ConfigError, match="in the wrong order"):
            read_unpacked(directory)
    edit_index(directory, packages=[*names, "PKG-MORE"])
    with pytest.raises(ArchiveRefusedError, match="but not its file"):
        read_unpacked(directory)
    edit_index(directory, format=2)
    with pytest.raises(ConfigError, match="format"):
        read_unpacked(directory)


def test_a_package_that_no_plane_may_take_is_refused_in_an_unpacked_archive_too(tmp_path):
    name = "packages/PKG-A-001.tar.gz"
    (tmp_path / "packages").mkdir()
    for what, content in made().items():
        (tmp_path / name).write_bytes(content)
        files = [{"path": name, "sha256": digest_of(content)}]
        (tmp_path / INDEX).write_text(
            json.dumps({"format": 1, "packages": ["PKG-A-001"], "files": files})
        )
        before = tree(tmp_path)
        with pytest.raises(ArchiveRefusedError):
            read_unpacked(tmp_path)
        assert tree(tmp_path) == before, what


def test_a_directory_without_an_index_is_no_archive(tmp_path):
    with pytest.raises(UsageError, match="not an unpacked bootstrap archive"):
        read_unpacked(tmp_path)


def test_another_user_makes_the_same(archive, program, tmp_path):
    copy = tmp_path / "src" / "paddock"
    shutil.copytree(program, copy)
    give_to_plain_user(tmp_path / "src")

    def build() -> None:
        assert digest_of(build_bootstrap(copy)) == digest_of(archive)

    run_as_plain_user(build)
