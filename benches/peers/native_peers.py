#!/usr/bin/env python3
"""The native engine beside the machine's limits and other systems, in turn, in one run: gathers of batches of 256 random
records from the page cache, by order, from the disk; appends; opening. Each contender is a process of its own, all read the
same records in the same order, and agree on the first batch. Cells are medians of the turns; ratios are medians of the
ratios within a turn. Writes native.md, native.json and native.svg.

needs: cargo build --release --bin zrfs --example gather_time; numpy, loaderx==1.5.2. What else is installed takes part:
h5py lmdb array-record tensorstore torch, fio (apt); loaderx==2.8.19 in an environment of its own, whose Python is
--loaderx28. What is missing is named. Disk: about 12 times --mib, most of it for one record size at a time.
"""

import argparse
import atexit
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np
from native import plot, report, summary
from native.report import size_name

repo = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
cores = os.cpu_count()
BATCH = 256
LIMIT = f"copy from memory, {cores} threads"
SMALL_LIMIT = "copy from memory, 1 thread"
DECODE, SMALL_DECODE = "decode from memory, {} threads", "decode from memory, 1 thread"
# What gathers raw records, by its name in native/contender.py.
RAW = {
    "numpy": "numpy, index of a mapped .npy",
    "numpy take": "numpy, take into a reused array",
    "loaderx": "loaderx 1.5.2",
    "loaderx28": "loaderx 2.8.19",
    "h5py": "h5py",
    "lmdb": "lmdb",
    "array_record": "array_record",
    "tensorstore": "tensorstore",
    "torch": "torch DataLoader",
}
ZSTD = {"loaderx zstd": "loaderx 1.5.2", "loaderx28 zstd": "loaderx 2.8.19"}
DICT = {"loaderx dict": "loaderx 1.5.2"}
# Level 19 takes a second for a few megabytes, and dictionaries are for small records.
DICT_MIB, DICT_SIZES = 16, (200, 2048)
SIZES, MIB, TURNS, SECONDS, RECORDS = "200,2048,12288,262144", 256, 15, 0.15, 100_000_000
ORDERS = ["random", "sorted", "clustered", "repeated"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", help="where to work: the disk that is measured (a temporary directory)")
    parser.add_argument("--bin", help="where zrfs and examples/gather_time are (target/release)")
    parser.add_argument("--out", default=os.path.join(repo, "target", "peers"), help="where results go (target/peers)")
    parser.add_argument("--docs", action="store_true", help="also write docs/PERFORMANCE.md and docs/native.svg")
    parser.add_argument("--loaderx28", default="", help="a Python that has loaderx==2.8.19")
    parser.add_argument("--sizes", default=SIZES, help="bytes of a record")
    parser.add_argument("--mib", type=int, default=MIB, help="MiB of records")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn")
    parser.add_argument("--records", type=int, default=RECORDS, help="of the store that is opened")
    parser.add_argument("--only", help="these peers, by commas; without fio")
    return parser.parse_args()


def command(args):
    """How to run it again, without this machine's paths."""
    given = ["benches/peers/native_peers.py"]
    if args.loaderx28:
        given.append("--loaderx28 PYTHON")
    for name, usual in [("sizes", SIZES), ("mib", MIB), ("turns", TURNS), ("seconds", SECONDS), ("records", RECORDS)]:
        if getattr(args, name) != usual:
            given.append(f"--{name} {getattr(args, name)}")
    if args.only:
        given.append(f"--only {shlex.quote(args.only)}")
    return " ".join(given)


class Process:
    """Asked by lines, answers by lines. It is stopped in between, with all processes that it started: a loader that fills
    its queue after its turn would take the processors from the next contender."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )
        # It then sees that nobody asks any more, and ends.
        atexit.register(self.signal, signal.SIGCONT)

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{shlex.join(self.process.args)} ended: status {self.process.wait()}")
        self.signal(signal.SIGSTOP)
        return line.strip()

    def ask(self, line):
        self.signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        return self.answer()

    def close(self):
        self.signal(signal.SIGCONT)
        atexit.unregister(self.signal)
        self.process.stdin.close()
        self.process.wait()


class Run:
    def __init__(self, args):
        self.args = args
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(repo, "target"))
        self.bin = os.path.abspath(args.bin or os.path.join(target, "release"))
        self.time = os.path.join(self.bin, "examples", "gather_time")
        for program in [self.time, os.path.join(self.bin, "zrfs")]:
            if not os.path.exists(program):
                raise SystemExit(f"{program} is missing; run: cargo build --release --bin zrfs --example gather_time")
        self.results, self.targets = report.Results(), report.Targets()
        self.missing, self.versions, self.open = {}, {}, []

    def takes_part(self, name):
        return not self.args.only or name in self.args.only.split(",")

    def make(self, folder, size):
        """The records: the first quarter of each the same, the rest six random bits a byte."""
        count = max(4, (self.args.mib << 20) // size)
        rng = np.random.default_rng(1)
        data = rng.integers(0, 64, (count, size), dtype=np.uint8)
        data[:, : size // 4] = data[0, : size // 4]
        data.tofile(os.path.join(folder, "data.bin"))
        np.save(os.path.join(folder, "npy.npy"), data)
        few = max(4, min(count, (DICT_MIB << 20) // size))
        np.save(os.path.join(folder, "few.npy"), data[:few])
        # As many batches as there are records, and no more than a few megabytes of indices.
        batches = min(4096, max(16, count // BATCH))
        rng.integers(0, count, batches * BATCH, dtype=np.uint64).tofile(os.path.join(folder, "indices.u64"))
        codecs = {"raw": "npy.npy", "zstd": "npy.npy"}
        if size in DICT_SIZES:
            codecs["zstd_dict"] = "few.npy"
        for codec, source in codecs.items():
            pack = [os.path.join(self.bin, "zrfs"), "pack", "--quiet", "--codec", codec, source, codec + ".zr"]
            subprocess.run(pack, check=True, cwd=folder)
        return list(codecs)

    def peers(self, folder, size, names):
        """Those of `names` that can take part."""
        processes = {}
        for name, shown in names.items():
            if not self.takes_part(name):
                continue
            python = self.args.loaderx28 if name.startswith("loaderx28") else sys.executable
            if not python:
                self.missing[shown] = "no --loaderx28"
                continue
            script = os.path.join(repo, "benches", "peers", "native", "contender.py")
            process = Process(python, script, name, folder, str(size))
            state, words = process.answer().split(" ", 1)
            if state == "missing":
                self.missing[shown] = words
                process.close()
            else:
                self.versions[shown] = words
                processes[shown] = process
        return processes

    def in_turn(self, workload, size, contenders):
        """Each does a turn after the other; the first turn warms caches and buffers up."""
        for turn in range(self.args.turns + 1):
            for name, run in contenders.items():
                value = float(run())
                if turn > 0:
                    self.results.add(workload, size, name, value)

    def gather(self, folder, size, engine, workload, codec, names, limits):
        limit = self.args.seconds
        peers = self.peers(folder, size, names)
        wanted = engine.ask(f"check {codec}.zr")
        for name, process in peers.items():
            got = process.ask("check")
            if got != wanted:
                raise SystemExit(f"{name} gathers something else than zrfs: checksum {got}, not {wanted}")
        turns = {f"zrfs {codec}": lambda: engine.ask(f"gather {codec}.zr random {limit}")}
        for name, line in limits.items():
            turns[name] = lambda line=line: engine.ask(f"{line} {limit}")
        for name, process in peers.items():
            turns[name] = lambda process=process: process.ask(f"gather {limit}")
        self.in_turn(workload, size, turns)
        return peers

    def warm(self, folder, size, codecs, engine):
        limits = {LIMIT: f"copy ram {cores}", SMALL_LIMIT: "copy ram 1"}
        limits |= {f"pread, {cores} threads": f"copy pread {cores}", "pread, 1 thread": "copy pread 1"}
        peers = self.gather(folder, size, engine, "raw", "raw", RAW, limits)
        self.append(size, engine, "append raw", "raw", peers)
        for process in peers.values():
            process.close()
        for codec, names in [("zstd", ZSTD), ("zstd_dict", DICT)]:
            if codec not in codecs:
                continue
            limits = {DECODE.format(cores): f"decode {codec}.zr {cores}", SMALL_DECODE: f"decode {codec}.zr 1"}
            peers = self.gather(folder, size, engine, codec, codec, names, limits)
            if codec == "zstd":
                self.append(size, engine, "append zstd", "zstd", peers)
            for process in peers.values():
                process.close()
        if size == 12288:
            for codec in ["raw", "zstd"]:
                lines = {order: f"gather {codec}.zr {order} {self.args.seconds}" for order in ORDERS}
                runs = {order: lambda line=line: engine.ask(line) for order, line in lines.items()}
                self.in_turn(f"order {codec}", size, runs)

    def append(self, size, engine, workload, codec, peers):
        turns = {"zrfs": f"append {codec} nosync", "zrfs, synced": f"append {codec} sync"}
        if codec == "raw":
            turns |= {"plain writes of 4 MiB": "write nosync", "plain writes, synced": "write sync"}
        else:
            turns |= {f"compressing in memory, {cores} threads": "compress"}
        runs = {name: lambda line=line: engine.ask(line) for name, line in turns.items()}
        for name, process in peers.items():
            if name.startswith("loaderx") or name == RAW["numpy"]:
                runs[name.replace("index of a mapped .npy", "save")] = lambda process=process: process.ask("append")
        full = self.args.turns
        # A turn takes up to a second, so there are fewer.
        self.args.turns = max(1, full // 2)
        self.in_turn(workload, size, runs)
        self.args.turns = full

    def cold(self, folder, size, engine):
        seconds = max(self.args.seconds, 0.5) if self.args.turns > 1 else self.args.seconds
        there = not self.args.only and shutil.which("fio")
        if not there:
            self.missing["fio"] = "left out" if self.args.only else "not on PATH (apt: fio)"
        # Whole sectors, which reads past the page cache have to be.
        block = -(-size // 512) * 512
        chunk = os.path.join(folder, "raw.zr", "0.chunk")
        fio = ["fio", "--name=x", f"--filename={chunk}", "--readonly", "--rw=randread", f"--bs={block}", "--direct=1"]
        fio += ["--ioengine=io_uring", f"--iodepth={BATCH}", f"--runtime={seconds:.2f}s", "--time_based"]
        fio += ["--output-format=json", "--norandommap"]
        for _ in range(max(1, self.args.turns // 2)):
            rate, read = map(float, engine.ask(f"cold raw.zr {seconds}").split())
            self.results.add("cold", size, "zrfs raw", rate)
            self.results.add("cold read", size, "bytes read for each", read)
            if there:
                out = subprocess.run(fio, capture_output=True, text=True, check=True).stdout
                job = json.loads(out[out.index("{") :])["jobs"][0]
                self.results.add("cold", size, f"fio, {BATCH} at a time", job["read"]["iops"])

    def opening(self, folder):
        path = os.path.join(folder, "sparse.zr")
        subprocess.run([self.time, "sparse", path, str(self.args.records)], check=True)
        for _ in range(self.args.turns):
            out = subprocess.run([self.time, "open", path], check=True, capture_output=True, text=True).stdout
            self.open.append([float(number) for number in out.split()])
        shutil.rmtree(path)

    def all(self):
        scratch = tempfile.mkdtemp(dir=self.args.dir, prefix="native-peers-")
        try:
            self.machine = report.machine(scratch, command(self.args))
            for size in map(int, self.args.sizes.split(",")):
                print(f"{size_name(size)} …", file=sys.stderr, flush=True)
                folder = os.path.join(scratch, str(size))
                os.mkdir(folder)
                codecs = self.make(folder, size)
                engine = Process(self.time, folder, str(size))
                self.warm(folder, size, codecs, engine)
                self.cold(folder, size, engine)
                engine.close()
                shutil.rmtree(folder)
            self.opening(scratch)
        finally:
            shutil.rmtree(scratch)


def main():
    args = arguments()
    run = Run(args)
    run.all()
    markdown, ratios = summary.write(run)
    os.makedirs(args.out, exist_ok=True)
    title = "Gather of 256 random raw records, of the rate of copying them"
    svg = plot.bars(title, *ratios, "copy limit")
    everything = {
        "machine": run.machine,
        "turns": run.results.turns,
        "open": run.open,
        "targets": run.targets.rows,
        "versions": run.versions,
        "missing": run.missing,
    }
    for name, content in [("native.md", markdown), ("native.svg", svg), ("native.json", json.dumps(everything, indent=1))]:
        with open(os.path.join(args.out, name), "w") as file:
            file.write(content)
    if args.docs:
        report.write_between(os.path.join(repo, "docs", "PERFORMANCE.md"), "native peers", markdown)
        shutil.copy(os.path.join(args.out, "native.svg"), os.path.join(repo, "docs", "native.svg"))
    print(markdown)


if __name__ == "__main__":
    main()
