#!/usr/bin/env python3
"""The loader beside the gather that it is made of, and beside loaderx 1.5.2's loader on the same stores: in turn, in one
run. For each MiB/s (median of the turns), the ratio to the gather of the same turn (median), and the processor's time for a
GiB in milliseconds, which other work on the machine changes least.

usage: benches/peers/loader_peers.py [DIR=a temporary one] [MIB=512] [TURNS=20] [SECONDS=0.2]
needs: cargo build --release --example loader_time --bin zrfs; pip: numpy loaderx==1.5.2; MIB of space in DIR
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from loaderx.dataloader import DataLoader
from loaderx.dataset import DenseDataset

BATCH = 256
# A turn has at least so many batches.
LEAST = 4
given = sys.argv[1:] + ["", "512", "20", "0.2"][len(sys.argv) - 1 :]
DIR, MIB, TURNS, SECONDS = given[0] or None, int(given[1]), int(given[2]), float(given[3])
repo = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
release = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(repo, "target")), "release")
cores = os.cpu_count()
OURS = {
    "gather": "gather",
    "gather to a Vec": "gather vec",
    "1 worker": "loader 1 4",
    f"{cores} workers": f"loader {cores} 4",
}


def make(path, record, codec):
    """Records of 6 random bits a byte, which zstd makes 1.3 times smaller."""
    n = (MIB << 20) // record
    array = np.random.default_rng(1).integers(0, 64, (n, record), dtype=np.uint8)
    np.save(path + ".npy", array)
    del array
    subprocess.run([os.path.join(release, "zrfs"), "pack", "--quiet", "--codec", codec, path + ".npy", path], check=True)
    os.remove(path + ".npy")


class Loaderx:
    def __init__(self, path):
        self.loader = DataLoader({"x": DenseDataset(path)}, batch_size=BATCH, num_workers=4, prefetch_size=4)

    def turn(self):
        # Both queues, what its threads hold in front of a full one, and one that was not begun before.
        drained = sum(next(self.loader)["x"].nbytes for _ in range(14))
        start, total, batches = time.perf_counter(), 0, 0
        while time.perf_counter() - start < SECONDS or batches < LEAST:
            total += next(self.loader)["x"].nbytes
            batches += 1
        rate = total / 2**20 / (time.perf_counter() - start)
        while not (self.loader.batches.full() and self.loader.raw_batches.full()):
            time.sleep(0.001)
        return rate, (drained + total) / 2**20

    def cpu(self):
        return time.process_time()


class Zrfs:
    def __init__(self, path):
        command = [os.path.join(release, "examples", "loader_time"), path, str(BATCH), str(SECONDS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def turn(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        rate, mib = self.process.stdout.readline().split()
        return float(rate), float(mib)

    def cpu(self):
        """Of all its threads, in seconds."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(path):
    ours, theirs = Zrfs(path), Loaderx(path)
    turns = {name: (ours, lambda line=line: ours.turn(line)) for name, line in OURS.items()}
    turns["loaderx"] = (theirs, theirs.turn)
    rates, cpu, mib = {name: [] for name in turns}, dict.fromkeys(turns, 0.0), dict.fromkeys(turns, 0.0)
    for turn in range(TURNS + 1):
        for name, (who, run) in turns.items():
            before = who.cpu()
            rate, moved = run()
            # The first turn warms caches and buffers up.
            if turn > 0:
                rates[name].append(rate)
                cpu[name] += who.cpu() - before
                mib[name] += moved
    theirs.loader.close()
    ours.close()
    return rates, {name: cpu[name] / mib[name] * 1024 * 1000 for name in turns}


def main():
    print(f"MiB/s of batches of {BATCH} from {MIB} MiB, (ratio to the gather, CPU a GiB), {TURNS} turns")
    scratch = tempfile.mkdtemp(dir=DIR, prefix="loader-peers-")
    try:
        for codec in ["raw", "zstd"]:
            for record in [2048, 12288, 262144]:
                path = os.path.join(scratch, f"{codec}{record}.zr")
                make(path, record, codec)
                rates, cpu = measure(path)
                cells = [f"{codec:>4} {record:>7}"]
                for name, some in rates.items():
                    ratio = statistics.median(a / b for a, b in zip(some, rates["gather"]))
                    cells.append(f"{name} {statistics.median(some):,.0f} ({ratio:.2f}, {cpu[name]:,.0f} ms)")
                print(" | ".join(cells), flush=True)
                shutil.rmtree(path)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
