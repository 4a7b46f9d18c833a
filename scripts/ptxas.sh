#!/bin/sh
# Installs the offline assemblers ptxas 13.0, 12.9 and 12.4 into .tools/, which git ignores, and prints
# their paths. Kernels that are shipped are assembled by 12.9, the newest whose cubins all drivers for
# CUDA 12 load. An assembler that is already there is kept. Tests use the assemblers; running kernels
# does not need them. The script needs Linux on x86_64, python3 with pip and, for the installation,
# a network.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

install_ptxas() { # version, requirement
    target="$root/.tools/ptxas-$1/ptxas"
    if [ -x "$target" ]; then
        echo "$target"
        return
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "$2" >"$work/log" 2>&1; then
        cat "$work/log" >&2
        echo "ptxas.sh: pip could not download $2." >&2
        echo "Without a network, copy ptxas $1 to $target, or set PGEMM_PTXAS to the path of a ptxas." >&2
        exit 1
    fi
    mkdir -p "$(dirname "$target")"
    python3 - "$work" "$target" <<'PYTHON'
import glob, os, sys, zipfile

folder, target = sys.argv[1:]
[wheel] = glob.glob(os.path.join(folder, "*.whl"))
with zipfile.ZipFile(wheel) as archive:
    [member] = [name for name in archive.namelist() if name.endswith("/bin/ptxas")]
    with open(target + ".part", "wb") as out:
        out.write(archive.read(member))
os.chmod(target + ".part", 0o755)
os.replace(target + ".part", target)
PYTHON
    rm -rf "$work"
    trap - EXIT
    echo "$target"
}

install_ptxas 13.0 "nvidia-cuda-nvcc==13.0.88"
install_ptxas 12.9 "nvidia-cuda-nvcc-cu12==12.9.86"
install_ptxas 12.4 "nvidia-cuda-nvcc-cu12==12.4.131"
