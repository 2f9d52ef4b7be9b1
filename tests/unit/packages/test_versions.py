"""Semantic versions: the grammar and the order of semver.org."""

import itertools

import pytest

from paddock.packages.manifest import version_key

# Point 11 of the specification, and the rest of the order.
ASCENDING = (
    "0.0.1",
    "0.9.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
)


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(ASCENDING, 2)))
def test_each_is_below_those_after_it(low, high):
    assert version_key(low) < version_key(high)


def test_build_metadata_does_not_count():
    assert version_key("1.0.0+a") == version_key("1.0.0+b.1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "1.2.3.4",
        "01.2.3",
        "1.02.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.3 ",
        "１.2.3",
        "1.2.3\n",
        "1.2.3-" + "a" * 200,
    ],
)
def test_anything_else_is_no_version(text):
    assert version_key(text) is None
