#!/usr/bin/env bash
# Tries a release package in folders with whole systems, as debootstrap makes them, without Rust and
# without the sources: as an ordinary user it unpacks the archive, installs it to a prefix, runs the
# programs, builds programs with the library where the system has a compiler, installs the wheel
# where there is Python 3.10, and uninstalls. Then it compares the files with those before.
#
#     scripts/try-dist.sh target/dist/persistent_dense_gemm_hopper-linux-x86_64.tar.gz ROOT...
#
# A system can be made by
#
#     debootstrap --variant=minbase --include=python3-venv,gcc,g++,cmake,make,pkg-config \
#         bookworm ROOT http://deb.debian.org/debian
#
# The script needs root for chroot. A step whose tools a system lacks is skipped with a message. The
# root / is this system; then only the files in the folder of the trial are compared. With
# PGEMM_REQUIRE_GPU=1 the examples must find a GPU, for example in this system.
set -euo pipefail

[ $# -ge 2 ] || {
    echo "usage: scripts/try-dist.sh ARCHIVE ROOT..." >&2
    exit 1
}
[ "$(id -u)" = 0 ] || {
    echo "try-dist: chroot needs root: run it as root, or in a container" >&2
    exit 1
}
archive=$(realpath "$1")
shift

# What is done in the system, by an ordinary user who has the archive in the current folder.
read -r -d '' trial <<'TRIAL' || true
set -eu
# Both caches of kernels, the library's and the driver's, are in a folder that is removed at the
# end.
export HOME=$PWD PGEMM_CACHE_DIR=$PWD/cache CUDA_CACHE_PATH=$PWD/cache/driver LC_ALL=C
PATH=/usr/local/bin:/usr/bin:/bin
prefix=$HOME/prefix
say() { echo "-- $1"; }
fail() { echo "FAILED: $1" >&2; exit 1; }
# Runs a program that needs a GPU: status 77 says that there is none.
run_on_gpu() {
    status=0
    "$@" >log 2>&1 || status=$?
    cat log
    [ $status = 0 ] && return
    [ $status = 77 ] || fail "$1 ended with status $status"
    [ -z "${PGEMM_REQUIRE_GPU:-}" ] || fail "$1 found no GPU"
    grep -q 'CUDA driver\|GPU' log || fail "$1 does not say why it did not run"
}

say "system: $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release), $(getconf GNU_LIBC_VERSION), $(uname -m), $(id -un)"
! command -v cargo >/dev/null || fail "the system has Rust"
sha256sum --check --quiet ./*.sha256
tar -xzf ./*.tar.gz
find . | sort >before

say "installation to $prefix"
./persistent_dense_gemm_hopper-*/install.sh --prefix "$prefix" >log
cat log
if ./persistent_dense_gemm_hopper-*/install.sh 2>log; then fail "an ordinary user could write /opt"; fi
cat log
PATH=$prefix/bin:$PATH

say "host_demo and the other examples"
for program in host_demo batch_demo resident_demo; do run_on_gpu $program; done
bench_gemm --help >log || fail "bench_gemm --help"

say "command"
pgemm --version
pgemm doctor
pgemm run --m 512 --n 384 --k 256 --dtype bf16 --verify
pgemm run --m 300 --n 200 --k 100 --dtype f16 --backend emulator --verify
[ -n "$(ls "$prefix/share/man/man1/pgemm.1" "$prefix/share/bash-completion/completions/pgemm")" ]

if command -v gcc >/dev/null && command -v g++ >/dev/null && command -v pkg-config >/dev/null; then
    say "programs in C and C++ by pkg-config, $(gcc -dumpversion)"
    examples=$prefix/share/persistent_gemm/examples
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs persistent_gemm)
    gcc -std=c11 -D_POSIX_C_SOURCE=200809L "$examples/batch_demo.c" -o from_c $flags -lm -ldl
    g++ -std=c++17 "$examples/host_demo.cpp" -o from_cpp $flags -ldl
    for program in ./from_c ./from_cpp; do LD_LIBRARY_PATH=$prefix/lib run_on_gpu $program; done
    [ "$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --modversion persistent_gemm)" = "$(pgemm --version | cut -d ' ' -f 2)" ] ||
        fail "pkg-config has another version than the command"
else
    echo "SKIPPED: no gcc, g++ or pkg-config: no program is built with the library"
fi
if command -v cmake >/dev/null && command -v g++ >/dev/null; then
    say "programs by CMake, $(cmake --version | head -n 1), shared and static"
    mkdir project
    cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(consumer LANGUAGES CXX)
find_package(persistent_gemm 0.1 REQUIRED)
foreach(kind persistent_gemm static)
  add_executable(demo_${kind} ${SOURCE})
  target_compile_features(demo_${kind} PRIVATE cxx_std_17)
  target_link_libraries(demo_${kind} PRIVATE persistent_gemm::${kind} ${CMAKE_DL_LIBS})
