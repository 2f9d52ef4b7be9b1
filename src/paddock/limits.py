"""The limits that a user meets, each with its unit in its name.

A cut that one of these causes is always stated in the result: which limit, how
much is missing, how to get the rest. Values that a project may lower stand in
its policy under `[limits]`; one of them, `shell_timeout_s`, can be raised there as well.
"""

from typing import Final

# Texts
binary_probe_bytes: Final = 8192
"""A NUL byte among the first so many bytes makes a file binary."""
content_bytes_max: Final = 10_000_000
"""Content to create, and old or new text of an edit."""
dev_content_bytes_max: Final = 1_000_000
"""Content that `write_file_dev` takes."""
program_bytes_max: Final = 256_000_000
"""What the embedding program reads or writes at once, and takes of what a command prints."""
program_command_bytes_max: Final = 1_500_000
"""A line of the embedding program: what Linux gives one program, with room for its variables."""
program_entries_max: Final = 100_000
"""Entries of a directory that the embedding program gets at once."""
edited_file_bytes_max: Final = 256_000_000
"""The largest file that an edit reads."""
versioned_file_bytes_max: Final = 64_000_000_000
"""The largest file that is read to its end, for its version: a minute. A sparse one may say that
it has exabytes, and an agent's command can make it."""

# What a model is shown
view_bytes_max: Final = 100_000
"""Text of one view, be it one line; the result says how to go on."""
view_directory_depth: Final = 2
view_directory_entries_max: Final = 500
listed_entries_max: Final = 500
"""Entries that one listing of an agent's directory shows."""
listed_depth_max: Final = 5
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
cassette_bytes_max: Final = 256_000_000
"""Of a file of recorded exchanges that is played."""
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
"""A longer command line is refused unread."""
command_parts_max: Final = 2_000
"""Commands into which a line may come apart that does not parse; one with more is refused."""
command_bytes_max: Final = 131_071
"""A longer one is not run: one argument of a program with its NUL (MAX_ARG_STRLEN, execve(2))."""
command_code_chars_max: Final = 4_096
"""What of a command line is code: outside quotes and here-documents. The parser's time grows
with its square, so a line with more of it is not parsed and counts as unparseable."""
command_depth_max: Final = 16
"""Nested `sh -c`, wrappers and groups."""
approval_timeout_s: Final = 120.0
approval_kept_s: Final = 86_400.0
"""A request that nobody could answer waits so long."""
approval_granted_s: Final = 3_600.0
"""A grant waits so long for its call."""
approval_kept_bytes_max: Final = 4_000_000
"""One kept request, its arguments included."""
approval_staged_bytes_max: Final = 64_000_000
"""Contents of the changes that one request about a difference keeps."""
approvals_max: Final = 256
"""Requests that one plane keeps."""
approvals_of_agent_max: Final = 64
"""Of one agent."""
approvals_bytes_max: Final = 64_000_000
"""All kept requests of one plane."""
agent_chain_max: Final = 32

# MCP
mcp_body_bytes_max: Final = 32_000_000
"""One request, or one line over standard streams: content of 10,000,000 bytes, escaped."""
mcp_head_bytes_max: Final = 65_536
"""Request line and headers."""
mcp_connections_max: Final = 256
"""With requests under way."""
mcp_half_open_max: Final = 64
"""Connections whose request has not arrived whole; beyond it the oldest is closed."""
mcp_request_s: Final = 10
"""So long a request may take to arrive."""
mcp_sessions_max: Final = 256
"""Open sessions of clients that shake hands."""
mcp_end_s: Final = 5
"""So long requests may take that are under way when the HTTP server is told to end."""
mcp_server_start_s: Final = 120.0
"""Until another MCP server answers, also what `npx` takes to fetch it."""
mcp_server_call_s: Final = 600.0
"""For one answer of such a server."""

# The console
web_body_bytes_max: Final = 8_000_000
"""One request: a policy of its longest, escaped."""
web_code_s: Final = 60
"""So long the code of a link is good, once."""
web_streams_max: Final = 64
"""Pages that follow the ledgers at once; one more is refused."""
web_stream_events_max: Final = 2_000
"""Events that a page may be behind; then its stream ends, and it begins anew."""
web_replayed_max: Final = 20_000
"""Recorded decisions, the newest, that a policy is tried on before it is saved."""

