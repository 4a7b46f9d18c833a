#!/usr/bin/env bash
# Builds the Python wheel, installs it into a fresh environment, and tests it there on the CPU; no GPU. maturin, numpy and pytest come
# into .tools/python (ignored by git) the first time; tests of PyTorch are skipped where the environment that $PYTHON names, which
# has to have numpy and pytest, has none. With --wheel FOLDER it only puts the wheel there.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tools=$root/.tools/python
python=$tools/bin/python

fail() {
    echo "test-python: $1" >&2
    exit 1
}

# The tools, and as files what the fresh environment gets.
install_tools() {
    if [ -x "$python" ] && [ -d "$tools/wheels" ] && "$python" -m maturin --version >/dev/null 2>&1; then
        return
    fi
    python3 -m venv "$tools" || fail "python3 with venv is needed (Debian and Ubuntu: apt install python3-venv)"
    "$python" -m pip install --quiet --disable-pip-version-check 'maturin>=1.7,<2' &&
        "$python" -m pip download --quiet --disable-pip-version-check --dest "$tools/wheels" 'numpy>=1.26' ml_dtypes pytest ||
        fail "pip could not install maturin, numpy and pytest into .tools/python: is there a network?"
}

build_wheel() { # folder
    (cd crates/python && nice "$python" -m maturin build --release --locked --quiet --interpreter "$python" --out "$1") ||
        fail "maturin could not build the wheel"
}

install_tools
if [ "${1:-}" = --wheel ]; then
    build_wheel "${2:?a folder}"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What is tested is the same on every machine.
export CUDA_VISIBLE_DEVICES= PGEMM_CACHE_DIR=$work/cache
build_wheel "$work"
if [ -n "${PYTHON:-}" ]; then
    "$PYTHON" -m venv --system-site-packages "$work/fresh"
else
    "$python" -m venv "$work/fresh"
    "$work/fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$tools/wheels" \
        numpy ml_dtypes pytest
fi
"$work/fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$work"/*.whl
# From a copy, so that nothing but the wheel is imported.
cp -r crates/python/tests "$work/tests"
PGEMM_TOOLS=$root/tools "$work/fresh/bin/python" -m pytest -q -ra -p no:cacheprovider "$work/tests"
echo "test-python: all passed"