endforeach()
CMAKE
    { cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" \
        -DSOURCE="$prefix/share/persistent_gemm/examples/host_demo.cpp" && cmake --build project/build; } >log 2>&1 ||
        { cat log; fail "a program with the CMake package does not build"; }
    for kind in persistent_gemm static; do run_on_gpu project/build/demo_$kind; done
    sed -i 's/persistent_gemm 0.1 REQUIRED/persistent_gemm 99.1 REQUIRED/' project/CMakeLists.txt
    ! cmake -S project -B project/other -DCMAKE_PREFIX_PATH="$prefix" -DSOURCE=none >log 2>&1 || fail "CMake took another version"
else
    echo "SKIPPED: no cmake or g++: no program is built by CMake"
fi

if ! command -v python3 >/dev/null; then
    echo "SKIPPED: no Python: the wheel is not installed"
elif ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "SKIPPED: $(python3 --version) is older than 3.10: the wheel is not installed"
elif ! python3 -c 'import ensurepip'; then
    echo "SKIPPED: Python has no venv: the wheel is not installed"
else
    say "wheel, $(python3 --version)"
    python3 -m venv environment
    environment/bin/python -m pip install --quiet --no-index --disable-pip-version-check "$prefix"/share/persistent_gemm/wheel/*.whl
    cat >product.py <<'PYTHON'
import array
import persistent_gemm

rows, columns, depth = 64, 48, 32
class Matrix:
    """Rows of numbers in binary32, for the array interface, so that numpy is not needed."""
    def __init__(self, rows, columns, values):
        self.values = array.array("f", values)
        self.__array_interface__ = {"shape": (rows, columns), "typestr": "<f4", "version": 3, "data": (self.values.buffer_info()[0], False)}

a = Matrix(rows, depth, (i % 7 - 3 for i in range(rows * depth)))
b = Matrix(depth, columns, (i % 5 - 2 for i in range(depth * columns)))
d = Matrix(rows, columns, [0] * (rows * columns))
persistent_gemm.matmul(a, b, out=d)
for i in range(rows):
    for j in range(columns):
        expected = sum(a.values[i * depth + k] * b.values[k * columns + j] for k in range(depth))
        assert d.values[i * columns + j] == expected, (i, j, d.values[i * columns + j], expected)
print(f"persistent_gemm {persistent_gemm.__version__}: {rows}x{columns}x{depth} in FP32 is exact")
PYTHON
    environment/bin/python product.py
    environment/bin/python "$prefix/share/persistent_gemm/tools/autotune.py" --help >log || { cat log; fail "autotune.py --help"; }
    environment/bin/python -m pip uninstall --quiet --yes persistent-gemm
fi

say "removal"
"$prefix/share/persistent_gemm/install.sh" --uninstall
rm -rf cache project environment product.py from_c from_cpp log
find . ! -name after | sort >after
diff before after | grep -v ' \./before$' >left || true
if grep -q '^[<>]' left; then
    cat left
    fail "files are left, or missing, after the removal"
fi
say "nothing is left"
TRIAL

status=0
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"' EXIT
for root in "$@"; do
    echo "== $root"
    root=${root%/}
    folder=$root/home/try-dist
    # Prints all files of the system, but for those of the kernel and of the trial.
    list() {
        [ -n "$root" ] || return 0
        find "$root" -path "$folder" -prune -o -path "$root/proc" -prune -o -path "$root/dev" -prune -o -print | sort
    }
    [ ! -e "$folder" ] || {
        echo "try-dist: $folder is there already, perhaps from a trial that was stopped; remove it" >&2
        exit 1
    }
    mkdir -p "$folder"
    cp "$archive" "$archive.sha256" "$folder/"
    # The number of the user nobody, who owns nothing.
    chown -R 65534:65534 "$folder"
    before=$(list)
    if [ -n "$root" ]; then
        # Programs look for processors in /proc. Newer systems have tools that do not work without
        # it.
        mkdir -p "$root/proc" "$root/dev"
        mount --bind /proc "$root/proc"
        mounted=$root/proc
        [ -c "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
    fi
    chroot --userspec=65534:65534 "$root/" /bin/sh -c "cd /home/try-dist && $trial" || status=1
    if [ -n "$mounted" ]; then
        umount "$mounted"
        mounted=
    fi
    if [ "$(list)" != "$before" ]; then
        diff <(echo "$before") <(list) || true
        echo "FAILED: the system in $root has other files than before" >&2
        status=1
    fi
    rm -rf "$folder"
done
[ $status = 0 ] && echo "try-dist: all systems passed"
exit $status
