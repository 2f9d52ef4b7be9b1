#!/bin/sh
# A devcontainer feature: Paddock in an environment of its own, its programs on everybody's PATH.
set -eu

version="${VERSION:-latest}"
place=/opt/paddock
command -v python3 >/dev/null || { echo "paddock: this image has no python3" >&2; exit 1; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "paddock: Python 3.11 or newer is needed" >&2; exit 1; }
python3 -m venv "$place"
if [ "$version" = latest ]; then wanted=paddock; else wanted="paddock==$version"; fi
# For trials: a built package instead of one from an index.
"$place/bin/pip" install --no-cache-dir "${PADDOCK_PACKAGE:-$wanted}"
for program in paddock paddock-verify; do
  ln -sf "$place/bin/$program" "/usr/local/bin/$program"
done
# A volume takes the owner of what it covers. Names cannot be hidden on the container's own overlayfs.
install -d -m 700 -o "${_REMOTE_USER:-root}" /var/lib/paddock
paddock --version
