"""In which order packages stand on each other: by layer, then dependencies, then name. Pure."""

from collections.abc import Iterable, Mapping

from paddock.packages.manifest import Manifest
from paddock.packages.refusals import Failure, GateRefusedError


def install_order(manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """The packages such that each comes after what it depends on.

    Of those that could come next the one with the lowest layer does, then the first by name.

    Raises:
        GateRefusedError: G3: an unknown dependency, a cycle, or one id twice.
    """
    waiting: dict[str, Manifest] = {}
    for manifest in manifests:
        if manifest.package_id in waiting:
            raise GateRefusedError("G3", [Failure(manifest.package_id, "it is there twice")])
        waiting[manifest.package_id] = manifest
    problems = find_graph_problems(waiting)
    if problems:
        raise GateRefusedError("G3", problems)
    done: dict[str, Manifest] = {}
    while waiting:
        # Without a cycle, one of them can always come next.
        ready = [each for each in waiting.values() if done.keys() >= set(each.dependencies)]
        first = min(ready, key=_rank)
        done[first.package_id] = waiting.pop(first.package_id)
    return tuple(done.values())


def _rank(manifest: Manifest) -> tuple[int, str]:
    return manifest.layer, manifest.package_id


def find_graph_problems(packages: Mapping[str, Manifest]) -> tuple[Failure, ...]:
    """G3: dependencies that are not there, stand on a higher layer, or lead back; else nothing."""
    found: list[Failure] = []
    for name in sorted(packages):
        manifest = packages[name]
        for needed in manifest.dependencies:
            other = packages.get(needed)
            if other is None:
                found.append(Failure(name, f"it depends on {needed}, which is not installed"))
            elif other.layer > manifest.layer:
                found.append(
                    Failure(
                        name,
                        f"it is of layer {manifest.layer}, and depends on {needed} of layer"
                        f" {other.layer}",
                    )
                )
    cycle = _find_cycle(packages)
    if cycle:
        found.append(Failure(cycle[0], f"its dependencies lead back: {' → '.join(cycle)}"))
    return tuple(found)


def _find_cycle(packages: Mapping[str, Manifest]) -> tuple[str, ...]:
    """One way that leads back to its beginning; none where there is no such way."""
    done: set[str] = set()
    for start in sorted(packages):
        way: list[str] = []
        # An explicit stack: a chain of dependencies may be longer than Python's.
        stack: list[tuple[str, list[str]]] = [(start, _needed(packages, start))]
        way.append(start)
        while stack:
            name, rest = stack[-1]
            if not rest:
                done.add(name)
                stack.pop()
                way.pop()
                continue
            needed = rest.pop()
            if needed in way:
                return (*way[way.index(needed) :], needed)
            if needed not in done:
                way.append(needed)
                stack.append((needed, _needed(packages, needed)))
    return ()


def _needed(packages: Mapping[str, Manifest], name: str) -> list[str]:
    return [each for each in packages[name].dependencies if each in packages]
