"""What a JSON Schema says beyond its own form: where it refers to, and what it matches.

A schema that is well-formed may still refer to nothing, to an address, or to itself
without end, and may hold a pattern that is none. An answer would be asked for, paid for
and then could not be checked; so this is looked at before.
"""

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from paddock.text.show import quote
from paddock.values.calls import Json

_REFERENCES: Final = ("$ref", "$dynamicRef")
_LISTS_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
"""Keywords whose schemas are applied to the very same value (JSON Schema Core, 10.2)."""


def schema_defect(schema: Mapping[str, Json]) -> str:
    """Why no value can be checked against this schema (2020-12); "" where one can.

    Nothing is fetched.
    """
    from jsonschema.exceptions import SchemaError

    try:
        _Walk().through(dict(schema))
    except SchemaError as error:
        return cast("str", cast("Any", error).message)
    except _NowhereError as error:
        return f"nothing stands at {quote(str(error))}"
    except CycleError:
        return "it refers to itself without end"
    except re.error as error:
        return f"the pattern {quote(str(error.pattern))} is none: {error.msg}"
    return ""


class _NowhereError(LookupError):
    """A schema refers to what is not within it."""


class _Walk:
    """Meets every schema that a schema holds or refers to, once."""

    def __init__(self) -> None:
        self._in_place: dict[int, list[int]] = {}
        """Of each schema that was met, those that are applied to the same value as it is."""
        self._waiting: list[tuple[Mapping[str, Any], Any]] = []

    def through(self, schema: Mapping[str, Any]) -> None:
        """Raises: SchemaError, _NowhereError, CycleError, re.error."""
        import referencing
        from referencing.jsonschema import DRAFT202012

        # Threat: a schema that refers to an address must not make us fetch it; an empty
        # registry knows no address.
        registry = cast("Any", referencing).Registry()
        whole = DRAFT202012.create_resource(schema)
        self._meet(schema, registry.resolver_with_root(whole))
        while self._waiting:
            met, resolver = self._waiting.pop()
            self._follow(met, resolver)
            for part in DRAFT202012.create_resource(met).subresources():
                self._meet(part.contents, resolver.in_subresource(part))
        TopologicalSorter(self._in_place).prepare()

    def _meet(self, schema: Any, resolver: Any) -> None:
        if not isinstance(schema, bool) and id(schema) not in self._in_place:
            self._in_place[id(schema)] = [id(part) for part in _parts_in_place(schema)]
            self._waiting.append((schema, resolver))
            for pattern in _patterns(schema):
                re.compile(pattern)

    def _follow(self, schema: Mapping[str, Any], resolver: Any) -> None:
        import jsonschema
        from referencing.exceptions import Unresolvable

        for name in _REFERENCES:
            if name in schema:
                try:
                    found = resolver.lookup(schema[name])
                except Unresolvable:
                    raise _NowhereError(schema[name]) from None
                # It may stand where no schema is looked for.
                cast("Any", jsonschema.Draft202012Validator).check_schema(found.contents)
                self._in_place[id(schema)].append(id(found.contents))
                self._meet(found.contents, found.resolver)


def _parts_in_place(schema: Mapping[str, Any]) -> Iterator[object]:
    for name in _LISTS_IN_PLACE:
        yield from schema.get(name, ())
    for name in _IN_PLACE:
        if name in schema:
            yield schema[name]
    yield from schema.get("dependentSchemas", {}).values()


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    if "pattern" in schema:
        yield schema["pattern"]
    yield from schema.get("patternProperties", {})
