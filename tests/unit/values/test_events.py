"""The names of event types."""

from paddock.values import entries


def test_every_name_that_is_declared_is_among_all_of_them():
    declared = {name: value for name, value in vars(entries).items() if isinstance(value, str)}

    named = {name: value for name, value in declared.items() if value.isupper()}
    assert named == {name: name for name in entries.EVENT_TYPES}
