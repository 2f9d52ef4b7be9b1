"""The fence for people who keep their client's own tools: `paddock hook`.

A client (Claude Code, Codex) starts it at each tool call, JSON in on stdin, JSON out.

  * `lean/` is what runs every time: it needs no import that costs, and an image of the
    policy that was compiled before;
  * `full`, `policy_engine` and `lines` are the same decision from the policy itself, for
    whatever the lean path leaves to them, and they make the image;
  * `launch.py` is the file that an installed command names;
  * `settings/` edits a client's settings, `command` is the command line.
"""
