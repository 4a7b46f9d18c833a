#!/usr/bin/env bash
# Installs the C and C++ library with CMake and with cargo-c, each into a temporary folder. Builds
# programs with the installed library and runs them without a GPU.
#
# A check whose tool is missing is skipped with a message. With --install, as CI calls the script,
# CMake is installed into .tools/ (ignored by git) if it is missing, and any other missing tool is a
# failure. clang++ and cargo-c are exceptions; cargo-c takes many minutes to build.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
install=no
[ "${1:-}" = --install ] && install=yes

target=${CARGO_TARGET_DIR:-$root/target}
export CARGO_TARGET_DIR=$target
# Without a visible GPU the test does the same on every machine.
export CUDA_VISIBLE_DEVICES=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PGEMM_CACHE_DIR=$work/cache
PATH=$root/.tools/cmake/bin:$PATH

have() { command -v "$1" >/dev/null; }

# Reports a skipped check; with --install a skipped check is a failure.
skip() {
    if [ $install = yes ]; then
        echo "test-c: $1" >&2
        exit 1
    fi
    echo "SKIPPED: $1"
}

fail() {
    echo "test-c: $1" >&2
    exit 1
}

install_cmake() {
    # The version check fails for a CMake whose virtual environment has been moved; it is then
    # reinstalled.
    if cmake --version >/dev/null 2>&1 || [ $install = no ]; then return; fi
    python3 -m venv --clear .tools/cmake
    .tools/cmake/bin/python -m pip install --quiet --disable-pip-version-check 'cmake>=3.18' ||
        fail "pip could not install cmake into .tools/cmake; check the network"
}

# Configures, builds and installs the library into $work/NAME.
install_with_cmake() { # name, options
    local name=$1
    shift
    cmake -S . -B "$work/build-$name" -DPREFIX="$work/$name" -DCMAKE_INSTALL_LIBDIR=lib "$@" >"$work/log" 2>&1 &&
        cmake --build "$work/build-$name" >"$work/log" 2>&1 &&
        cmake --install "$work/build-$name" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "CMake failed with: $*"
    }
}

# Runs a program. The exit statuses 0 and 77 are success; 77 means that the program needs a GPU.
run_program() { # program, arguments
    local status=0
    "$@" || status=$?
    [ $status = 0 ] || [ $status = 77 ] || fail "$1 ended with status $status"
}

# Builds and runs the README's program and the program beside cuBLAS with the flags of the
# pkg-config file.
test_pkg_config() { # prefix
    if ! have pkg-config; then
        skip "no pkg-config: the pkg-config file of $1 is not tested (Debian and Ubuntu: apt install pkg-config)"
        return
    fi
    export PKG_CONFIG_PATH=$1/lib/pkgconfig
    local compiler program
    for compiler in $compilers; do
        for program in $programs; do
            # shellcheck disable=SC2046 # the flags are separate words
            $compiler -std=c++17 -Wall -Wextra -pedantic -Werror -I examples "$program" -o "$work/pkg_config_program" \
                $(pkg-config --cflags --libs persistent_gemm) -ldl
            LD_LIBRARY_PATH=$1/lib run_program "$work/pkg_config_program"
        done
    done
    [ "$(pkg-config --modversion persistent_gemm)" = "$version" ] || fail "$1: the pkg-config file does not have version $version"
}

test_find_package() { # prefix
    local compiler program build
    for compiler in $compilers; do
        build=$work/consumer-$compiler
        cmake -S crates/c/tests/installed -B "$build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_COMPILER="$compiler" \
            -DINCLUDES="$root/examples" -DPROGRAMS="$(printf "$root/%s;" $programs)" >"$work/log" 2>&1 &&
            cmake --build "$build" >"$work/log" 2>&1 || {
            cat "$work/log" >&2
            fail "a program that uses the CMake package does not build with $compiler"
        }
        for program in $programs; do
            program=$build/$(basename "$program" .cpp)
            run_program "${program}_persistent_gemm"
            run_program "${program}_static"
        done
    done
}

# Runs C and C++ programs under the address sanitiser, which also finds leaks.
test_with_sanitiser() { # prefix
    local flags=(-g -fsanitize=address -I "$1/include")
    echo 'int main(void) { return 0; }' >"$work/empty.c"
    if ! gcc "${flags[@]}" "$work/empty.c" -o "$work/empty" 2>/dev/null; then
        skip "gcc has no address sanitiser: C and C++ programs are not tested with it"
        return
    fi
    local program compiler status
    for program in crates/c/tests/linked/api.c examples/batch_demo.c examples/host_demo.cpp examples/resident_demo.cpp; do
        compiler=(gcc -std=c11 -D_POSIX_C_SOURCE=200809L)
        [ "${program##*.}" = c ] || compiler=(g++ -std=c++17)
        "${compiler[@]}" "${flags[@]}" "$program" -o "$work/sanitised" -L "$1/lib" -lpersistent_gemm -lm -ldl
        status=0
        LD_LIBRARY_PATH=$1/lib "$work/sanitised" 2>"$work/log" || status=$?
        cat "$work/log" >&2
        [ $status = 0 ] || [ $status = 77 ] || fail "$program failed under the address sanitiser"
        # An example must report why it cannot run.
        [ "${program%%/*}" != examples ] || grep -q "no CUDA driver\|sees no GPU" "$work/log" ||
            fail "$program does not report that there is no GPU"
    done
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
for compiler in gcc g++; do
    have $compiler || {
        skip "no $compiler: the C and C++ library is not tested (Debian and Ubuntu: apt install g++)"
        exit 0
    }
done

compilers=g++
if have clang++; then compilers="g++ clang++"; else echo "SKIPPED: no clang++: C++ programs are compiled with g++ only"; fi
programs="crates/c/tests/linked/snippet.cpp crates/c/tests/gpu/snippet_cublas.cpp"

install_cmake
if cmake --version >/dev/null 2>&1; then
    echo "-- CMake $(cmake --version | sed -n '1s/.* //p')"
    if cmake -S . -B "$work/build-80" -DCUDA_ARCH=80 >"$work/log" 2>&1; then
        fail "CMake accepted CUDA_ARCH=80"
    fi
    grep -q "CUDA_ARCH=80 is not supported" "$work/log" || fail "CMake rejected CUDA_ARCH=80 without the reason"
    install_with_cmake tuner -DPERSISTENT_GEMM_TUNER=ON
    "$work/tuner/bin/pgemm" --version
    install_with_cmake plain
    [ ! -e "$work/plain/bin" ] || fail "pgemm was installed without PERSISTENT_GEMM_TUNER=ON"
    (cd "$work/build-plain" && ctest --output-on-failure)
    test_find_package "$work/plain"
    test_pkg_config "$work/plain"
    test_with_sanitiser "$work/plain"
else
    skip "no cmake: the CMake installation is not tested (pip install cmake, or scripts/test-c.sh --install)"
fi

if have cargo-cinstall; then
    echo "-- $(cargo cinstall --version)"
    cargo cinstall --locked --debug --manifest-path crates/c/Cargo.toml --prefix "$work/cargo-c-prefix" --libdir lib \
        >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "cargo-c failed"
    }
    cmp crates/c/include/persistent_gemm.h "$work/cargo-c-prefix/include/persistent_gemm.h"
    test_pkg_config "$work/cargo-c-prefix"
else
    echo "SKIPPED: no cargo-c: the cargo-c installation is not tested (cargo install cargo-c)"
fi
echo "test-c: all checks passed"
