#!/usr/bin/env python3
"""Index streams beside numpy and loaderx 1.5.2: nanoseconds an index, in turn, in one run, and the ratios to zrfs.

usage: benches/peers/sampler_peers.py [LENGTH=1000000] [BATCH=256] [TURNS=15]
needs: cargo build --release --example sample_time; pip: numpy loaderx==1.5.2
"""

import os
import subprocess
import sys
import time

import numpy as np
from loaderx.sampler import Sampler

LENGTH, BATCH, TURNS = (int(a) for a in (sys.argv[1:] + ["1000000", "256", "15"][len(sys.argv) - 1 :]))
# A turn is a whole cycle where that is short enough, so that each has its share of what a peer does once a cycle.
SHORT = 4_000_000
ROUNDS = max(1, (LENGTH if 100_000 <= LENGTH <= SHORT else 1_000_000) // BATCH)
SEED = 42
repo = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
target = os.environ.get("CARGO_TARGET_DIR", os.path.join(repo, "target"))


class Zrfs:
    def __init__(self, mode):
        spec = f"{mode},batch={BATCH},seed={SEED}"
        program = os.path.join(target, "release", "examples", "sample_time")
        self.process = subprocess.Popen(
            [program, spec, str(LENGTH), str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        nanoseconds, last = self.process.stdout.readline().split()
        return float(nanoseconds), int(last)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Python:
    """A peer that gives a batch a call."""

    def __init__(self, batch):
        self.batch = batch

    def turn(self):
        start, drawn, batch = time.perf_counter_ns(), 0, []
        for _ in range(ROUNDS):
            batch = self.batch()
            drawn += len(batch)
        return (time.perf_counter_ns() - start) / drawn, int(batch[-1])

    def close(self):
        pass


def loaderx(mode):
    return Python(Sampler(LENGTH, BATCH, mode, SEED).next)


def numpy_permutation():
    """What a loader does with numpy: shuffles all indices once a cycle, and slices."""
    rng = np.random.default_rng(SEED)
    order, at = rng.permutation(LENGTH), 0

    def batch():
        nonlocal order, at
        if at + BATCH > LENGTH:
            order, at = rng.permutation(LENGTH), 0
        at += BATCH
        return order[at - BATCH : at]

    return Python(batch)


rng = np.random.default_rng(SEED)
numpy_iid = Python(lambda: rng.integers(0, LENGTH, BATCH, dtype=np.uint64))
groups = {
    "sequential": {"zrfs": Zrfs("sequential"), "loaderx": loaderx(Sampler.Mode.SEQUENTIAL)},
    "iid": {"zrfs": Zrfs("iid"), "loaderx": loaderx(Sampler.Mode.IID), "numpy": numpy_iid},
    "iid_counter": {"zrfs": Zrfs("iid_counter"), "numpy": numpy_iid},
    "cyclic": {"zrfs": Zrfs("cyclic"), "loaderx": loaderx(Sampler.Mode.CYCLIC)},
}
if 100_000 <= LENGTH <= SHORT:
    groups["cyclic"]["numpy"] = numpy_permutation()
print(f"{LENGTH} records, batches of {BATCH}, least (median) of {TURNS} turns, nanoseconds an index")
for mode, peers in groups.items():
    times = {name: [] for name in peers}
    for _ in range(TURNS):
        last = {}
        for name, peer in peers.items():
            nanoseconds, last[name] = peer.turn()
            times[name].append(nanoseconds)
        if "loaderx" in last and last["loaderx"] != last["zrfs"]:
            sys.exit(f"{mode}: zrfs drew {last['zrfs']} where loaderx drew {last['loaderx']}")
    # What else the machine does only ever adds, so the least is what is compared.
    least = {name: min(t) for name, t in times.items()}
    for name, peer in peers.items():
        peer.close()
        ratio = "" if name == "zrfs" else f"   {least[name] / least['zrfs']:5.1f} times zrfs"
        print(f"{mode:12} {name:8} {least[name]:7.2f} ({float(np.median(times[name])):.2f}){ratio}")
