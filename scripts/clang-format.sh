#!/usr/bin/env bash
# Checks the format of the C, C++ and CUDA sources against .clang-format. With --write the script
# formats them. The first run installs clang-format into .tools/clang-format, which git ignores.
set -euo pipefail
cd "$(dirname "$0")/.."
version=23.1.5
tools=.tools/clang-format
binary=$tools/bin/clang-format

if ! "$binary" --version 2>/dev/null | grep -q "version $version"; then
    python3 -m venv "$tools" || {
        echo "clang-format: python3 with venv is required (Debian and Ubuntu: apt install python3-venv)" >&2
        exit 1
    }
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check "clang-format==$version" || {
        echo "clang-format: pip could not install clang-format $version; check the network" >&2
        exit 1
    }
fi
# The header that cbindgen makes has its end from the second of these files.
mapfile -t sources < <(git ls-files '*.c' '*.cpp' '*.hpp' '*.cu' '*.h' ':!crates/c/include/persistent_gemm.h')
case ${1:-} in
--write) "$binary" -i "${sources[@]}" ;;
'') "$binary" --dry-run --Werror "${sources[@]}" || {
    echo "clang-format: scripts/clang-format.sh --write formats these files" >&2
    exit 1
} ;;
*)
    echo "usage: scripts/clang-format.sh [--write]" >&2
    exit 2
    ;;
esac
