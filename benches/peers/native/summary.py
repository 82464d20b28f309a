"""What a run of `native_peers.py` means: its tables, and what of the targets was reached."""

import statistics

from . import report
from .report import size_name


def limit(run, workload, size, end=""):
    """The limit of a workload: of one thread and all, from memory or by pread, what copies or decodes this size fastest; of
    those whose names end so."""
    kinds = ("copy from memory", "pread") if workload == "raw" else ("decode from memory",)
    names = [name for name in run.results.turns.get(workload, {}).get(size, {}) if name.startswith(kinds) and name.endswith(end)]
    return run.results.best(workload, size, names)


def targets(run):
    results, add = run.results, run.targets.add
    kib = 1024
    for size, least, end, threads in [(256 * kib, 0.9, "threads", " of all threads"), (12 * kib, 0.85, "", "")]:
        ratio = results.ratio("raw", size, "zrfs raw", limit(run, "raw", size, end))
        add(f"raw gather, {size_name(size)}, of the copy limit{threads}", ratio, least)
    for size, others in [
        (256 * kib, [("loaderx 1.5.2", 2.2), ("loaderx 2.8.19", 2.2)]),
        (12 * kib, [("numpy, index of a mapped .npy", 1)]),
        (2 * kib, [("numpy, index of a mapped .npy", 1), ("loaderx 1.5.2", 4)]),
        (200, [("numpy, index of a mapped .npy", 1), ("loaderx 1.5.2", 4)]),
    ]:
        for other, least in others:
            add(f"raw gather, {size_name(size)}, of {other}", results.ratio("raw", size, "zrfs raw", other), least)
    for size in [2 * kib, 12 * kib, 256 * kib]:
        ratio = results.ratio("zstd", size, "zrfs zstd", limit(run, "zstd", size))
        add(f"zstd gather, {size_name(size)}, of decoding in memory", ratio, 0.95)
    for size in [200, 2 * kib, 12 * kib]:
        add(f"zstd gather, {size_name(size)}, of loaderx 1.5.2", results.ratio("zstd", size, "zrfs zstd", "loaderx 1.5.2"), 1.3)
    size = 2 * kib
    ratio = results.ratio("zstd_dict", size, "zrfs zstd_dict", limit(run, "zstd_dict", size))
    add(f"zstd_dict gather, {size_name(size)}, of decoding in memory", ratio, 0.95)
    for size in sorted(results.turns.get("append raw", {})):
        name = size_name(size)
        add(f"append raw, {name}, of plain writes", results.ratio("append raw", size, "zrfs", "plain writes of 4 MiB"), 0.8)
        synced = results.ratio("append raw", size, "zrfs, synced", "plain writes, synced")
        add(f"append raw, {name}, of plain writes, both synced", synced, 0.8)
        add(f"append raw, {name}, of loaderx 1.5.2", results.ratio("append raw", size, "zrfs", "loaderx 1.5.2"), 1)
    for size in sorted(results.turns.get("append zstd", {})):
        memory = [name for name in results.turns["append zstd"][size] if name.startswith("compressing")][0]
        ratio = results.ratio("append zstd", size, "zrfs", memory)
        add(f"append zstd, {size_name(size)}, of compressing in memory", ratio, 0.95)
    for what, column, most, unit, scale in [
        ("open", 0, 5, " ms", 1),
        ("first gather after it", 1, 5, " ms", 1),
        ("memory then, of the whole process", 6, 20, " MiB", 1024),
    ]:
        value = statistics.median(row[column] for row in run.open) / scale
        add(f"{run.args.records:,} records: {what}", value, most, unit, at_most=True)
    for codec in ["raw", "zstd"]:
        for order in ["sorted", "clustered", "repeated"]:
            add(f"{codec} gather, 12 KiB, {order}, of random", results.ratio(f"order {codec}", 12 * kib, order, "random"), 1)
    for size in sorted(results.turns.get("cold", {})):
        fio = next((name for name in results.turns["cold"][size] if name.startswith("fio")), "fio")
        add(f"cold gather, {size_name(size)}, of fio", results.ratio("cold", size, "zrfs raw", fio), 0.9)


