"""Every cap that Paddock sets, with its unit in its name.

A cut that one of these causes is always stated in the result: which limit, how
much is missing, how to get the rest. Values that a project may lower stand in
its policy under `[limits]`; none of them can be raised there.
"""

from typing import Final

# Texts
binary_probe_bytes: Final = 8192
"""A NUL byte among the first so many bytes makes a file binary."""
content_bytes_max: Final = 10_000_000
"""Content to create, and old or new text of an edit."""
edited_file_bytes_max: Final = 256_000_000
"""The largest file that an edit reads."""

# What a model is shown
view_bytes_max: Final = 100_000
"""Text of one view; the result says how to go on."""
view_line_bytes_max: Final = 20_000
"""One line of a view; a longer one is cut and says so."""
view_directory_depth: Final = 2
view_directory_entries_max: Final = 500
snippet_context_lines: Final = 3
snippet_lines_max: Final = 40
snippet_line_chars_max: Final = 500
matches_listed_max: Final = 20
"""Line numbers named for an ambiguous text."""
matches_counted_max: Final = 1_000
"""Places of a text that are counted; each costs a search as long as the text."""
nearest_lines_max: Final = 3
message_value_chars_max: Final = 200
"""An offending value quoted in a message."""

# Arguments and paths
argument_bytes_max: Final = 64_000_000
"""One JSON argument object as text."""
argument_depth_max: Final = 32
path_bytes_max: Final = 4096
"""PATH_MAX of Linux, the terminating NUL included."""
name_bytes_max: Final = 255
"""NAME_MAX of Linux."""
path_depth_max: Final = 256
link_hops_max: Final = 40
"""As the kernel's own limit (path_resolution(7))."""
openat2_retries_max: Final = 64
"""EAGAIN answers of openat2(2) before it counts as a failure."""

# Policy
policy_bytes_max: Final = 1_000_000
policy_rules_max: Final = 10_000
command_chars_max: Final = 100_000
"""A longer command line is not parsed and counts as unparseable."""
command_code_chars_max: Final = 4_096
"""What of a command line is code: outside quotes and here-documents. The parser's time grows
with its square, so a line with more of it is not parsed and counts as unparseable."""
command_depth_max: Final = 16
"""Nested `sh -c`, wrappers and groups."""
approval_timeout_s: Final = 120.0
agent_chain_max: Final = 32

# Commands
shell_timeout_s: Final = 120.0
"""The longest that any command may be given to run."""

# Locks and the ledger
path_lock_timeout_s: Final = 30.0
ledger_lock_timeout_s: Final = 10.0
entry_bytes_max: Final = 1_048_576
"""One ledger line without its LF."""
json_integer_max: Final = 2**53
ledger_batch_entries_max: Final = 1024
entry_depth_max: Final = 64
"""Objects and arrays inside one another in an entry's metadata."""
ledger_commit_timeout_s: Final = 30.0
"""Waiting until another process has made our entry durable."""
ledger_problems_listed_max: Final = 100
"""Problems that one verification lists; the rest is counted."""
ledger_scan_chunk_bytes: Final = 1 << 18

# The plane's own files
plane_record_bytes_max: Final = 16_384
"""`plane.json`, a trust record, a registration."""
agent_file_bytes_max: Final = 262_144
"""One `agent.json`."""
agents_max: Final = 1_000
"""Agents of one plane."""