# Commands
shell_timeout_default_s: Final = 120
"""What a command of `run_shell` is given that asks for no time."""
shell_timeout_s: Final = 600
"""The longest that `run_shell` may give a command, where no policy says otherwise."""
shell_timeout_raised_s: Final = 86_400
"""What a policy may raise that to."""
shell_dev_timeout_s: Final = 120
"""The longest that `run_shell_dev` may give a command, whatever a policy says."""
shell_wait_s: Final = 600
"""The longest that shell_output waits for a command."""
shell_env_names_max: Final = 100
"""Variables that one command may be given besides those of its sandbox."""
shell_env_bytes_max: Final = 32_768
"""Their names and values together."""
shell_cache_bytes_max: Final = 10_000_000_000
"""The caches that commands of one workspace share; over it they begin anew."""
shell_output_chars_max: Final = 50_000
"""Of one stream, as a model sees it; the rest is kept in the history."""
shell_output_kept_bytes_max: Final = 256_000_000
"""Of one stream, what the history keeps from its beginning."""
shell_changes_listed_max: Final = 1_000
"""Paths that one result lists; the rest is counted."""
shell_diff_bytes_max: Final = 100_000
"""A diff of what a command changed, as it is shown."""
change_set_bytes_max: Final = 4_000_000_000
"""What the files that one command leaves may hold together."""
effects_listed_max: Final = 50
"""Changed paths that stand in a ledger entry; more are kept in the history, and counted.
Actions too; of more there is a digest."""

# Locks and the ledger
path_lock_timeout_s: Final = 30.0
ledger_lock_timeout_s: Final = 10.0
entry_bytes_max: Final = 1_048_576
"""One ledger line without its LF."""
json_integer_max: Final = 2**53
ledger_batch_entries_max: Final = 1024
entry_depth_max: Final = 64
"""Objects and arrays inside one another in an entry's metadata."""
ledger_problems_listed_max: Final = 100
"""Problems that one verification lists; the rest is counted."""
ledger_scan_chunk_bytes: Final = 1 << 18
export_page_entries_max: Final = 50_000
"""Entries of one exported page; a browser holds them all in memory."""
export_page_bytes_max: Final = 64_000_000
ledger_segment_bytes: Final = 1 << 28
"""A ledger goes on in a new file rather than make one longer than this, but for one append."""
ledger_unindexed_bytes_max: Final = 1 << 18
"""Of lines that are not indexed, a search reads so much before it indexes them."""
ledger_indexed_bytes_max: Final = 1 << 30
"""What one query indexes; beyond that it reads the lines."""
checkpoint_note_bytes_max: Final = 16_384
"""One signed note."""
checkpoint_entries_max: Final = 1_024
"""Entries after which a checkpoint is due."""
checkpoint_interval_s: Final = 1.0
"""Time after which a checkpoint is due where there are new entries."""
checkpoints_kept_max: Final = 64
"""Checkpoints kept beside a ledger and in an anchor; each says all that an older one does."""
anchor_timeout_s: Final = 30.0
"""What a command that anchors a checkpoint may take."""

# The plane's own files
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
"""Entries that a stage looks at to find those of other sessions."""
ledger_entries_listed_max: Final = 1_000
"""Entries that one query of a model lists."""
ledger_rows_bytes_max: Final = 100_000
"""Rows of one query, as the model sees them; the result says how to go on."""

# Models
model_output_tokens_default: Final = 8_192
"""What one model turn may write where nobody says otherwise."""
model_timeout_s: Final = 600.0
"""One exchange with a model, from the request to the last byte."""
model_silence_timeout_s: Final = 120.0
"""The longest that a model's server may say nothing."""
model_attempts_max: Final = 4
"""How often one request is sent when its transport fails."""
model_retry_first_s: Final = 0.5
model_retry_longest_s: Final = 30.0
"""One wait between two attempts; a server that asks for more is not asked again."""
model_retry_budget_s: Final = 90.0
"""All waits of one request together."""
model_response_bytes_max: Final = 32_000_000
"""Text, arguments and opaque blocks of one turn."""
model_error_bytes_max: Final = 1_000_000
"""Read of an error's body, unpacked; what is behind it is not waited for."""
model_calls_max: Final = 128
"""Tool calls in one turn."""
model_pauses_max: Final = 5
"""Pauses of one order after which its provider is not asked again."""
model_bytes_per_token: Final = 3
"""For estimates of a request's tokens before it is sent."""
same_call_max: Final = 3
"""The same call with the same arguments so often in a row means that the model is stuck."""
refusals_max: Final = 3
"""So does so many refused calls in a row."""
key_command_timeout_s: Final = 30.0
"""A program that prints a provider's key."""

