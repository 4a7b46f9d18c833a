#!/usr/bin/env bash
# Installs the C and C++ library by CMake and by cargo-c into folders of their own, builds programs with what was installed, and
# runs them; no GPU. What the machine lacks is said and left out; with --install, as CI calls it, cmake is installed into .tools/
# (ignored by git) the first time, and whatever else is lacking is a failure but cargo-c, which takes many minutes to build.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
install=no
[ "${1:-}" = --install ] && install=yes

target=${CARGO_TARGET_DIR:-$root/target}
export CARGO_TARGET_DIR=$target
# What is tested is the same on every machine.
export CUDA_VISIBLE_DEVICES=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PGEMM_CACHE_DIR=$work/cache
PATH=$root/.tools/cmake/bin:$PATH

have() { command -v "$1" >/dev/null; }

# A line for what is left out, which CI does not allow.
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
    # One whose environment has moved is there and does not run.
    if cmake --version >/dev/null 2>&1 || [ $install = no ]; then return; fi
    python3 -m venv --clear .tools/cmake
    .tools/cmake/bin/python -m pip install --quiet --disable-pip-version-check 'cmake>=3.18' ||
        fail "pip could not install cmake into .tools/cmake: is there a network?"
}

# Configures and builds; installs into $work/$1.
by_cmake() { # name, options
    local name=$1
    shift
    cmake -S . -B "$work/build-$name" -DPREFIX="$work/$name" -DCMAKE_INSTALL_LIBDIR=lib "$@" >"$work/log" 2>&1 &&
        cmake --build "$work/build-$name" >"$work/log" 2>&1 &&
        cmake --install "$work/build-$name" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "CMake failed with: $*"
    }
}

# Runs a program. It ends well where creating says that there is no GPU, 77 where it is for one.
runs() { # program, arguments
    local status=0
    "$@" || status=$?
    [ $status = 0 ] || [ $status = 77 ] || fail "$1 ended with status $status"
}

# The README's program, and the one beside cuBLAS, with what a pkg-config file says.
by_pkg_config() { # prefix
    if ! have pkg-config; then
        skip "no pkg-config: what $1 says is not tried (Debian and Ubuntu: apt install pkg-config)"
        return
    fi
    export PKG_CONFIG_PATH=$1/lib/pkgconfig
    local compiler program
    for compiler in $compilers; do
        for program in $programs; do
            # shellcheck disable=SC2046 # words are meant
            $compiler -std=c++17 -Wall -Wextra -pedantic -Werror -I examples "$program" -o "$work/by_pkg_config" \
                $(pkg-config --cflags --libs persistent_gemm) -ldl
            LD_LIBRARY_PATH=$1/lib runs "$work/by_pkg_config"
        done
    done
    [ "$(pkg-config --modversion persistent_gemm)" = "$version" ] || fail "$1: not version $version"
}

by_find_package() { # prefix
    local compiler program build
    for compiler in $compilers; do
        build=$work/consumer-$compiler
        cmake -S crates/c/tests/installed -B "$build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_COMPILER="$compiler" \
            -DINCLUDES="$root/examples" -DPROGRAMS="$(printf "$root/%s;" $programs)" >"$work/log" 2>&1 &&
            cmake --build "$build" >"$work/log" 2>&1 || {
            cat "$work/log" >&2
            fail "a program that finds the package does not build with $compiler"
        }
        for program in $programs; do
            program=$build/$(basename "$program" .cpp)
            runs "${program}_persistent_gemm"
            runs "${program}_static"
        done
    done
}

# C and C++ programs with what the address sanitiser watches, leaks at their end included.
sanitised() { # prefix
    local flags=(-g -fsanitize=address -I "$1/include")
    echo 'int main(void) { return 0; }' >"$work/empty.c"
    if ! gcc "${flags[@]}" "$work/empty.c" -o "$work/empty" 2>/dev/null; then
        skip "gcc has no address sanitiser: C programs do not run under it"
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
        # The examples say why they end.
        [ "${program%%/*}" != examples ] || grep -q "no CUDA driver\|sees no GPU" "$work/log" ||
            fail "$program does not say that there is no GPU"
    done
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
for compiler in gcc g++; do
    have $compiler || {
        skip "no $compiler: nothing of the C and C++ library is tried (Debian and Ubuntu: apt install g++)"
        exit 0
    }
done

compilers=g++
if have clang++; then compilers="g++ clang++"; else echo "SKIPPED: no clang++: C++ programs are compiled by g++ alone"; fi
programs="crates/c/tests/linked/snippet.cpp crates/c/tests/gpu/snippet_cublas.cpp"

install_cmake
if cmake --version >/dev/null 2>&1; then
    echo "-- CMake $(cmake --version | sed -n '1s/.* //p')"
    if cmake -S . -B "$work/build-80" -DCUDA_ARCH=80 >"$work/log" 2>&1; then
        fail "CUDA_ARCH=80 was taken"
    fi
    grep -q "CUDA_ARCH=80 is not possible" "$work/log" || fail "CUDA_ARCH=80 was refused without saying why"
    by_cmake tuner -DPERSISTENT_GEMM_TUNER=ON
    "$work/tuner/bin/pgemm" --version
    by_cmake plain
    [ ! -e "$work/plain/bin" ] || fail "pgemm was installed without PERSISTENT_GEMM_TUNER=ON"
    (cd "$work/build-plain" && ctest --output-on-failure)
    by_find_package "$work/plain"
    by_pkg_config "$work/plain"
    sanitised "$work/plain"
else
    skip "no cmake: what it installs is not tried (pip install cmake, or scripts/test-c.sh --install)"
fi

if have cargo-cinstall; then
    echo "-- $(cargo cinstall --version)"
    cargo cinstall --locked --debug --manifest-path crates/c/Cargo.toml --prefix "$work/cargo-c-prefix" --libdir lib \
        >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "cargo-c failed"
    }
    cmp crates/c/include/persistent_gemm.h "$work/cargo-c-prefix/include/persistent_gemm.h"
    by_pkg_config "$work/cargo-c-prefix"
else
    echo "SKIPPED: no cargo-c: what it installs is not tried (cargo install cargo-c)"
fi
echo "test-c: all passed"
