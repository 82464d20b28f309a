"""What a run found, as Markdown: the machine, a table for each workload, and each target with its number."""

import datetime
import os
import platform
import statistics
import subprocess


def size_name(size):
    return f"{size} B" if size < 1024 else f"{size >> 10} KiB"


def machine(path, command):
    """Whose figures they are."""

    def first(file, key):
        with open(file) as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "unknown")

    memory = int(first("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    found = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True)
    filesystem = found.stdout.strip().replace("ext2/ext3", "ext4")
    return {
        "cores": os.cpu_count(),
        "model": first("/proc/cpuinfo", "model name"),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
        "filesystem": filesystem,
        "date": datetime.date.today().isoformat(),
        "load": f"{os.getloadavg()[1]:.1f}",
        "command": command,
    }


class Results:
    """The values of all turns: workload, size, contender, turn."""

    def __init__(self):
        self.turns = {}

    def add(self, workload, size, who, value):
        self.turns.setdefault(workload, {}).setdefault(size, {}).setdefault(who, []).append(value)

    def get(self, workload, size, who):
        return self.turns.get(workload, {}).get(size, {}).get(who)

    def median(self, workload, size, who):
        values = self.get(workload, size, who)
        return None if values is None else statistics.median(values)

    def ratio(self, workload, size, who, to):
        """The median of the turns' ratios: what slows a turn slows both."""
        a, b = self.get(workload, size, who), self.get(workload, size, to)
        return None if a is None or b is None else statistics.median(x / y for x, y in zip(a, b))

    def best(self, workload, size, names):
        """Of these the one with the highest median."""
        there = [name for name in names if self.get(workload, size, name)]
        return max(there, key=lambda name: self.median(workload, size, name), default=None)


def table(results, workload, reference, unit="MiB/s"):
    """Medians, and in brackets the ratio to the reference of each size, which `reference` gives."""
    sizes = sorted(results.turns.get(workload, {}))
    names = list(dict.fromkeys(name for size in sizes for name in results.turns[workload][size]))
    lines = [
        f"| {unit} (ratio) | " + " | ".join(map(size_name, sizes)) + " |",
        "|---|" + "---:|" * len(sizes),
    ]
    for name in names:
        cells = []
        for size in sizes:
            value = results.median(workload, size, name)
            ratio = results.ratio(workload, size, name, reference(size))
            cells.append("" if value is None else f"{value:,.0f} ({ratio:.2f})")
        bold = "**" if name.startswith("zrfs") else ""
        lines.append(f"| {bold}{name}{bold} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Targets:
    """What is to be reached, with what was: nothing that was not measured counts as met."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, least, unit="", at_most=False):
        met = None if value is None else (value <= least if at_most else value >= least)
        bound = f"{'≤' if at_most else '≥'} {least:g}{unit}"
        found = "not measured" if value is None else f"{value:.2f}{unit}"
        self.rows.append((what, bound, found, {None: "–", True: "met", False: "**not met**"}[met]))

    def table(self):
        lines = ["| | to reach | found | |", "|---|---:|---:|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines)


def write_between(path, name, content):
    """Puts `content` between a document's marks of that name."""
    begin, end = f"<!-- {name}: written by benches/peers/native_peers.py -->", f"<!-- end of {name} -->"
    with open(path) as file:
        text = file.read()
    if begin not in text or end not in text:
        raise SystemExit(f"{path} has no place for the tables: it needs the lines {begin!r} and {end!r}")
    before, after = text.split(begin)[0], text.split(end)[1]
    with open(path, "w") as file:
        file.write(f"{before}{begin}\n{content.strip()}\n{end}{after}")
