"""User-visible limits, each with its unit in its name.

If a limit cuts a result, the result says which limit, how much is missing, and how to
get the rest. A project may lower some of them in its policy under `[limits]`, and raise
`shell_timeout_s` there.
"""

from typing import Final

# Texts
binary_probe_bytes: Final = 8192
"""A file with a NUL byte among these first bytes is binary."""
content_bytes_max: Final = 10_000_000
"""Content of a new file, and old or new text of an edit."""
dev_content_bytes_max: Final = 1_000_000
"""Content that `write_file_dev` accepts."""
program_bytes_max: Final = 256_000_000
"""Bytes that the embedding program reads or writes at once, or gets of a command's output."""
program_command_bytes_max: Final = 1_500_000
"""A command line of the embedding program: Linux's limit for arguments, less room for variables."""
program_entries_max: Final = 100_000
"""Directory entries that the embedding program gets at once."""
edited_file_bytes_max: Final = 256_000_000
"""The largest file that an edit reads."""
versioned_file_bytes_max: Final = 64_000_000_000
"""The largest file that is read completely, for its version: a minute. Larger ones are refused:
an agent's command can create a sparse file of exabytes."""

# What a model is shown
view_bytes_max: Final = 100_000
"""Text of one view, even a single line; the result says how to continue."""
view_directory_depth: Final = 2
view_directory_entries_max: Final = 500
listed_entries_max: Final = 500
"""Entries that one `list_files` shows."""
listed_depth_max: Final = 5
snippet_context_lines: Final = 3
snippet_lines_max: Final = 40
snippet_line_chars_max: Final = 500
matches_listed_max: Final = 20
"""Line numbers named for an ambiguous text."""
matches_counted_max: Final = 1_000
"""Matches of a text that are counted; each costs time proportional to the text."""
nearest_lines_max: Final = 3
message_value_chars_max: Final = 200
"""An offending value quoted in a message."""

# Arguments and paths
argument_bytes_max: Final = 64_000_000
"""One JSON argument object as text."""
argument_depth_max: Final = 32
cassette_bytes_max: Final = 256_000_000
"""One file of recorded exchanges to replay."""
path_bytes_max: Final = 4096
"""PATH_MAX of Linux, the terminating NUL included."""
name_bytes_max: Final = 255
"""NAME_MAX of Linux."""
path_depth_max: Final = 256
link_hops_max: Final = 40
"""The same as the kernel's limit (path_resolution(7))."""
openat2_retries_max: Final = 64
"""Retries of openat2(2) after EAGAIN before it fails."""

# Policy
policy_bytes_max: Final = 1_000_000
policy_rules_max: Final = 10_000
command_chars_max: Final = 100_000
"""A longer command line is refused without parsing."""
command_parts_max: Final = 2_000
"""Commands that an unparseable line may be split into; a line with more is refused."""
command_bytes_max: Final = 131_071
"""A longer line is not run: one argument with its NUL (MAX_ARG_STRLEN, execve(2))."""
command_code_chars_max: Final = 4_096
"""Code in a command line: text outside quotes and here-documents. Parsing takes quadratic
time, so a line with more code is not parsed and counts as unparseable."""
command_depth_max: Final = 16
"""Nested `sh -c`, wrappers and groups."""
approval_timeout_s: Final = 120.0
approval_kept_s: Final = 86_400.0
"""How long a request is kept if no approver could be asked."""
approval_granted_s: Final = 3_600.0
"""How long a grant waits for its call."""
approval_kept_bytes_max: Final = 4_000_000
"""One kept request, including its arguments."""
approval_staged_bytes_max: Final = 64_000_000
"""Changed contents that one request about a diff keeps."""
approvals_max: Final = 256
"""Requests that one plane keeps."""
approvals_of_agent_max: Final = 64
"""Requests that one plane keeps of one agent."""
approvals_bytes_max: Final = 64_000_000
"""Size of all kept requests of one plane."""
agent_chain_max: Final = 32

