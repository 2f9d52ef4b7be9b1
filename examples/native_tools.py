"""An agent with the tools that its provider's models were trained on, on a directory of its own.

    python examples/native_tools.py

No network and no key: this model has its turns by heart. With `anthropic` installed, `ask` is

    client.messages.create(model=…, max_tokens=4096, tools=tools, messages=messages)
"""

import tempfile
from pathlib import Path
from typing import Any

import paddock

EDITOR = "str_replace_based_edit_tool"
FIX = {"old_str": "range(2, n)\n", "new_str": "range(2, n):\n"}
NOTE = "primes.py lacked a colon.\n"
TURNS: list[list[tuple[str, dict[str, Any]]]] = [
    [
        ("memory", {"command": "view", "path": "/memories"}),
        (EDITOR, {"command": "view", "path": "/primes.py"}),
    ],
    [
        (EDITOR, {"command": "str_replace", "path": "/primes.py", **FIX}),
        (EDITOR, {"command": "view", "path": "/etc/passwd"}),
    ],
    [("memory", {"command": "create", "path": "/memories/notes.md", "file_text": NOTE})],
    [],
]


def ask(tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What the model says next."""
    turn = len(messages) // 2
    calls = [
        {"type": "tool_use", "id": f"toolu_{turn}_{number}", "name": name, "input": given}
        for number, (name, given) in enumerate(TURNS[turn])
    ]
    stop = "tool_use" if calls else "end_turn"
    return {"role": "assistant", "content": calls, "stop_reason": stop}


def run(root: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why does primes.py not run?"}]
    with paddock.open(root) as runtime:
        tools = runtime.tools.for_provider("anthropic", native=True)
        print("offered:", ", ".join(tool["name"] for tool in tools))
        while True:
            message = ask(tools, messages)
            messages.append(message)
            results = runtime.answer("anthropic", message)
            if not results:
                break
            for result in results:
                print("error:" if result["is_error"] else "ok:", result["content"].split("\n")[0])
            messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        primes = Path(directory) / "primes.py"
        primes.write_text("def is_prime(n):\n    for d in range(2, n)\n        pass\n")
        run(Path(directory))
        print(primes.read_text(), end="")
