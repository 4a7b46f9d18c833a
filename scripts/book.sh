#!/usr/bin/env bash
# Builds the documentation as a book in target/book: html/ for a browser, persistent-gemm.pdf for paper.
# Checks all links of the pages, without a network.
#
# The first run installs mdBook into .tools/, which git ignores; this takes a network and some
# minutes. The PDF needs Chromium and poppler-utils. With `--no-pdf` the script leaves it out. With
# `--install`, as CI calls it, the script installs a missing poppler-utils by apt.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4

if [ "$(.tools/bin/mdbook --version 2>/dev/null)" != "mdbook v$version" ]; then
    # Without optimisation it compiles faster, and this book is small.
    cargo install --quiet --locked --debug --root .tools --no-default-features --features search mdbook --version $version || {
        echo "book: cargo could not install mdBook $version into .tools; check the network" >&2
        exit 1
    }
fi
if [ "${1:-}" = --install ] && ! command -v pdfinfo >/dev/null; then
    { apt-get -qq update && apt-get -qq install --yes --no-install-recommends poppler-utils; } >/dev/null || {
        echo "book: poppler-utils is required, and apt could not install it (Debian: apt install poppler-utils)" >&2
        exit 1
    }
fi
rm -rf target/book
.tools/bin/mdbook --version
.tools/bin/mdbook build
python3 scripts/book.py links
[ "${1:-}" = --no-pdf ] || python3 scripts/book.py pdf