# MCP
mcp_body_bytes_max: Final = 32_000_000
"""One request, or one line on stdio: content of 10,000,000 bytes, escaped."""
mcp_head_bytes_max: Final = 65_536
"""Request line and headers."""
mcp_connections_max: Final = 256
"""Connections with a running request."""
mcp_half_open_max: Final = 64
"""Connections with an incomplete request; beyond that, the oldest is closed."""
mcp_request_s: Final = 10
"""Time for a request to arrive completely."""
mcp_sessions_max: Final = 256
"""Open sessions of clients that initialize one."""
mcp_end_s: Final = 5
"""Time for running requests to finish when the HTTP server shuts down."""
mcp_server_start_s: Final = 120.0
"""Time for another MCP server to start, including its download by `npx`."""
mcp_server_call_s: Final = 600.0
"""Time for one response of another MCP server."""

# The console
web_body_bytes_max: Final = 8_000_000
"""One request: a policy of maximum length, escaped."""
web_code_s: Final = 60
"""How long the single-use code of a link is valid."""
web_streams_max: Final = 64
"""Pages that follow the ledgers at once; one more is refused."""
web_stream_events_max: Final = 2_000
"""Events that a page may be behind; beyond that, its stream ends and starts again."""
web_replayed_max: Final = 20_000
"""The newest recorded decisions, on which a policy is tried before it is saved."""

# Commands
shell_timeout_default_s: Final = 120
"""The default timeout of `run_shell`."""
shell_timeout_s: Final = 600
"""The maximum timeout of `run_shell`, unless a policy sets another."""
shell_timeout_raised_s: Final = 86_400
"""The most that a policy may raise `shell_timeout_s` to."""
shell_dev_timeout_s: Final = 120
"""The maximum timeout of `run_shell_dev`; a policy cannot raise it."""
shell_wait_s: Final = 600
"""The maximum time that `shell_output` waits for a command."""
shell_env_names_max: Final = 100
"""Environment variables of one call, besides those of the sandbox."""
shell_env_bytes_max: Final = 32_768
"""Total size of their names and values."""
shell_cache_bytes_max: Final = 10_000_000_000
"""Caches shared by the commands of one workspace; beyond that, they are cleared."""
shell_output_chars_max: Final = 50_000
"""One stream as a model sees it; the history keeps the rest."""
shell_output_kept_bytes_max: Final = 256_000_000
"""The first bytes of one stream that the history keeps."""
shell_changes_listed_max: Final = 1_000
"""Paths that one result lists; more are only counted."""
shell_diff_bytes_max: Final = 100_000
"""One displayed diff of a command's changes."""
change_set_bytes_max: Final = 4_000_000_000
"""Total size of the files that one command leaves."""
effects_listed_max: Final = 50
"""Changed paths in one ledger entry; with more, the history has the whole list. Also the
actions in one entry; with more, it has a digest of all."""

# Locks and the ledger
path_lock_timeout_s: Final = 30.0
ledger_lock_timeout_s: Final = 10.0
entry_bytes_max: Final = 1_048_576
"""One ledger line without its LF."""
json_integer_max: Final = 2**53
ledger_batch_entries_max: Final = 1024
entry_depth_max: Final = 64
"""Nesting of objects and arrays in an entry's metadata."""
ledger_problems_listed_max: Final = 100
"""Problems that one verification lists; more are only counted."""
ledger_scan_chunk_bytes: Final = 1 << 18
export_page_entries_max: Final = 50_000
"""Entries of one exported page; a browser holds them all in memory."""
export_page_bytes_max: Final = 64_000_000
ledger_segment_bytes: Final = 1 << 28
"""A ledger continues in a new file when one reaches this size; one append may exceed it."""
ledger_unindexed_bytes_max: Final = 1 << 18
"""Unindexed lines that a search reads before it indexes them."""
ledger_indexed_bytes_max: Final = 1 << 30
"""Lines that one query indexes; beyond that, it reads them."""
checkpoint_note_bytes_max: Final = 16_384
"""One signed note."""
checkpoint_entries_max: Final = 1_024
"""Entries after which a checkpoint is due."""
checkpoint_interval_s: Final = 1.0
"""Time after which a checkpoint is due if there are new entries."""
checkpoints_kept_max: Final = 64
"""Checkpoints kept beside a ledger and in an anchor; each covers all older ones."""
anchor_timeout_s: Final = 30.0
"""Timeout of a command that anchors a checkpoint."""

