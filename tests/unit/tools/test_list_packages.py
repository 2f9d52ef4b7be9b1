"""`list_packages`: what is installed, as a model sees it."""

import jsonschema
import pytest
from msgspec.structs import replace

from paddock.packages.rows import Failure, PackageRow, State
from paddock.tools.plane import LIST_PACKAGES
from paddock.values.decisions import Action

ROW = PackageRow(
    package_id="PKG-A",
    state=State.INSTALLED,
    version="1.0.0",
    tier="HOT",
    framework_id="FMWK-000",
    spec_id="SPEC-A",
    title="A\nB",
)


@pytest.fixture
def listing(desk):
    def run(*rows: PackageRow):
        asking = replace(desk, ports=replace(desk.ports, packages=lambda: rows))
        return asking.run("list_packages")

    return run


def test_each_package_has_a_row_with_its_state(listing):
    changed = replace(
        ROW, package_id="PKG-B", state=State.CHANGED, failures=(Failure("HOT/x", "y"),)
    )
    output = listing(ROW, changed, PackageRow(package_id="odd\nname", state=State.DAMAGED))

    assert output.content.splitlines() == [
        "PKG-A  1.0.0  HOT  FMWK-000  SPEC-A  installed",
        "PKG-B  1.0.0  HOT  FMWK-000  SPEC-A  changed  1 files",
        "odd\\nname  damaged",
    ]
    assert output.details["count"] == 3
    assert output.details["packages"][0] == {
        "package_id": "PKG-A",
        "version": "1.0.0",
        "tier": "HOT",
        "framework": "FMWK-000",
        "spec": "SPEC-A",
        "state": "installed",
    }
    answer = {"status": "ok", "content": output.content, **output.details}
    jsonschema.Draft202012Validator(LIST_PACKAGES.spec.output_schema).validate(answer)


def test_a_plane_without_packages_says_so(listing):
    assert listing().content == "[no packages are installed]"
    assert listing().details == {"count": 0, "packages": []}


def test_a_workspace_that_is_on_no_plane_has_none(desk):
    assert desk.run("list_packages").details["count"] == 0


def test_it_is_judged_as_one_action_of_its_own(desk):
    assert desk.plan("list_packages").actions == (Action("package", "list", "*"),)


def test_it_takes_no_arguments(desk):
    from paddock.errors import UnknownArgumentError

    with pytest.raises(UnknownArgumentError):
        desk.run("list_packages", path=".")
