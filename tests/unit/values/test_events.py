"""The names of event types."""

from paddock.values import events


def test_every_name_that_is_declared_is_among_all_of_them():
    declared = {name: value for name, value in vars(events).items() if isinstance(value, str)}

    named = {name: value for name, value in declared.items() if not name.startswith("__")}
    assert named == {name: name for name in events.EVENT_TYPES}
