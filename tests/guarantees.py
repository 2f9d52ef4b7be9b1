"""What docs/threat-model.md promises, and what proves each promise.

A guarantee is proved by tests that see it hold, and by a mutant: an edit that
breaks it, which those tests must notice (`make mutants`). tests/docs checks
that this table and the document agree.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class Guarantee(Struct, frozen=True, dict=True):
    """Tests as pytest node ids or files; mutants as file names in tests/mutants/.

    What notices the first mutant mostly stands first, as a trial ends there.
    """

    tests: tuple[str, ...]
    mutants: tuple[str, ...]


GUARANTEES: Final[Mapping[str, Guarantee]] = MappingProxyType(
    {
        "G1": Guarantee(
            tests=("tests/unit/runtime/test_dispatch.py",),
            mutants=("denied-call-runs.toml", "refused-approval-runs.toml"),
        ),
        "G2": Guarantee(
            tests=(
                "tests/unit/runtime/test_approvals.py",
                "tests/unit/tools/test_arguments.py",
                "tests/unit/policy/test_policy_decide.py",
            ),
            mutants=("anything-truthy-is-yes.toml", "unmatched-is-allowed.toml"),
        ),
        "G3": Guarantee(
            tests=(
                "tests/unit/workspace/test_resolution.py",
                "tests/unit/workspace/test_resolving.py",
                "tests/unit/apps/test_native_tools.py::test_no_path_leads_out_of_the_memory",
                "tests/unit/apps/test_native_tools.py::test_memory_lasts_and_is_each_agents_own",
            ),
            mutants=(
                "memories-begin-alike.toml",
                "memory-is-the-workspace.toml",
                "climbing-out-is-allowed.toml",
                "openat2-follows-links.toml",
                "walk-follows-links.toml",
            ),
        ),
        "G4": Guarantee(
            tests=(
                "tests/unit/workspace/test_resolving.py",
                "tests/unit/tools/test_create_file.py",
            ),
            mutants=("linked-parent-is-written-through.toml",),
        ),
        "G5": Guarantee(
            tests=(
                "tests/unit/policy/test_policy_decide.py",
                "tests/unit/policy/test_policy_patterns.py",
                "tests/unit/runtime/test_dispatch.py",
                "tests/unit/apps/hook/test_unconfined.py",
            ),
            mutants=(
                "letter-case-opens.toml",
                "secret-is-readable.toml",
                "commands-read-secrets.toml",
            ),
        ),
        "G6": Guarantee(
            tests=(
                "tests/unit/policy/test_policy_decide.py",
                "tests/unit/apps/hook/test_agents.py",
                "tests/unit/policy/test_policy_extends.py",
                "tests/unit/apps/test_given_policy.py",
            ),
            mutants=(
                "kind-of-agent-stands-alone.toml",
                "given-policy-is-passed-over.toml",
                "given-policy-file-may-be-written.toml",
                "mildest-action-decides.toml",
                "parent-has-no-say.toml",
                "bases-are-left-out.toml",
                "bases-denials-are-lifted.toml",
            ),
        ),
        "G7": Guarantee(
            tests=(
                "tests/unit/policy/test_policy_lines.py",
                "tests/unit/policy/test_policy_real_lines.py",
                "tests/unit/policy/test_policy_honest_lines.py",
                "tests/property/test_commands_in_bash.py",
            ),
            mutants=(
                "moved-lines-are-believed.toml",
                "run-time-words-are-ignored.toml",
                "words-behind-documents.toml",
                "another-directory-is-the-same.toml",
                "documents-are-no-programs.toml",
                "long-lines-are-read-for-minutes.toml",
                "names-hold-only-numbers.toml",
                "other-orders-are-other-rules.toml",
                "parts-without-end-are-judged.toml",
                "settings-start-nothing.toml",
                "sourced-files-run-anywhere.toml",
                "zsh-writes-unseen.toml",
            ),
        ),
        "G8": Guarantee(
            tests=(
                "tests/unit/policy/test_policy_document.py",
                "tests/unit/apps/mcp/test_agents.py",
            ),
            mutants=("served-policy-stays.toml", "unknown-keys-load.toml"),
        ),
        "G9": Guarantee(
            tests=(
                "tests/unit/plane/test_trust.py",
                "tests/unit/plane/test_policy_files.py",
                "tests/unit/apps/test_trust.py",
                "tests/unit/policy/test_policy_decide.py",
                "tests/property/test_policy_decisions.py::test_an_untrusted_file_never_loosens",
                "tests/unit/apps/test_declared_agents.py",
            ),
            mutants=(
                "configuration-of-others-counts.toml",
                "trust-holds-unrecorded.toml",
                "trust-ignores-changes.toml",
                "untrusted-agents-bind.toml",
                "untrusted-profile-is-passed-over.toml",
                "untrusted-rest-is-open.toml",
                "yes-answers-about-outside.toml",
            ),
        ),
        "G10": Guarantee(
            tests=(
                "tests/unit/apps/test_approvals.py",
                "tests/unit/runtime/test_approvals.py",
                "tests/unit/runtime/test_dispatch.py",
                "tests/unit/runtime/test_inbox.py",
                "tests/unit/apps/test_approved_paths.py",
                "tests/unit/apps/test_used_approvals.py",
                "tests/contract/test_mcp.py",
            ),
            mutants=(
                "anything-is-shown.toml",
                "approval-ignores-actions.toml",
                "approval-ignores-content.toml",
                "approval-ignores-kinds.toml",
                "committed-grant-is-not-used.toml",
                "grant-counts-twice.toml",
                "index-grants.toml",
                "restored-ledger-grants.toml",
                "taken-back-grant-counts.toml",
                "yes-outlives-its-policy.toml",
            ),
        ),
        "G11": Guarantee(
            tests=("tests/unit/runtime/test_dispatch.py",),
            mutants=("intent-is-not-recorded.toml", "unknown-outcome-goes-on.toml"),
        ),
        "G12": Guarantee(
            tests=(
                "tests/fault/test_write_order.py",
                "tests/fault/test_workspace_faults.py",
                "tests/fault/test_kill_writer.py",
                "tests/fault/test_full_disk.py",
                "tests/fault/test_parallel_edits.py",
            ),
            mutants=(
                "displaced-file-is-not-compared.toml",
                "draft-is-not-synced.toml",
                "replacement-is-not-synced.toml",
            ),
        ),
        "G13": Guarantee(
            tests=(
                "tests/property/test_text_edits.py",
                "tests/unit/text/test_splice.py",
                "tests/unit/tools/test_str_replace.py",
                "tests/unit/text/test_v4a.py",
            ),
            mutants=(
                "hunks-without-a-place-are-left-out.toml",
                "edit-counts-shown-bytes.toml",
                "halves-of-characters-are-edited.toml",
            ),
        ),
        "G14": Guarantee(
            tests=(
                "tests/unit/ledger/test_recovery.py",
                "tests/unit/ledger/test_append.py",
                "tests/unit/ledger/test_segments.py",
                "tests/unit/ledger/test_syncs.py",
                "tests/fault/test_ledger_faults.py",
                "tests/fault/test_hook_ledger.py",
            ),
            mutants=(
                "another-writers-sync-counts.toml",
                "commit-without-sync.toml",
                "failed-sync-is-forgotten.toml",
                "file-is-sealed-unsynced.toml",
                "lean-writer-looks-at-no-place.toml",
                "sealed-file-is-written.toml",
                "sealed-name-is-not-looked-at.toml",
                "torn-tail-stays.toml",
                "writer-looks-at-no-place.toml",
            ),
        ),
        "G15": Guarantee(
            tests=(
                "tests/unit/ledger/verify/test_verify.py",
                "tests/unit/ledger/test_segments.py",
                "tests/unit/ledger/test_index.py",
                "tests/unit/ledger/test_over_segments.py",
            ),
            mutants=(
                "file-stands-twice.toml",
                "links-are-not-compared.toml",
                "missing-file-is-read-around.toml",
                "missing-rows-hide-lines.toml",
                "strange-index-is-believed.toml",
            ),
        ),
        "G16": Guarantee(
            tests=(
                "tests/property/test_shown_text.py",
                "tests/unit/text/test_show.py",
                "tests/unit/policy/questions/test_policy_explain_record.py",
                "tests/unit/runtime/test_question.py",
            ),
            mutants=(
                "direction-overrides-are-shown.toml",
                "told-calls-draw-rows.toml",
                "blank-characters-are-agreed-to.toml",
            ),
        ),
        "G17": Guarantee(
            tests=(
                "tests/unit/storage/test_journal.py",
                "tests/fault/test_set_order.py",
                "tests/fault/test_changeset_faults.py",
                "tests/unit/workspace/test_changeset.py",
                "tests/unit/workspace/test_change_recovery.py",
                "tests/unit/storage/test_journal_format.py",
                "tests/unit/sandbox/changes/test_ancestry.py",
                "tests/unit/sandbox/changes/test_footing.py",
                "tests/kernel/test_renames.py",
            ),
            mutants=(
                "claimed-entry-is-not-synced.toml",
                "directories-above-are-not-compared.toml",
                "displaced-goes-before-the-end.toml",
                "living-entries-are-recovered.toml",
                "moved-directory-takes-a-set-with-it.toml",
                "parked-set-lands-in-any-directory.toml",
                "renames-land-in-part.toml",
                "set-displaces-a-stranger.toml",
                "set-ignores-what-was-expected.toml",
                "set-is-committed-before-it-is-synced.toml",
                "set-removes-what-appeared.toml",
                "set-stays-half-done.toml",
                "sweep-removes-a-sets-names.toml",
                "torn-record-counts.toml",
                "what-lands-is-not-judged-again.toml",
            ),
        ),
        "G18": Guarantee(
            tests=(
                "tests/unit/apps/test_dual_gate.py",
                "tests/unit/apps/test_bare_plane.py",
                "tests/unit/plane/test_dual_gate.py",
                "tests/unit/plane/test_bare.py",
            ),
            mutants=(
                "admin-permissions-are-ignored.toml",
                "brought-plane-keeps-its-grants.toml",
                "gate-forgets-the-variable.toml",
                "gate-is-not-asked.toml",
                "gate-takes-any-value.toml",
            ),
        ),
        "G19": Guarantee(
            tests=(
                "tests/unit/agent/test_steps.py",
                "tests/unit/agent/test_executor.py",
                "tests/unit/agent/test_supervisor.py",
                "tests/unit/runtime/test_messages.py",
                "tests/unit/apps/test_sessions.py",
                "tests/unit/runtime/test_together.py",
            ),
            mutants=(
                "any-tool-runs.toml",
                "bounds-are-ignored.toml",
                "cancelled-calls-begin.toml",
                "closing-loses-a-turn.toml",
                "context-speaks-for-the-user.toml",
                "corrections-speak-for-the-user.toml",
                "cut-calls-run.toml",
                "cut-messages-run.toml",
                "cut-turn-runs.toml",
                "failed-turn-is-not-recorded.toml",
            ),
        ),
        "G20": Guarantee(
            tests=(
                "tests/property/test_budgets.py",
                "tests/property/test_delegation.py",
                "tests/unit/agent/test_exchange.py",
                "tests/unit/apps/test_sessions.py",
            ),
            mutants=(
                "anybody-is-delegated-to.toml",
                "attempts-are-free.toml",
                "child-budget-stands-alone.toml",
                "children-overspend.toml",
                "resumed-sessions-spend-anew.toml",
            ),
        ),
        "G21": Guarantee(
            tests=(
                "tests/contract/test_model_wires.py",
                "tests/contract/test_model_providers.py",
                "tests/unit/providers/test_choice.py",
            ),
            mutants=("key-is-shown.toml", "usual-key-goes-anywhere.toml"),
        ),
        "G22": Guarantee(
            tests=(
                "tests/unit/workspace/test_keeping.py",
                "tests/unit/storage/test_keeping.py",
                "tests/fault/test_history_faults.py",
                "tests/fault/test_history_power_cut.py",
            ),
            mutants=(
                "held-file-is-swept-away.toml",
                "replaced-content-is-not-kept.toml",
                "unkept-is-replaced.toml",
            ),
        ),
        "G23": Guarantee(
            tests=(
                "tests/unit/storage/test_objects.py",
                "tests/unit/storage/test_holding.py",
            ),
            mutants=(
                "first-name-is-not-looked-for.toml",
                "first-name-is-not-synced.toml",
                "object-is-named-before-its-bytes.toml",
                "object-is-not-checked.toml",
                "open-writers-are-ignored.toml",
            ),
        ),
        "G24": Guarantee(
            tests=(
                "tests/unit/apps/test_history.py",
                "tests/unit/runtime/test_undo.py",
                "tests/unit/runtime/test_changes.py",
            ),
            mutants=(
                "undo-ignores-changes.toml",
                "undo-ignores-modes.toml",
                "undo-takes-the-last-of-several.toml",
            ),
        ),
        "G25": Guarantee(
            tests=(
                "tests/fault/test_kill_history.py",
                "tests/unit/storage/test_keeping.py",
                "tests/unit/storage/test_pruning.py",
            ),
            mutants=(
                "killed-call-leaves-no-note.toml",
                "newest-call-is-forgotten.toml",
                "pruning-forgets-what-is-at-work.toml",
            ),
        ),
        "G26": Guarantee(
            tests=(
                "tests/kernel/test_run_shell.py::test_a_dry_run_only_reads_what_lies_outside_of_its_layers",
                "tests/kernel/test_unix_sockets.py",
                "tests/kernel/test_attacks.py",
                "tests/kernel/test_limits.py",
                "tests/kernel/test_layers.py",
                "tests/kernel/test_launcher.py",
                "tests/kernel/test_left_behind.py",
                "tests/unit/sandbox/test_staging_area.py",
                "tests/unit/sandbox/host/test_toolchains.py",
            ),
            mutants=(
                "dry-runs-write-outside.toml",
                "exchanged-places-are-read.toml",
                "hidden-names-are-seen.toml",
                "late-links-are-followed.toml",
                "namespaces-nest.toml",
                "pairs-send-to-names.toml",
                "planted-links-are-believed.toml",
                "removal-follows-links.toml",
                "who-watches-is-slowed.toml",
                "sockets-are-made-anywhere.toml",
            ),
        ),
        "G27": Guarantee(
            tests=(
                "tests/unit/workspace/search",
                "tests/unit/tools/test_grep.py",
                "tests/kernel/test_search_race.py",
            ),
            mutants=(
                "closed-files-have-rows.toml",
                "first-matches-are-chance.toml",
                "proposals-are-believed.toml",
                "ripgrep-sees-our-environment.toml",
                "walk-passes-links.toml",
            ),
        ),
        "G28": Guarantee(
            tests=("tests/unit/tools/test_write_output.py",),
            mutants=("next-name-is-not-judged.toml", "outputs-overwrite.toml"),
        ),
        "G29": Guarantee(
            tests=(
                "tests/unit/policy/test_policy_own_places.py",
                "tests/unit/sandbox/test_own_directories.py",
                "tests/kernel/test_own_directories.py",
                "tests/kernel/test_planes_below.py",
                "tests/unit/plane/test_bare.py",
                "tests/unit/plane/test_init.py",
                "tests/unit/plane/test_agents.py",
                "tests/unit/plane/test_admin_config.py",
                "tests/unit/plane/test_discovery.py",
            ),
            mutants=(
                "own-directories-are-open.toml",
                "own-state-is-readable.toml",
                "agents-directory-is-not-looked-at.toml",
                "client-settings-are-anybodys.toml",
                "command-renames-own-directories.toml",
                "contracts-are-anybodys.toml",
                "link-brings-other-settings.toml",
                "plane-below-is-open.toml",
                "repository-below-is-the-root.toml",
                "workspace-lies-in-another-plane.toml",
                "workspace-through-a-link.toml",
            ),
        ),
        "G30": Guarantee(
            tests=(
                "tests/unit/policy/questions/test_policy_diff.py",
                "tests/property/test_policy_past.py",
                "tests/unit/policy/questions/test_policy_replay.py",
                "tests/unit/apps/test_policy_past.py",
                "tests/unit/apps/test_gone_ledgers.py",
                "tests/unit/ledger/test_presence.py",
            ),
            mutants=(
                "binding-is-tried-alone.toml",
                "gone-ledger-is-an-empty-one.toml",
                "lost-call-is-guessed.toml",
                "lost-parent-is-guessed.toml",
                "witness-is-not-asked.toml",
            ),
        ),
        "G31": Guarantee(
            tests=(
                "tests/unit/ledger/test_export.py",
                "tests/unit/ledger/test_export_browser.py",
                "tests/unit/apps/test_ledger_export.py",
            ),
            mutants=(
                "page-holds-markup.toml",
                "page-trusts-signatures.toml",
                "page-trusts-the-roots.toml",
            ),
        ),
        "G32": Guarantee(
            tests=(
                "tests/unit/storage/test_blobs.py",
                "tests/unit/storage/test_ledger_pins.py",
                "tests/unit/apps/test_ledger_content.py",
                "tests/unit/runtime/test_contents.py",
            ),
            mutants=(
                "erased-content-comes-back.toml",
                "erased-content-stays.toml",
                "named-content-is-pruned.toml",
                "salt-stands-in-the-entry.toml",
            ),
        ),
        "G33": Guarantee(
            tests=(
                "tests/unit/apps/hook/test_images.py",
                "tests/fault/test_hook_fails_closed.py",
            ),
            mutants=(
                "any-image-counts.toml",
                "hook-answers-unrecorded.toml",
                "hook-fails-open.toml",
                "signals-end-the-hook.toml",
            ),
        ),
        "G34": Guarantee(
            tests=(
                "tests/unit/ledger/test_details.py",
                "tests/unit/gates/test_g0b.py",
                "tests/unit/gates/test_every_gate.py",
                "tests/unit/gates/test_g2.py",
                "tests/unit/gates/test_g4.py",
                "tests/unit/gates/test_g5.py",
                "tests/unit/gates/test_planted.py",
                "tests/unit/gates/test_planted_past.py",
                "tests/unit/packages/test_statements.py",
            ),
            mutants=(
                "who-left-still-approves.toml",
                "orphans-pass.toml",
                "anything-stands-beside-a-ledger.toml",
                "acceptance-files-are-anything.toml",
                "anchors-are-forgotten.toml",
                "configuration-may-open.toml",
                "any-key-approves.toml",
                "any-key-vouches.toml",
                "approval-is-used-twice.toml",
                "changed-acceptance-runs.toml",
                "nothing-looked-at-passes.toml",
                "old-statement-counts.toml",
                "unreadable-is-not-applicable.toml",
            ),
        ),
        "G35": Guarantee(
            tests=(
                "tests/unit/ledger/verify/test_tampering.py",
                "tests/unit/ledger/test_sealing.py",
                "tests/unit/ledger/test_sealed_vectors.py",
                "tests/unit/apps/test_ledger_proofs.py",
            ),
            mutants=(
                "any-signature-counts.toml",
                "held-root-is-not-compared.toml",
                "lost-anchor-is-a-new-one.toml",
                "signer-signs-two-histories.toml",
                "what-matters-waits.toml",
            ),
        ),
        "G36": Guarantee(
            tests=("tests/unit/packages/test_archive.py",),
            mutants=(
                "undeclared-files-come-along.toml",
                "unsafe-names-are-unpacked.toml",
                "headers-say-more-than-is-read.toml",
            ),
        ),
        "G37": Guarantee(
            tests=(
                "tests/unit/packages/test_install.py",
                "tests/fault/test_install_dies.py",
                "tests/fault/test_kill_install.py",
                "tests/unit/packages/test_approvals_of_changes.py",
                "tests/unit/apps/test_hidden_rows.py",
            ),
            mutants=(
                "packages-lock-the-plane.toml",
                "put-back-packages-count.toml",
                "used-approvals-count-again.toml",
                "swapped-package-is-forgotten.toml",
                "failed-tests-install.toml",
            ),
        ),
        "G38": Guarantee(
            tests=("tests/unit/apps/test_package_tools.py",),
            mutants=(
                "changed-tool-is-loaded.toml",
                "changed-files-are-used.toml",
                "package-code-is-not-judged.toml",
                "package-tools-say-what-they-do.toml",
                "unapproved-code-runs.toml",
            ),
        ),
        "G39": Guarantee(
            tests=(
                "tests/unit/packages/test_founding.py",
                "tests/fault/test_stopped_init.py",
                "tests/unit/packages/test_bootstrap.py",
            ),
            mutants=(
                "strangers-key-founds.toml",
                "left-keys-count.toml",
                "marker-comes-first.toml",
                "founding-records-twice.toml",
                "lost-configuration-founds.toml",
                "modes-change-the-archive.toml",
            ),
        ),
        "G40": Guarantee(
            tests=(
                "tests/unit/collector/test_judging.py",
                "tests/contract/test_collector_store.py",
                "tests/contract/test_collector_postgres.py",
                "tests/unit/apps/test_collector.py",
            ),
            mutants=(
                "offers-need-no-signature.toml",
                "offered-lines-follow-anything.toml",
                "offered-root-is-not-compared.toml",
                "second-history-is-taken.toml",
                "junk-makes-two-histories.toml",
                "one-bad-offer-stops-all.toml",
                "record-is-not-compared.toml",
            ),
        ),
        "G41": Guarantee(
            tests=(
                "tests/unit/tools/test_versions.py",
                "tests/unit/tools/test_str_replace.py",
                "tests/unit/tools/test_edit_file_dev.py",
                "tests/unit/tools/test_create_file.py",
                "tests/unit/tools/test_move_and_delete.py",
                "tests/unit/tools/test_grep.py",
            ),
            mutants=(
                "difference-shows-what-is-closed.toml",
                "edit-shows-its-neighbourhood.toml",
                "overwriting-shows-what-stood-there.toml",
                "moving-opens-what-is-closed.toml",
                "search-of-a-closed-file-is-free.toml",
            ),
        ),
        "G42": Guarantee(
            tests=(
                "tests/kernel/test_tracked_secrets.py",
                "tests/kernel/test_git_config.py",
                "tests/unit/sandbox/host/test_git_settings.py",
            ),
            mutants=(
                "tracked-files-are-hidden.toml",
                "changeable-configuration-names-files.toml",
                "shown-files-are-written.toml",
                "unrunnable-filters-commit-raw.toml",
            ),
        ),
        "G43": Guarantee(
            tests=(
                "tests/kernel/test_git_units.py",
                "tests/kernel/test_git_outside.py",
                "tests/unit/sandbox/git/test_folders.py",
                "tests/unit/sandbox/git/test_trees.py",
                "tests/unit/sandbox/host/test_git_outside.py",
                "tests/unit/workspace/test_beside.py",
            ),
            mutants=(
                "repositories-land-in-part.toml",
                "commits-take-out-what-was-not-shown.toml",
                "folders-change-what-is-outside.toml",
                "git-files-lead-anywhere.toml",
                "objects-are-believed.toml",
            ),
        ),
        "G44": Guarantee(
            tests=(
                "tests/unit/policy/commands/test_operator_commands.py",
                "tests/unit/apps/hook/test_persons_acts.py",
                "tests/kernel/test_persons_acts.py",
            ),
            mutants=(
                "commands-are-words-alone.toml",
                "clients-answer-for-persons.toml",
                "unlisted-commands-are-anybodys.toml",
            ),
        ),
        "G45": Guarantee(
            tests=(
                "tests/unit/policy/test_policy_lines.py",
                "tests/unit/runtime/test_dispatch.py",
                "tests/unit/apps/hook/test_tickets.py",
                "tests/kernel/test_shell_changes.py::test_where_policy_throws_changes_away_nothing_lands_and_the_result_says_so",
                "tests/kernel/test_confined_commands.py",
                "tests/unit/apps/hook/test_wrapped.py",
                "tests/unit/apps/hook/test_confined.py",
                "tests/kernel/test_one_command.py",
            ),
            mutants=(
                "confine-softens-a-question.toml",
                "a-stricter-word-unconfines.toml",
                "any-variable-is-set.toml",
                "approved-line-is-any-line.toml",
                "confinement-counts-on-any-host.toml",
                "unknown-words-are-never-a-denied-command.toml",
                "anything-may-be-lost.toml",
                "commands-outlast-their-client.toml",
                "thrown-away-changes-land.toml",
            ),
        ),
        "G46": Guarantee(
            tests=tuple(
                f"tests/contract/test_mcp_attacks.py::test_{name}"
                for name in (
                    "half_open_connections_keep_nobody_out_who_has_a_token",
                    "a_request_that_does_not_arrive_whole_in_time_is_closed",
                    "a_whole_request_in_pieces_is_answered",
                    "another_host_is_refused_whatever_the_token",
                    "a_page_of_another_origin_is_refused",
                    "without_the_token_nothing_is_answered",
                    "a_token_is_one_agents_and_a_session_is_its_tokens",
                    "a_token_that_was_replaced_counts_no_more",
                    "a_server_for_one_agent_knows_no_other_token",
                )
            ),
            mutants=("half-open-connections-stay.toml", "another-agents-token-counts.toml"),
        ),
        "G47": Guarantee(
            tests=("tests/kernel/test_network.py", "tests/kernel/test_network_calls.py"),
            mutants=(
                "denied-names-are-known.toml",
                "names-lead-anywhere.toml",
                "other-hosts-are-asked-for.toml",
                "connections-are-recorded-late.toml",
                "connections-outlive-their-policy.toml",
                "connections-pass-requests-unseen.toml",
                "network-outlives-its-command.toml",
            ),
        ),
        "G48": Guarantee(
            tests=("tests/kernel/test_network_requests.py", "tests/unit/network/test_requests.py"),
            mutants=(
                "credentials-open-their-hosts.toml",
                "placeholders-go-anywhere.toml",
                "hosts-are-not-verified.toml",
            ),
        ),
        "G49": Guarantee(
            tests=(
                "tests/kernel/test_shell_sessions.py",
                "tests/kernel/test_shell_processes.py",
                "tests/kernel/test_native_shells.py",
                "tests/unit/apps/hook/test_background.py",
            ),
            mutants=(
                "snapshots-are-not-judged.toml",
                "session-lines-keep-their-answer.toml",
                "loaders-variables-are-kept.toml",
                "secrets-are-shown-late.toml",
                "own-changes-are-overwritten.toml",
                "others-changes-are-taken-back.toml",
                "sessions-share-a-network.toml",
                "other-kinds-meet.toml",
                "narrow-commands-meet.toml",
            ),
        ),
        "G50": Guarantee(
            tests=(
                "tests/property/test_policy_arguments.py",
                "tests/unit/policy/test_policy_mcp.py",
                "tests/unit/plane/test_grants.py",
                "tests/unit/apps/hook/test_served.py",
            ),
            mutants=(
                "missing-arguments-free-a-call.toml",
                "paths-lead-out-of-their-pattern.toml",
                "one-element-is-enough.toml",
                "arguments-are-left-out.toml",
                "servers-are-trusted-unseen.toml",
                "any-server-is-ours.toml",
            ),
        ),
        "G51": Guarantee(
            tests=(
                "tests/unit/gateway/test_confine.py",
                "tests/unit/gateway/test_results.py",
                "tests/unit/policy/test_policy_mcp.py",
                "tests/kernel/test_mcp_credentials.py",
                "tests/kernel/test_mcp_servers.py",
                "tests/kernel/test_mcp_hostile.py",
            ),
            mutants=(
                "servers-reach-what-agents-reach.toml",
                "other-words-are-called.toml",
                "other-versions-are-called.toml",
                "answers-to-nothing-count.toml",
                "values-come-back.toml",
                "tokens-stand-in-policy.toml",
            ),
        ),
        "G52": Guarantee(
            tests=("tests/unit/apps/web/test_access.py", "tests/unit/apps/web/test_acts.py"),
            mutants=(
                "codes-count-twice.toml",
                "any-origin-is-let-in.toml",
                "readers-act.toml",
                "later-answers-count.toml",
                "another-policy-is-saved.toml",
            ),
        ),
    }
)
