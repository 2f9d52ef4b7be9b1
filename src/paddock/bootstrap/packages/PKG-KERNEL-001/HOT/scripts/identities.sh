# Each installed package and its identity, computed from the file: nothing is taken on trust.
# Run in the root of the plane: sh HOT/scripts/identities.sh
set -eu
for manifest in HOT/installed/*/manifest.json; do
  [ -f "$manifest" ] || continue
  package=${manifest%/manifest.json}
  printf '%s sha256:%s\n' "${package##*/}" "$(sha256sum "$manifest" | cut -d ' ' -f 1)"
done
