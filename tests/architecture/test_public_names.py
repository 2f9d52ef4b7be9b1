"""What `import paddock` promises: few names, each on purpose."""

from pathlib import Path

import paddock

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_those_of_the_snapshot():
    # A name more is a promise more: change the snapshot in the same commit, on purpose.
    assert list(getattr(paddock, "__all__", [])) == SNAPSHOT.read_text(encoding="utf-8").split()


def test_there_are_at_most_twenty_five_public_names_in_order_and_all_exist():
    names = list(getattr(paddock, "__all__", []))

    assert len(names) <= 25
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(paddock, name)] == []
