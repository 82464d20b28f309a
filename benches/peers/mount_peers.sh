#!/usr/bin/env bash
# The mount beside its peers, on the same files in turn: plain files, squashfuse_ll, kernel squashfs, ratarmount, and
# zrfs with and without pushing ahead of readers. A file is opened, read whole and closed, one after another. "first" is
# the first touch, a cold mount over an image that is in the page cache; "again" a second visit of the same mount.
# Whatever takes part is run in turn, round after round, so that a machine with other work slows all of them; a row has
# the least time of all rounds, its ratio to plain files, and the processor time of the server at the first touch.
#
# usage: benches/peers/mount_peers.sh [WORKDIR [ROUNDS]]     as root; about 10 minutes and 4 GiB of disk
#        BIN=target/release   where zrfs and zrfs-mount are
#        ONLY='seq listed'    one of the cases: seq or rand, listed or fresh
# needs: rustc, python3 with numpy (scripts/setup makes target/venv), cargo build --release; peers are found on PATH
# (apt: squashfuse squashfs-tools; pip: ratarmount), and a missing one is named.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(realpath "${BIN:-$repo/target/release}") python=${PYTHON:-$repo/target/venv/bin/python}
work=${1:-$(mktemp -d)} rounds=${2:-3} only=${ONLY:-}
mkdir -p "$work/m"
cd "$work"
gone() { mountpoint -q m || return 0; umount m || umount -l m; while mountpoint -q m; do sleep 0.1; done; }
trap gone EXIT
for peer in squashfuse_ll mksquashfs ratarmount; do command -v $peer >/dev/null || echo "not installed, left out: $peer"; done

rustc -O "$repo/benches/peers/readfiles.rs" -o readfiles
[ -d f256k ] || "$python" "$repo/benches/peers/gen_tree.py" .
for d in f12k f256k; do
    if command -v mksquashfs >/dev/null && [ ! -f $d.sqsh ]; then
        mksquashfs $d $d.sqsh -comp zstd -Xcompression-level 3 -noappend -quiet -no-progress >/dev/null
    fi
    [ -f $d.tar ] || tar cf $d.tar -C $d .
    [ -d $d.zr ] || "$bin/zrfs" pack -q $d $d.zr
    [ -d $d.raw.zr ] || "$bin/zrfs" pack -q $d $d.raw.zr --codec raw
done

# Processor time of a process in ticks of 10 ms; 0 where there is none.
ticks() {
    local fields
    [ -n "$1" ] && read -ra fields < <(sed 's/.*) //' "/proc/$1/stat") || { echo 0; return; }
    echo $((fields[11] + fields[12]))
}
# One contender's round: LABEL DIR SERVER
take() {
    local before after out server
    server=$(pgrep -n -x "$3" || true)
    if [ "$listing" = listed ]; then find "$2" >/dev/null; fi
    before=$(ticks "$server")
    out=$(./readfiles "$2" "$n" "$size" 6 1 "$order" 1)
    after=$(ticks "$server")
    awk -v l="$1" -v c=$(((after - before) * 10000 / n)) -v a="$(./readfiles "$2" "$n" "$size" 6 1 "$order" 1)" \
        '{ split(a, again, " "); print l "\t" $3 "\t" again[3] "\t" c }' <<<"$out" >>rounds
}
for spec in "f12k 20000 12288" "f256k 2000 262144"; do
    read -r d n size <<<"$spec"
    n=$(find $d -type f | wc -l)
    for case in "seq listed" "seq fresh" "rand fresh"; do
        [ -z "$only" ] || [ "$only" = "$case" ] || continue
        read -r order listing <<<"$case"
        : >rounds
        find $d $d.zr $d.raw.zr $d.tar -type f -print0 | xargs -0 cat >/dev/null
        for _ in $(seq "$rounds"); do
            take "plain files" $d none
            if command -v squashfuse_ll >/dev/null && [ -f $d.sqsh ]; then
                cat $d.sqsh >/dev/null; squashfuse_ll $d.sqsh m; take squashfuse_ll m squashfuse_ll; gone
            fi
            if [ -f $d.sqsh ] && mount -o loop,ro $d.sqsh m; then take "kernel squashfs" m none; gone; fi
            if command -v ratarmount >/dev/null; then
                ratarmount $d.tar m >/dev/null 2>&1; take ratarmount m ratarmount; gone
            fi
            for codec in zstd raw; do
                store=$d.zr
                [ $codec = zstd ] || store=$d.raw.zr
                "$bin/zrfs-mount" $store m --push-size 0; take "zrfs $codec, no pushing" m/tree zrfs-mount; gone
                "$bin/zrfs-mount" $store m; take "zrfs $codec" m/tree zrfs-mount; gone
            done
        done
        echo "== $d, $case: microseconds a file"
        sort -t$'\t' -k1,1 -k2,2n rounds | awk -F'\t' '
            !($1 in first) || $2 < first[$1] { first[$1] = $2; cpu[$1] = $4 }
            !($1 in again) || $3 < again[$1] { again[$1] = $3 }
            END {
                printf "%-26s %8s %8s %8s %8s %8s\n", "", "first", "/ plain", "again", "/ plain", "server"
                for (l in first)
                    printf "%-26s %8.1f %8.2f %8.1f %8.2f %8d\n", l, first[l], first[l] / first["plain files"],
                        again[l], again[l] / again["plain files"], cpu[l] | "sort"
            }'
    done
done
