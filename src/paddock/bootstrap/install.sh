#!/bin/sh
# Make a plane from this archive: sh install.sh --root DIR [--dev] [--force]
#
# exit 0  done, and every gate that applies has passed
#      1  wrong arguments, a prerequisite is missing, or a plane is there and no --force
#      2  the install failed
#      3  the plane is there, and a gate failed
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

usage='usage: sh install.sh --root DIR [--dev] [--force]'
refuse() {
  printf 'error[usage]: %s\n  hint:  %s\n' "$1" "$usage" >&2
  exit 1
}

root=
dev=
force=
while [ "$#" -gt 0 ]; do
  case $1 in
    --root)
      [ "$#" -gt 1 ] || refuse '--root names no directory'
      root=$2
      shift
      ;;
    --root=*) root=${1#--root=} ;;
    --dev) dev=--dev ;;
    --force) force=--force ;;
    --help | -h)
      printf '%s\n' "$usage"
      exit 0
      ;;
    *) refuse "unknown argument '$1'" ;;
  esac
  shift
done
[ -n "$root" ] || refuse '--root is missing'

[ -f "$here/paddock" ] && [ -f "$here/bootstrap.json" ] && [ -d "$here/src" ] || {
  echo "error[host]: this folder is no unpacked bootstrap archive" >&2
  echo "  where: $here" >&2
  exit 1
}
sh "$here/paddock" --version >/dev/null || exit 1

set -- bootstrap install "--root=$root" "--from=$here"
[ -z "$dev" ] || set -- "$@" "$dev"
[ -z "$force" ] || set -- "$@" "$force"
status=0
sh "$here/paddock" "$@" || status=$?
case $status in
  0 | 1 | 2 | 3) exit "$status" ;;
  *) exit 2 ;; # whatever else went wrong: there is no plane that could be used
esac
