#!/bin/sh
# Fits the trees that correct the bounds of tiles (crates/plan/src/heuristic/tile-trees.bin) to the estimates of all kernels of drawn
# problems. Run it after what corrects estimates has changed. It takes some minutes and no GPU. Needs Python with numpy and
# catboost ($PYTHON, default python3), and the command pgemm ($PGEMM, default target/release/pgemm).
#
# The result depends on the trees and the network that correct estimates, with which pgemm was built, and not on
# the tile trees in it.
set -eu
cd "$(dirname "$0")/.."
pgemm=${PGEMM:-target/release/pgemm}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

draw() { # file, arguments of pgemm atlas
    file=$1
    shift
    "$pgemm" atlas "$@" --tile-features >"$folder/$file.csv"
}

draw eights --population eights --count 4000 --seed 900001
draw sixty-fours --population sixty-fours --count 1200 --seed 900002
draw any --population any --count 4500 --seed 900003
draw tf32 --population eights --count 1200 --seed 900004 --dtype tf32
draw tf32-kk --population eights,sixty-fours --count 300 --seed 900014 --dtype tf32 --majors kk
draw e4m3 --population eights,sixty-fours --count 600 --seed 900005 --dtype e4m3 --majors kk
draw e4m3-majors --population eights --count 800 --seed 900006 --dtype e4m3
draw e4m3-fast --population eights,sixty-fours --count 500 --seed 900007 --dtype e4m3 --precision fast --majors kk
draw s8 --population eights,any --count 1800 --seed 900008 --dtype s8
draw others --population batches,vectors,tiny --count 1000 --seed 900009
draw f32-output --population eights --count 500 --seed 900010 --output-dtype f32
draw models --population models --count 1000 --shard 0/2
"${PYTHON:-python3}" scripts/fit-corrections.py --tiles "$folder"/*.csv --out crates/plan/src/heuristic