# The plane's files
plane_record_bytes_max: Final = 16_384
"""`plane.json`, a trust record, a registration."""
agent_file_bytes_max: Final = 262_144
"""One `agent.json`."""
agents_max: Final = 1_000
"""Agents of one plane."""
admin_config_bytes_max: Final = 1_000_000
"""`admin_config.json`."""
attention_entries_max: Final = 100
"""Ledger entries that one stage of a turn's context may ask for."""
attention_reach_max: Final = 1_000
"""Entries that a stage reads to find those of other sessions."""
ledger_entries_listed_max: Final = 1_000
"""Entries that one query of a model lists."""
ledger_rows_bytes_max: Final = 100_000
"""Rows of one query, as the model sees them; the result says how to continue."""

# Models
model_output_tokens_default: Final = 8_192
"""The default output of one model turn."""
model_timeout_s: Final = 600.0
"""One exchange with a model, from the request to the last byte."""
model_silence_timeout_s: Final = 120.0
"""The longest silence of a model's server."""
model_attempts_max: Final = 4
"""Attempts to send one request when its transport fails."""
model_retry_first_s: Final = 0.5
model_retry_longest_s: Final = 30.0
"""One wait between two attempts; if a server asks for more, the request is not retried."""
model_retry_budget_s: Final = 90.0
"""All waits of one request together."""
model_response_bytes_max: Final = 32_000_000
"""Text, arguments and opaque blocks of one turn."""
model_error_bytes_max: Final = 1_000_000
"""The part of an error's decompressed body that is read; the rest is ignored."""
model_calls_max: Final = 128
"""Tool calls in one turn."""
model_pauses_max: Final = 5
"""Pauses of one order after which its provider is not called again."""
model_bytes_per_token: Final = 3
"""Used to estimate a request's tokens before it is sent."""
same_call_max: Final = 3
"""Identical calls in a row that mean that the model is stuck."""
refusals_max: Final = 3
"""Refused calls in a row that mean that the model is stuck."""
key_command_timeout_s: Final = 30.0
"""Timeout of a program that prints a provider's key."""

reads_together_max: Final = 8
"""Read-only calls of one turn that run concurrently."""
turn_text_bytes_max: Final = 200_000
"""A message or answer in the ledger; a longer one is cut and says so."""
kept_contents_bytes_max: Final = 600_000
"""Content of one model exchange in a ledger entry; of a larger one, only its digest is kept."""
order_turns_max: Final = 10
"""Model turns of one work order with tools."""
order_retries_max: Final = 2
"""Retries of an order whose result was not accepted."""
order_timeout_s: Final = 1_800.0
"""One work order, from its first request to its end."""
output_tokens_min: Final = 256
"""If the budget leaves less for the answer, the model is not called."""
prompt_contract_bytes_max: Final = 262_144
prompt_contracts_max: Final = 1_000
conversation_share: Final = 0.5
"""The share of a work order's tokens for earlier turns; the oldest are left out."""

# Sets of changes
change_set_paths_max: Final = 200_000
"""Paths that one set creates, replaces and removes."""
change_conflicts_listed_max: Final = 20
"""Paths that the refusal of a set names; more are only counted."""
journal_entry_bytes_max: Final = 64_000_000
"""One journal entry: about 200 bytes per step."""

# What a command may not see
closed_directories_max: Final = 200_000
"""Directories of a workspace that are searched for closed names."""
closed_names_max: Final = 10_000
"""Closed names in a workspace at once."""

