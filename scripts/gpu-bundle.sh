#!/bin/sh
# Puts everything that a GPU box without Rust needs into gpu-bundle/ (ignored by git): the stripped pgemm, the stripped
# hardware tests (`hw`), and run.sh, which runs the tests. Copy the folder there and start `gpu-bundle/run.sh`.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
bundle=$root/gpu-bundle
rm -rf "$bundle"
mkdir -p "$bundle"

cargo build --release --quiet --package pgemm
target=${CARGO_TARGET_DIR:-$root/target}
cp "$target/release/pgemm" "$bundle/pgemm"

# Cargo says in JSON where it put the test binary.
cargo test --release --no-run --quiet --package persistent-gemm --test hw --message-format json |
    python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"):
        print(message["executable"])
' | while read -r path; do cp "$path" "$bundle/hw"; done
strip "$bundle"/*

cat >"$bundle/run.sh" <<'RUN'
#!/bin/sh
# Runs the hardware tests of the modules named (all where none is), one after the other, and fails where there is no GPU. The
# kernels of the catalogue, which take long to compile, are shared among $PROCESSES (16 where it is not set).
cd "$(dirname "$0")" || exit 1
export PGEMM_REQUIRE_GPU=1
processes=${PROCESSES:-16}
catalogue=gemm::every_kernel_of_the_catalogue
status=0
for module in ${*:-bandwidth bench cases driver gemm host_cost layouts specials split terms}; do
    echo "== $module"
    ./hw --test-threads=1 --nocapture --skip "$catalogue" "$module::" || status=1
    [ "$module" = gemm ] || continue
    shards=
    for shard in $(seq 0 $((processes - 1))); do
        PGEMM_SHARD=$shard/$processes ./hw --exact "$catalogue" --nocapture &
        shards="$shards $!"
    done
    for shard in $shards; do wait "$shard" || status=1; done
done
exit $status
RUN
chmod +x "$bundle/run.sh"
du -sh "$bundle"