def opening(run):
    median = [statistics.median(column) for column in zip(*run.open)]
    names = ["before", "opened", "after the first gather", "after 64 gathers (16,384 records)"]
    lines = [
        f"{run.args.records:,} records of 2 KiB in a sparse store: opened in {median[0]:.2f} ms, the first gather after it "
        f"{median[1]:.2f} ms.",
        "",
        "| memory, MiB | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for name, first in [("resident", 2), ("of that without a file behind it", 3)]:
        cells = [f"{median[first + 2 * k] / 1024:.1f}" for k in range(len(names))]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def orders(run):
    lines = ["| of random | sorted | clustered | repeated |", "|---|---:|---:|---:|"]
    for codec in ["raw", "zstd"]:
        ratios = [run.results.ratio(f"order {codec}", 12288, order, "random") for order in ["sorted", "clustered", "repeated"]]
        lines.append(f"| {codec}, 12 KiB | " + " | ".join("–" if r is None else f"{r:.2f}" for r in ratios) + " |")
    return "\n".join(lines)


def write(run):
    """The Markdown of the whole run, and what the plot shows."""
    targets(run)
    m, results = run.machine, run.results
    rows = run.targets.rows
    count = [sum(row[3] == state for row in rows) for state in ["met", "**not met**", "–"]]
    versions = [f"{name.split(',')[0]} {version}" for name, version in run.versions.items() if version not in name]
    versions = ", ".join(dict.fromkeys(versions))
    busy = " (other work ran at the same time)" if float(m["load"]) > m["cores"] else ""
    missing = "; ".join(f"{name} ({reason})" for name, reason in run.missing.items()) or "nothing"
    parts = [
        f"{m['cores']} cores ({m['model']}), {m['memory']}, Linux {m['kernel']}, {m['filesystem']}, {m['date']}, load "
        f"{m['load']}{busy}: `{m['command']}`. {run.args.mib} MiB of records, {run.args.turns} turns of {run.args.seconds} s. "
        f"{versions}. Left out: {missing}.",
        "Raw records, into a buffer that is used again where a contender can do that; the ratio is to copying, the "
        "fastest of the four rows that do nothing else:",
        report.table(results, "raw", lambda size: limit(run, "raw", size)),
        "zstd, level 3; the ratio is to decoding the same frames from memory:",
        report.table(results, "zstd", lambda size: limit(run, "zstd", size)),
        "zstd_dict, level 19, balanced, 16 MiB of records:",
        report.table(results, "zstd_dict", lambda size: limit(run, "zstd_dict", size)),
        "By the order of the indices:",
        orders(run),
        "Appending 64 MiB of raw records in calls of 16 MiB, without a sync unless it says so; the ratio is to plain writes:",
        report.table(results, "append raw", lambda _: "plain writes of 4 MiB"),
        "Appending with zstd, level 3:",
        report.table(
            results,
            "append zstd",
            lambda size: next(name for name in results.turns["append zstd"][size] if name.startswith("compressing")),
        ),
        "From the disk (what is in the page cache dropped before each turn), each record once, records a second. zrfs asks "
        "for a whole batch at once, up to 64 MiB, so fio has 256 reads under way, past the page cache, of the record's size "
        "in whole sectors:",
        report.table(results, "cold", lambda _: "zrfs raw", "records/s"),
        "Bytes that the disk reads for each byte of a record: "
        + ", ".join(
            f"{size_name(size)} {results.median('cold read', size, 'bytes read for each'):.2f}"
            for size in sorted(results.turns["cold read"])
        )
        + ".",
        opening(run),
        f"Of {len(rows)} targets {count[0]} are met, {count[1]} are not, {count[2]} were not measured:",
        run.targets.table(),
    ]
    groups, series = {}, []
    for size in sorted(results.turns["raw"]):
        of = limit(run, "raw", size)
        names = [name for name in results.turns["raw"][size] if not name.startswith(("copy", "pread"))]
        groups[size_name(size)] = {name: results.ratio("raw", size, name, of) for name in names}
        series += [name for name in names if name not in series]
    return "\n\n".join(parts) + "\n", (groups, series)
