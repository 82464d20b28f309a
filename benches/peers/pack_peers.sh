#!/usr/bin/env bash
# Packing a tree beside its peers, in turn, in one run: zrfs, mksquashfs, and tar piped through zstd, all at zstd level 3.
#
# usage: benches/peers/pack_peers.sh [TREE=/usr/share] [ROUNDS=3]
# needs: cargo build --release; apt: squashfs-tools zstd (a missing one is named)
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
tree=${1:-/usr/share} rounds=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
pack_zrfs() { "$repo/target/release/zrfs" pack -q "$tree" out; }
pack_mksquashfs() { mksquashfs "$tree" out -comp zstd -Xcompression-level 3 -noappend -quiet -no-progress >/dev/null; }
pack_tar_zstd() { tar c -C "$tree" . | zstd -q -3 -T0 -o out; }
find "$tree" -type f -print0 | xargs -0 cat >/dev/null
for round in $(seq "$rounds"); do
    for how in zrfs mksquashfs tar_zstd; do
        case $how in
            mksquashfs) command -v mksquashfs >/dev/null || { echo "not installed, left out: mksquashfs"; continue; } ;;
            tar_zstd) command -v zstd >/dev/null || { echo "not installed, left out: zstd"; continue; } ;;
        esac
        rm -rf out
        start=$(date +%s%N)
        pack_$how
        end=$(date +%s%N)
        printf '%d %-12s %7d ms %6d MiB\n' "$round" $how $(((end - start) / 1000000)) "$(du -sm out | cut -f1)"
    done
done