reads_together_max: Final = 8
"""Calls of one turn that read at the same time."""
turn_text_bytes_max: Final = 200_000
"""A message or an answer as the ledger keeps it; a longer one is cut and says so."""
kept_contents_bytes_max: Final = 600_000
"""What of one exchange with a model a ledger entry keeps; of a larger one only its digest."""
order_turns_max: Final = 10
"""Model turns of one work order that has tools."""
order_retries_max: Final = 2
"""Orders that follow one whose result was not accepted."""
order_timeout_s: Final = 1_800.0
"""One work order, from its first request to its end."""
output_tokens_min: Final = 256
"""A model is not asked where the budget leaves less than this for its answer."""
prompt_contract_bytes_max: Final = 262_144
prompt_contracts_max: Final = 1_000
conversation_share: Final = 0.5
"""The part of a work order's tokens that earlier turns may take; older ones are left out."""

# Sets of changes
change_set_paths_max: Final = 200_000
"""Paths that one set creates, replaces and removes."""
change_conflicts_listed_max: Final = 20
"""Paths that a refused set names; the rest is counted."""
journal_entry_bytes_max: Final = 64_000_000
"""One entry of the journal: about 200 bytes a step."""

# What a command may not see
closed_directories_max: Final = 200_000
"""Directories of a workspace that are looked through for closed names."""
closed_names_max: Final = 10_000
"""Closed names that stand in a workspace at once."""

# Search
search_timeout_s: Final = 30.0
"""One search; what was found until then is shown, and that it is not all."""
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
"""What ripgrep may be ahead of us."""
search_row_bytes_max: Final = 65_536
"""Of a matching line, what is compared with the file; the rest is not looked at."""
search_errors_bytes_max: Final = 65_536
"""What ripgrep says of failures; the rest is dropped."""
search_memory_bytes_max: Final = 4_294_967_296
"""Address space of ripgrep: a file without line ends is held in memory as one line."""
search_pattern_bytes_max: Final = 65_536
"""Linux takes no single argument over 131,072 bytes (execve(2))."""
search_regex_bytes_max: Final = 33_554_432
"""A compiled regular expression."""
ignore_file_bytes_max: Final = 2_097_152
"""What is read of one `.gitignore`, up to the end of a rule."""
ignore_patterns_max: Final = 4_096
"""Rules of one `.gitignore` that need more than a look-up; the last ones count."""
ignore_braces_chars_max: Final = 262_144
"""Characters that the braces in one `.gitignore` stand for, of all its lines together."""
glob_alternatives_max: Final = 64
"""Texts that the braces of one glob stand for."""
glob_nesting_max: Final = 16
"""Braces within braces."""
dev_matches_max: Final = 200
dev_context_max: Final = 5
dev_searched_file_bytes_max: Final = 1_000_000
"""The largest file that `grep_dev` searches."""
outputs_numbered_max: Final = 99
"""Outputs of one name besides the first."""
builtin_answer_chars_max: Final = 8_000
"""What the built-in model repeats of one tool's result."""

# The hook
hook_input_bytes_max: Final = 64_000_000
"""One event as a client sends it, a tool's answer included."""
hook_answer_timeout_s: Final = 25
"""One answer; the clients are told to wait twice as long."""

# Packages
package_id_chars_max: Final = 100
package_title_chars_max: Final = 200
package_description_chars_max: Final = 4_000
package_files_max: Final = 10_000
"""Files of one package."""
package_archive_bytes_max: Final = 64_000_000
"""One archive as it is stored."""
package_bytes_max: Final = 128_000_000
"""One archive unpacked: what installing it holds in memory."""
skills_max: Final = 100
"""Skills of which a model is told; of more it is told how many."""
skill_bytes_max: Final = 1_000_000
package_tool_bytes_max: Final = 1_000_000
"""The module of one tool that a package brings."""
package_ratio_max: Final = 200
"""How many times an archive may grow when it is unpacked, beyond a first allowance."""
package_ratio_allowance_bytes: Final = 4_000_000
manifest_bytes_max: Final = 4_000_000
"""One `manifest.json`: 10,000 files with long names."""
receipt_bytes_max: Final = 16_000_000
"""One receipt, and the record of an install on its way."""
acceptance_commands_max: Final = 100
"""Of one package; together they may take `acceptance_timeout_s_max` each."""
acceptance_command_chars_max: Final = 4_000
acceptance_timeout_s_max: Final = 300
"""One acceptance command."""
acceptance_output_chars_max: Final = 2_000
"""Of a failed command's output, what a refusal shows."""
gate_failures_listed_max: Final = 20
"""Of one gate, to a model; the host gets all."""
key_file_bytes_max: Final = 2_000_000
"""One public key, or one signature."""
approval_file_bytes_max: Final = 16_000_000
"""One approval of a change to the plane: 20,000 paths of 256 bytes, each of them escaped."""
approval_scope_max: Final = 20_000
"""Patterns of one such approval."""
plane_approval_expires_s: Final = 86_400
"""How long an approval of a change to the plane waits where nobody says otherwise."""
registry_file_bytes_max: Final = 1_000_000
"""One spec or framework of the registries."""
