#!/usr/bin/env bash
# Builds the Python wheel, installs it into a fresh environment, and runs its tests there without a
# GPU and with the emulated device.
#
# The first run installs maturin, numpy and pytest into .tools/python, which git ignores. The fresh
# environment extends the environment of $PYTHON if this variable is set; that environment must have
# numpy and pytest. Tests of PyTorch are skipped if the environment lacks PyTorch.
#
# With `--wheel FOLDER` the script only builds the wheel and puts it into FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tools=$root/.tools/python
python=$tools/bin/python

fail() {
    echo "test-python: $1" >&2
    exit 1
}

# Installs the tools, and downloads the wheels that the fresh environment installs.
install_tools() {
    if [ -x "$python" ] && [ -d "$tools/wheels" ] && "$python" -m maturin --version >/dev/null 2>&1; then
        return
    fi
    python3 -m venv "$tools" || fail "python3 with venv is required (Debian and Ubuntu: apt install python3-venv)"
    "$python" -m pip install --quiet --disable-pip-version-check 'maturin>=1.7,<2' &&
        "$python" -m pip download --quiet --disable-pip-version-check --dest "$tools/wheels" 'numpy>=1.26' ml_dtypes pytest ||
        fail "pip could not install maturin, numpy and pytest into .tools/python; check the network"
}

build_wheel() { # folder
    (cd crates/python && nice "$python" -m maturin build --release --locked --quiet --interpreter "$python" --out "$1") ||
        fail "maturin could not build the wheel"
}

install_tools
if [ "${1:-}" = --wheel ]; then
    build_wheel "${2:?--wheel needs a folder}"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without a visible GPU the test does the same on every machine.
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
# The tests run from a copy, so that they import the installed wheel and not the sources.
cp -r crates/python/tests "$work/tests"
run_tests() {
    PGEMM_TOOLS=$root/tools PGEMM_BOOK=$root "$work/fresh/bin/python" -m pytest -q -ra -p no:cacheprovider "$work/tests"
}
run_tests
# With the emulated driver, as the tests in Rust have built it.
target=${CARGO_TARGET_DIR:-$root/target}
driver=$target/debug/deps/libpgemm_emulated_driver.so
if [ ! -f "$driver" ]; then
    cargo build --quiet --locked --package pgemm-emulated-driver --profile test ||
        fail "cargo could not build the emulated driver"
    driver=$target/debug/libpgemm_emulated_driver.so
fi
mkdir "$work/libraries"
ln -s "$driver" "$work/libraries/libcuda.so"
ln -s "$driver" "$work/libraries/libcuda.so.1"
unset CUDA_VISIBLE_DEVICES
LD_LIBRARY_PATH=$work/libraries PGEMM_AUTOTUNE=$work/autotune run_tests
echo "test-python: all checks passed"
