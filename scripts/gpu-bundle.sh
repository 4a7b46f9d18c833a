#!/bin/sh
# Puts everything that a GPU box without Rust needs into gpu-bundle/ (ignored by git): the stripped pgemm, the stripped
# hardware tests, and run.sh, which runs the tests. Copy the folder there and start `gpu-bundle/run.sh`.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
bundle=$root/gpu-bundle
rm -rf "$bundle"
mkdir -p "$bundle"

cargo build --release --quiet --package pgemm
target=${CARGO_TARGET_DIR:-$root/target}
cp "$target/release/pgemm" "$bundle/pgemm"

# Cargo says in JSON where it put each test binary.
cargo test --release --no-run --quiet --package persistent-gemm --test 'hw_*' --message-format json |
    python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["kind"] == ["test"]:
        print(message["target"]["name"], message["executable"])
' | while read -r name path; do cp "$path" "$bundle/$name"; done
strip "$bundle"/*

cat >"$bundle/run.sh" <<'RUN'
#!/bin/sh
# Runs the hardware tests named (all where none is), one after the other, and fails where there is no GPU. The kernels of
# the catalogue, which take long to compile, are shared among $PROCESSES (16 where it is not set).
cd "$(dirname "$0")" || exit 1
export PGEMM_REQUIRE_GPU=1
processes=${PROCESSES:-16}
catalogue=every_kernel_of_the_catalogue
status=0
for test in ${*:-hw_*}; do
    echo "== $test"
    "./$test" --test-threads=1 --nocapture --skip "$catalogue" || status=1
    [ "$test" = hw_gemm ] || continue
    shards=
    for shard in $(seq 0 $((processes - 1))); do
        PGEMM_SHARD=$shard/$processes "./$test" --exact "$catalogue" --nocapture &
        shards="$shards $!"
    done
    for shard in $shards; do wait "$shard" || status=1; done
done
exit $status
RUN
chmod +x "$bundle/run.sh"
du -sh "$bundle"
