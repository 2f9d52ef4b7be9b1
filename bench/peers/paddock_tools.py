"""Paddock's own tools: `python paddock_tools.py ROOT`."""

import sys
from typing import Any

from serve import Refused, serve

import paddock


class Tools:
    """The calls of an agent with the standard profile."""

    def __init__(self, root: str) -> None:
        self._runtime = paddock.open(root)

    def read(self, path: str, first: int = 1, count: int = 2000) -> str:
        return self._call("view", path=path, offset=first, limit=count)

    def write(self, path: str, text: str) -> str:
        return self._call("create_file", path=path, content=text)

    def edit(self, path: str, old: str, new: str) -> str:
        return self._call("str_replace", path=path, old_str=old, new_str=new)

    def grep(self, pattern: str) -> str:
        return self._call("grep", pattern=pattern, literal=True)

    def find(self, pattern: str) -> str:
        return self._call("find", pattern=pattern)

    def ls(self, path: str) -> str:
        return self._call("ls", path=path, limit=2000)

    def _call(self, name: str, **arguments: Any) -> str:
        result = self._runtime.call(name, arguments)
        if result.refusal is not None:
            raise Refused(result.content)
        return result.content


serve(Tools(sys.argv[1]))
