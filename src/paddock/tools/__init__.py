"""One file per tool: its spec, its argument type, its handler.

    spec, toolsets, operations, targets   what a tool is; which there are; what they are judged as
    arguments, outputs   from JSON to typed values, and the fields that results share
    view, ls, find, grep, read_file, list_files, grep_dev   tools that look
    create_file, str_replace, write_output, write_file_dev, edit_file_dev   tools that write
    move_file, delete_file, run_shell, run_shell_dev   tools that move, remove and run
    query_ledger, list_packages, gate_check   tools that ask about the plane
    windows, viewing, listed_names, search_rows   what those that look have in common
    editing, writing, versions, effects, earlier, cancelling   and those that change something
    shell_calls, shell_port, shell_results   and those that run commands

A tool gets ports (the workspace, what may be shown), never a path of the host.
It turns bound arguments into a plan (resolved paths and the actions to be
judged) and, once policy and approval have said yes, carries out that plan: what
was judged is what is used. A tool decides nothing about permission.
"""
