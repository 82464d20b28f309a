#!/usr/bin/env bash
# The mount beside its peers, on the same files in one run: plain files, squashfuse_ll, kernel squashfs, ratarmount and
# zrfs. A file is opened, read whole and closed, one after another, in order and shuffled. "pass 0" is the first touch:
# a cold mount over an image that is in the page cache; "pass 1" is a second visit of the same mount.
#
# usage: benches/peers/mount_peers.sh [WORKDIR]     as root; about 6 minutes and 4 GiB of disk
# needs: rustc, python3 with numpy (scripts/setup makes target/venv), cargo build --release; peers are found on PATH
# (apt: squashfuse squashfs-tools; pip: ratarmount), and a missing one is named.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
zrfs=$repo/target/release/zrfs zrfs_mount=$repo/target/release/zrfs-mount python=$repo/target/venv/bin/python
work=${1:-$(mktemp -d)}
mkdir -p "$work/m"
cd "$work"
gone() { mountpoint -q m || return 0; umount m || umount -l m; while mountpoint -q m; do sleep 0.1; done; }
trap gone EXIT
for peer in squashfuse_ll mksquashfs ratarmount; do command -v $peer >/dev/null || echo "not installed, left out: $peer"; done

[ -x readfiles ] || rustc -O "$repo/benches/peers/readfiles.rs" -o readfiles
[ -d f256k ] || "$python" "$repo/benches/peers/gen_tree.py" .
for d in f12k f256k; do
    if command -v mksquashfs >/dev/null && [ ! -f $d.sqsh ]; then
        mksquashfs $d $d.sqsh -comp zstd -Xcompression-level 3 -noappend -quiet -no-progress >/dev/null
    fi
    [ -f $d.tar ] || tar cf $d.tar -C $d .
    [ -d $d.zr ] || "$zrfs" pack -q $d $d.zr
    [ -d $d.raw.zr ] || "$zrfs" pack -q $d $d.raw.zr --codec raw
done

cold() { sync; echo 3 >/proc/sys/vm/drop_caches; find "$@" -type f -print0 | xargs -0 cat >/dev/null; }
touch_all() { # LABEL DIR N SIZE ORDER
    echo " $1"
    ./readfiles "$2" "$3" "$4" 1 "$5" 2
}
for spec in "f12k 20000 12288" "f256k 2000 262144"; do
    read -r d n size <<<"$spec"
    for order in seq rand; do
        echo "== $d $order"
        cold $d; touch_all "plain files" $d "$n" "$size" $order
        if command -v squashfuse_ll >/dev/null && [ -f $d.sqsh ]; then
            cold $d.sqsh; squashfuse_ll $d.sqsh m; touch_all squashfuse_ll m "$n" "$size" $order; gone
        fi
        if [ -f $d.sqsh ]; then
            cold $d.sqsh; mount -o loop,ro $d.sqsh m; touch_all "kernel squashfs" m "$n" "$size" $order; gone
        fi
        if command -v ratarmount >/dev/null; then
            cold $d.tar; ratarmount $d.tar m >/dev/null 2>&1; touch_all ratarmount m "$n" "$size" $order; gone
        fi
        for store in $d.zr $d.raw.zr; do
            cold $store; "$zrfs_mount" $store m; touch_all "zrfs, $store" m/tree "$n" "$size" $order; gone
        done
        cold $d.zr; "$zrfs_mount" $d.zr m; ls -f m/tree >/dev/null
        touch_all "zrfs, $d.zr, listed first" m/tree "$n" "$size" $order; gone
    done
done
