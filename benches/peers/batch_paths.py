#!/usr/bin/env python3
"""Batches by path beside the same records read one file after another: the first touch of cold mounts over stores that are
in the page cache, in turn, in one run. A batch is 256 records of a shuffled order. For each way milliseconds a batch
(median over all batches of all turns), the ratio to reading its files one by one, and the server's processor time a batch.

usage: benches/peers/batch_paths.py [DIR=a temporary one] [RECORDS=12800] [BYTES=12288] [TURNS=5]
needs: cargo build --release; root or fusermount3; python3 with numpy; RECORDS * BYTES twice in DIR
       CARGO_TARGET_DIR  where release/ is, target/ otherwise
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

BATCH = 256
SPEC = f"cyclic,batch={BATCH},seed=42"
given = sys.argv[1:] + ["", "12800", "12288", "5"][len(sys.argv) - 1 :]
DIR, RECORDS, BYTES, TURNS = given[0] or None, int(given[1]), int(given[2]), int(given[3])
STEPS = RECORDS // BATCH
repo = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
release = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(repo, "target")), "release")
buffer = bytearray(BATCH * BYTES + 4096)


def run(*args):
    subprocess.run(args, check=True)


def read(path, into):
    fd = os.open(path, os.O_RDONLY)
    try:
        done = 0
        while n := os.readv(fd, [into[done:]]):
            done += n
            if done == len(into):
                break
        return done
    finally:
        os.close(fd)


def one_by_one(mount, step, indices):
    view = memoryview(buffer)
    for k, index in enumerate(indices):
        assert read(f"{mount}/records/{index}", view[k * BYTES : (k + 1) * BYTES]) == BYTES


def by_path(mount, step, indices):
    assert read(f"{mount}/batches/{SPEC}/{step}.npy", memoryview(buffer)) == 128 + BATCH * BYTES


def by_list(mount, step, indices):
    # 32 indices of five digits to a name, whose limit is 255 bytes.
    view, done = memoryview(buffer), 0
    for k in range(0, BATCH, 32):
        name = ",".join(map(str, indices[k : k + 32]))
        done += read(f"{mount}/batches/at/{name}.npy", view[done:])


def np_load(mount, step, indices):
    assert np.load(f"{mount}/batches/{SPEC}/{step}.npy").shape == (BATCH, BYTES)


def np_mapped(mount, step, indices):
    # All pages are touched.
    np.load(f"{mount}/batches/{SPEC}/{step}.npy", mmap_mode="r")[:, ::4096].sum()


WAYS = {
    "one by one": (one_by_one, []),
    "one by one, no pushing": (one_by_one, ["--push-size", "0"]),
    "one by one, listed and announced": (one_by_one, []),
    "by path": (by_path, []),
    "by path, no pushing": (by_path, ["--push-size", "0"]),
    "by path, np.load": (np_load, []),
    "by path, np.load mapped": (np_mapped, []),
    "by lists of 32": (by_list, []),
}


def ticks(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def turn(store, mount, way, order):
    read_batch, options = WAYS[way]
    server = subprocess.Popen([os.path.join(release, "zrfs-mount"), "-f", store, mount, *options])
    try:
        while not os.path.ismount(mount):
            assert server.poll() is None, "no mount"
            time.sleep(0.01)
        if "announced" in way:
            sum(1 for entry in os.scandir(f"{mount}/records") if entry.stat().st_size)
            open(f"{mount}/.zrfs/readahead/{SPEC}").read()
        before, times = ticks(server.pid), []
        for step in range(STEPS):
            indices = order[step * BATCH : (step + 1) * BATCH]
            start = time.perf_counter()
            read_batch(mount, step, indices)
            times.append((time.perf_counter() - start) * 1e3)
        return times, (ticks(server.pid) - before) * 10 / STEPS
    finally:
        subprocess.run(["umount", "-l", mount], check=False)
        server.terminate()
        server.wait(timeout=20)


def main():
    work = tempfile.mkdtemp(dir=DIR)
    mount = os.path.join(work, "m")
    os.mkdir(mount)
    try:
        # 6 random bits a byte, which zstd makes 1.3 times smaller.
        array = os.path.join(work, "a.npy")
        np.save(array, np.random.default_rng(1).integers(0, 64, (RECORDS, BYTES), dtype=np.uint8))
        command = os.path.join(release, "zrfs")
        drawn = subprocess.check_output([command, "sample", SPEC, "--length", str(RECORDS), "--flat"], text=True)
        order = [int(line) for line in drawn.split()]
        print(f"{RECORDS} records of {BYTES} bytes, {STEPS} batches of {BATCH}, {TURNS} turns")
        for codec in ("zstd", "raw"):
            store = os.path.join(work, codec)
            run(command, "pack", "--quiet", "--codec", codec, array, store)
            found = {way: ([], []) for way in WAYS}
            for _ in range(TURNS):
                for way, (times, server) in found.items():
                    # The store is in the page cache, each time.
                    run("sh", "-c", f"cat {store}/* > /dev/null")
                    more, cpu = turn(store, mount, way, order)
                    times.extend(more)
                    server.append(cpu)
            print(f"\n{codec:34} {'ms a batch':>10} {'times':>6} {'server ms':>10}")
            base = statistics.median(found["one by one"][0])
            for way, (times, server) in found.items():
                each = statistics.median(times)
                print(f"{way:34} {each:10.2f} {base / each:6.1f} {statistics.median(server):10.2f}")
            shutil.rmtree(store)
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
