#!/bin/sh
# Builds everything that a GPU machine without Rust needs, and puts it into gpu-bundle/, which git
# ignores. The bundle holds the script run.sh, which runs the tests, and files.tar.xz. In the
# archive are the command pgemm, the hardware tests `hw`, `hw_bench`, `hw_docs` and those of the
# examples (all stripped), the C library and the source of its test, and the Python wheel and its
# tests.
#
# Copy the folder to the GPU machine and start `gpu-bundle/run.sh` there. The script unpacks the
# files beside itself; `run.sh unpack` does nothing else. It compiles the test of the C library,
# which needs g++ and a CUDA toolkit with cuBLAS.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
bundle=$root/gpu-bundle
rm -rf "$bundle"
mkdir -p "$bundle"

cargo build --release --quiet --package pgemm
target=${CARGO_TARGET_DIR:-$root/target}
cp "$target/release/pgemm" "$bundle/pgemm"

cargo rustc --release --quiet --package persistent-gemm-c --lib --features tuner -- -C link-arg=-Wl,-soname,libpersistent_gemm.so
cp "$target/release/libpersistent_gemm.so" "$bundle/"

# The hardware tests of the library, and those of the benchmarks. Cargo says in JSON where it put a test binary.
test_binary() { # package, test
    cargo test --release --no-run --quiet --package "$1" --test "$2" --message-format json |
        python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"):
        print(message["executable"])
' | while read -r path; do cp "$path" "$bundle/$2"; done
}
test_binary persistent-gemm hw
test_binary pgemm-bench hw_bench
test_binary pgemm-examples hw_examples
test_binary pgemm-examples hw_parts
test_binary pgemm-docs hw_docs
strip "$bundle"/*
mkdir "$bundle/c"
cp crates/c/include/persistent_gemm.h crates/c/tests/gpu/hw_c.cpp "$bundle/c/"
cp crates/c/tests/linked/program.c crates/c/tests/linked/program.cpp crates/c/tests/linked/check.h "$bundle/c/"
mkdir -p "$bundle/crates/examples"
cp -r crates/examples/kernels "$bundle/crates/examples/"
cp examples/host_demo.cpp examples/resident_demo.cpp examples/batch_demo.c examples/cuda_driver.h bench/bench_gemm.cpp "$bundle/c/"

# Install the library with CMake, and build the program that uses it with clang++, which GPU
# machines rarely have.
PATH=$root/.tools/cmake/bin:$PATH
if cmake --version >/dev/null 2>&1; then
    cmake -S . -B "$target/gpu-bundle" -DPREFIX="$bundle/installed" -DCMAKE_INSTALL_LIBDIR=lib -DCARGO_TARGET_DIR="$target" \
        -DPERSISTENT_GEMM_EXAMPLES=OFF -DBUILD_TESTING=OFF >/dev/null
    cmake --build "$target/gpu-bundle" >/dev/null
    cmake --install "$target/gpu-bundle" >/dev/null
    cp crates/c/tests/gpu/snippet_cublas.cpp crates/c/tests/installed/CMakeLists.txt "$bundle/c/"
    compile_with_clang() { # name, options
        name=$1
        shift
        clang++ -std=c++17 -O2 -Wall -Wextra -pedantic -Werror -I "$bundle/installed/include" -I examples \
            crates/c/tests/gpu/snippet_cublas.cpp -o "$bundle/c/$name" "$@" -ldl
    }
    if command -v clang++ >/dev/null; then
        compile_with_clang by_clang_shared -L "$bundle/installed/lib" -lpersistent_gemm '-Wl,-rpath,$ORIGIN/../installed/lib'
        compile_with_clang by_clang_static "$bundle/installed/lib/libpersistent_gemm.a" -pthread -lm
        strip "$bundle"/c/by_clang_*
    else
        echo "no clang++: the bundle has no program that clang++ compiled"
    fi
else
    echo "no cmake: the bundle has no installed library (scripts/test-c.sh --install puts cmake into .tools)"
fi

scripts/test-python.sh --wheel "$bundle/python"
cp -r crates/python/tests/*.py "$bundle/python/"

# All binaries hold the same kernels, which are stored once if the window is large enough.
tar -C "$bundle" -cf - . | xz -T2 --lzma2=preset=3,dict=192MiB >"$target/files.tar.xz"
rm -rf "$bundle"
mkdir "$bundle"
mv "$target/files.tar.xz" "$bundle/"

cat >"$bundle/run.sh" <<'RUN'
#!/bin/sh
# Runs the hardware tests of the modules given as arguments, or of all modules, one after the other.
# A missing GPU is a failure.
#
# - $PROCESSES processes (default 16) share the kernels of the catalogue and of the random products,
#   because these kernels take long to compile.
# - The module `c` is the test of the C library. It needs g++ and the CUDA toolkit in $CUDA_HOME
#   (default /usr/local/cuda).
# - The module `unpack` only unpacks files.tar.xz, which every other module does first.
# - The module `sanitizer` needs compute-sanitizer, of the CUDA toolkit.
# - The module `installed` tests the library that CMake installed.
# - The module `python` holds the tests of the Python module. They need $PYTHON (default python3)
#   with PyTorch and pytest.
cd "$(dirname "$0")" || exit 1
[ -x pgemm ] || tar -xJf files.tar.xz || exit 1
export PGEMM_REQUIRE_GPU=1
processes=${PROCESSES:-16}
catalogue=gemm::every_kernel_of_the_catalogue
status=0

# Builds and runs the test of the C library beside cuBLAS, the examples, programs that launch
# kernels in files, and short benchmarks.
c_library() {
    toolkit=${CUDA_HOME:-/usr/local/cuda}
    compile() { # compiler, source, options
        compiler=$1 source=$2
        shift 2
        "$compiler" -O2 -Wall -Wextra -I c "c/$source" -o "c/${source%.*}" -L . -lpersistent_gemm -Wl,-rpath,"$PWD" \
            -pthread -ldl -lm "$@"
    }
    failed=0
    if [ -e "$toolkit/include/cublas_v2.h" ]; then
        compile g++ hw_c.cpp -std=c++17 -I "$toolkit/include" -L "$toolkit/lib64" -lcublas -lcudart \
            -Wl,-rpath,"$toolkit/lib64" && c/hw_c || failed=1
    else
        echo "FAILED: $toolkit has no cublas_v2.h; set CUDA_HOME to a CUDA toolkit with cuBLAS"
        failed=1
    fi
    compile g++ host_demo.cpp -std=c++17 && c/host_demo || failed=1
    compile g++ resident_demo.cpp -std=c++17 && c/resident_demo || failed=1
    compile gcc batch_demo.c -std=c11 -D_POSIX_C_SOURCE=200809L && c/batch_demo || failed=1
    kernels=crates/examples/kernels
    for source in program.c program.cpp; do
        compiler=g++ standard=c++17
        [ $source = program.cpp ] || compiler=gcc standard=c11
        compile $compiler $source -std=$standard -D_POSIX_C_SOURCE=200809L && "c/program" $kernels/saxpy.kernel $kernels/transpose.kernel || failed=1
    done
    compile g++ bench_gemm.cpp -std=c++17 || failed=1
    for dtype in bf16 tf32 fp32; do c/bench_gemm --size 4096 --dtype $dtype --seconds 1 || failed=1; done
    return $failed
}

# Tests the installed library: programs that find it through CMake and through pkg-config, beside
# cuBLAS, with every C++ compiler found, and the C++ example under the address sanitiser. Leaks
# within the driver are suppressed.
installed_library() {
    [ -d installed ] || { echo "SKIPPED: the bundle was built without cmake"; return 0; }
    prefix=$PWD/installed
    failed=0
    export LD_LIBRARY_PATH="$prefix/lib:${CUDA_HOME:-/usr/local/cuda}/lib64:${LD_LIBRARY_PATH:-}"
    try() { # name, command
        name=$1
        shift
        echo "-- $name"
        "$@" || { echo "FAILED: $name"; failed=1; }
    }
    for compiler in g++ clang++; do
        command -v $compiler >/dev/null || { echo "SKIPPED: $compiler is not installed"; continue; }
        if command -v cmake >/dev/null; then
            cmake -S c -B c/build-$compiler -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER=$compiler \
                -DPROGRAMS="$PWD/c/snippet_cublas.cpp" >c/log 2>&1 && cmake --build c/build-$compiler >c/log 2>&1 || cat c/log
            try "shared library found by CMake, $compiler" c/build-$compiler/snippet_cublas_persistent_gemm
            try "static library found by CMake, $compiler" c/build-$compiler/snippet_cublas_static
        else
            echo "SKIPPED: cmake is not installed"
        fi
        if command -v pkg-config >/dev/null; then
            flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --define-prefix --cflags --libs persistent_gemm)
        else
            echo "pkg-config is not installed: its flags are written out here"
            flags="-I$prefix/include -L$prefix/lib -lpersistent_gemm"
        fi
        # shellcheck disable=SC2086 # the flags are separate words
        try "compilation with the flags of pkg-config, $compiler" $compiler -std=c++17 -Wall -Wextra -pedantic -Werror c/snippet_cublas.cpp \
            -o c/by_pkg_config $flags -ldl
        try "program compiled with the flags of pkg-config, $compiler" c/by_pkg_config
    done
    for program in c/by_clang_*; do
        [ ! -x "$program" ] || try "program compiled with clang++ on the build machine: $program" "$program"
    done
    echo leak:libcuda >c/suppressions
    try "compilation with the address sanitiser" g++ -std=c++17 -g -fsanitize=address -I "$prefix/include" c/host_demo.cpp -o c/sanitised \
        -L "$prefix/lib" -lpersistent_gemm -ldl
    # The driver maps memory in the shadow gap, the address range that the sanitiser protects.
    try "example under the address sanitiser" env ASAN_OPTIONS=protect_shadow_gap=0 \
        LSAN_OPTIONS=suppressions=c/suppressions c/sanitised
    return $failed
}

# Runs a sample under compute-sanitizer, $PROCESSES at a time: random products of many types,
# operand layouts and schedules, products with each activation, gated products and the resident
# kernel.
sanitizer_sample() {
    PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
    command -v compute-sanitizer >/dev/null || { echo "FAILED: compute-sanitizer is not installed"; return 1; }
    for tool in memcheck synccheck; do
        for seed in $(seq 0 31); do echo "$tool ./pgemm run --backend cuda --case-size small --case $seed"; done
        for activation in relu gelu silu tanh sigmoid gelu_tanh 'clamp(-1,2)'; do
            echo "$tool ./pgemm run --backend cuda --verify --m 200 --n 136 --k 300 --beta 0.5 --epilogue bias_n|$activation"
        done
        echo "$tool ./hw --exact gated::gated_kernels_are_right_on_the_device"
        echo "$tool ./hw --exact engine_epilogues::a_bias_may_change_from_job_to_job"
    done >sanitizer.list
    xargs -d '\n' -P "$processes" -n 1 sh -c '
        set -- $1
        tool=$1
        shift
        output=$(timeout 120 compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" 2>&1) && exit 0
        printf "FAILED: %s\n%s\n" "$tool $*" "$output"
        exit 1
    ' sh <sanitizer.list || return 1
    echo "$(wc -l <sanitizer.list) runs under compute-sanitizer, no error"
}

# Tests the Python module from a folder that contains nothing but the unpacked wheel.
python_module() {
    interpreter=${PYTHON:-python3}
    rm -rf python/site
    "$interpreter" -m zipfile -e python/persistent_gemm-*.whl python/site || return 1
    (
        cd python || exit 1
        PGEMM_BOOK=$PWD/.. PGEMM_PROGRAM=$PWD/../pgemm PYTHONPATH=$PWD/site "$interpreter" -m pytest -q -ra -p no:cacheprovider test_program.py test_torch.py test_device.py test_runner.py test_engine.py test_warm_up.py test_packs.py test_others.py &&
            PYTHONPATH=$PWD/site "$interpreter" overhead.py
    )
}

for module in ${*:-atlas bandwidth banks bench boxes budget cases conformance docs driver engine engine_beside engine_epilogues engine_told epilogue epilogues examples forgotten gated gemm host_cost interop layouts memory outofcore packs products resident specials split stress sums terms workspaces c installed python sanitizer}; do
    echo "== $module"
    case $module in
    unpack)
        continue
        ;;
    c)
        c_library || status=1
        continue
        ;;
    installed)
        (installed_library) || status=1
        continue
        ;;
    python)
        python_module || status=1
        continue
        ;;
    docs)
        ./hw_docs --test-threads=1 || status=1
        continue
        ;;
    examples)
        for tests in ./hw_examples ./hw_parts; do $tests --test-threads=1 --nocapture || status=1; done
        continue
        ;;
    sanitizer)
        sanitizer_sample || status=1
        continue
        ;;
    esac
    tests=./hw
    case $module in
    atlas | bandwidth | bench | cases | sums) tests=./hw_bench ;;
    esac
    case $module in
    cases)
        shared=cases::random_products_are_right
        ;;
    gemm)
        shared=$catalogue
        ;;
    *)
        shared=
        ;;
    esac
    $tests --test-threads=1 --nocapture --skip "${shared:-none}" "$module::" || status=1
    [ -n "$shared" ] || continue
    shards=
    for shard in $(seq 0 $((processes - 1))); do
        PGEMM_SHARD=$shard/$processes $tests --exact "$shared" --nocapture &
        shards="$shards $!"
    done
    for shard in $shards; do wait "$shard" || status=1; done
done
exit $status
RUN
chmod +x "$bundle/run.sh"
du -sh "$bundle"
