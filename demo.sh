#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# demo.sh: from a fresh checkout to a story, with one command.
#
# Installs what is missing (see tools/install-deps), builds a release in build/ and lets the small model that comes
# with the sources tell a story. The story alone goes to standard output.
set -euo pipefail
cd "$(dirname "$0")"
. tools/install-deps

install_deps "${deps_build[@]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building build/quern ..." >&2
if ! { [ -f build/build.ninja ] || meson setup build --buildtype=release; } > "$log" 2>&1 ||
    ! ninja -C build quern >> "$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "demo.sh: the build failed" >&2
    exit 1
fi

echo "A 15M-parameter model (models/stories15M-q8_0.gguf) continues \"Once upon a time\":" >&2
build/quern run models/stories15M-q8_0.gguf --greedy -n 200 "Once upon a time" < /dev/null