# Search
search_timeout_s: Final = 30.0
"""One search; then the matches so far are shown, with a notice."""
search_output_bytes_max: Final = 50_000
"""Rows of one search, as the model sees them."""
search_line_chars_max: Final = 500
"""One line of a row; a longer one is cut and says so."""
search_context_max: Final = 10
"""Lines shown before and after a match."""
grep_matches_max: Final = 500
find_entries_max: Final = 5_000
ls_entries_max: Final = 2_000
search_pipe_bytes: Final = 1_048_576
"""Pipe buffer for ripgrep's output."""
search_row_bytes_max: Final = 65_536
"""The part of a matching line that is compared with the file; the rest is ignored."""
search_errors_bytes_max: Final = 65_536
"""ripgrep's error output; the rest is dropped."""
search_memory_bytes_max: Final = 4_294_967_296
"""Address space of ripgrep: a file without line ends is held in memory as one line."""
search_pattern_bytes_max: Final = 65_536
"""Linux accepts no single argument over 131,072 bytes (execve(2))."""
search_regex_bytes_max: Final = 33_554_432
"""A compiled regular expression."""
ignore_file_bytes_max: Final = 2_097_152
"""The part of one `.gitignore` that is read, up to the end of a rule."""
ignore_patterns_max: Final = 4_096
"""Rules of one `.gitignore` that need a regular expression; only the last ones count."""
ignore_braces_chars_max: Final = 262_144
"""Characters that the braces in one `.gitignore` expand to, in all its lines together."""
glob_alternatives_max: Final = 64
"""Alternatives that the braces of one glob expand to."""
glob_nesting_max: Final = 16
"""Nesting of braces."""
dev_matches_max: Final = 200
dev_context_max: Final = 5
dev_searched_file_bytes_max: Final = 1_000_000
"""The largest file that `grep_dev` searches."""
outputs_numbered_max: Final = 99
"""Numbered outputs of one name, besides the first."""
builtin_answer_chars_max: Final = 8_000
"""The part of a tool's result that the built-in model repeats."""

# The hook
hook_input_bytes_max: Final = 64_000_000
"""One event of a client, including a tool's result."""
hook_answer_timeout_s: Final = 25
"""One answer; the clients' configured timeout is twice as long."""

# Packages
package_id_chars_max: Final = 100
package_title_chars_max: Final = 200
package_description_chars_max: Final = 4_000
package_files_max: Final = 10_000
"""Files of one package."""
package_archive_bytes_max: Final = 64_000_000
"""One compressed archive."""
package_bytes_max: Final = 128_000_000
"""One archive unpacked, which an install holds in memory."""
skills_max: Final = 100
"""Skills that are listed for a model; more are only counted."""
skill_bytes_max: Final = 1_000_000
package_tool_bytes_max: Final = 1_000_000
"""The module of one tool in a package."""
package_ratio_max: Final = 200
"""Maximum compression ratio of an archive, beyond a fixed allowance."""
package_ratio_allowance_bytes: Final = 4_000_000
manifest_bytes_max: Final = 4_000_000
"""One `manifest.json`: 10,000 files with long names."""
receipt_bytes_max: Final = 16_000_000
"""One receipt, or the record of an unfinished install."""
acceptance_commands_max: Final = 100
"""Acceptance commands of one package."""
acceptance_command_chars_max: Final = 4_000
acceptance_timeout_s_max: Final = 300
"""One acceptance command."""
acceptance_output_chars_max: Final = 2_000
"""The part of a failed command's output that a refusal shows."""
gate_failures_listed_max: Final = 20
"""Failures of one gate that a model sees; the host gets all."""
key_file_bytes_max: Final = 2_000_000
"""One public key, or one signature."""
approval_file_bytes_max: Final = 16_000_000
"""One approval of a change to the plane: 20,000 paths of 256 bytes, each escaped."""
approval_scope_max: Final = 20_000
"""Patterns of one such approval."""
plane_approval_expires_s: Final = 86_400
"""The default lifetime of an approval of a change to the plane."""
registry_file_bytes_max: Final = 1_000_000
"""One spec or framework of the registries."""
