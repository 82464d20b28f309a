"""loaderx's own libraries and libzrfs.so side by side: the same calls must give the same codes, numbers and bytes.

usage: differential.py LIBZRFS_SO DIR SEED...

Random calls, right ones and wrong ones, on stores of every codec and on samplers; only what loaderx leaves undefined is
left out. Sizes of compressed records are not compared: a frame of zrfs has a checksum.
"""

import random
import sys
from pathlib import Path

import numpy as np
from cffi import FFI
from loaderx import _lib, sampler, zrecord

sides = {}
for name, records, draws in (
    ("loaderx", _lib.path("zrecord"), _lib.path("sampler")),
    ("zrfs", sys.argv[1], sys.argv[1]),
):
    sides[name] = zrecord.ffi.dlopen(records), sampler.ffi.dlopen(draws)
null = FFI().NULL


def cast(kind, array):
    return zrecord.ffi.cast(kind, array.ctypes.data)


class Store:
    def __init__(self, side, path, codec):
        self.lib = sides[side][0]
        self.path, self.zr = str(path).encode(), null
        self.reopen(codec)

    def reopen(self, codec):
        if self.zr != null:
            self.lib.zr_close(self.zr)
        code = zrecord.ffi.new("int32_t *", 77)
        self.zr = self.lib.zr_open(self.path, len(self.path), codec, code)
        return self.zr != null, code[0], self.lib.zr_codec(self.zr), self.lib.zr_has_dict(self.zr)

    def len(self):
        return self.lib.zr_len(self.zr)

    def append(self, src, offsets):
        return self.lib.zr_append(self.zr, cast("uint8_t *", src), src.size, cast("uint64_t *", offsets), offsets.size)

    def gather(self, indices, size, offsets):
        dst = np.full(size, 0xEE, np.uint8)
        code = self.lib.zr_gather(
            self.zr, cast("uint64_t *", indices), indices.size, cast("uint8_t *", dst), size, cast("uint64_t *", offsets)
        )
        return code, dst.tobytes() if code == 0 else b""

    def lengths(self, indices):
        out = np.zeros(indices.size, np.uint32)
        code = self.lib.zr_lengths(self.zr, cast("uint64_t *", indices), indices.size, cast("uint32_t *", out))
        return code, out.tolist() if code == 0 else []

    def delete(self, indices):
        return self.lib.zr_delete(self.zr, cast("uint64_t *", indices), indices.size)

    def compact(self):
        return self.lib.zr_compact(self.zr)

    def sync(self):
        return self.lib.zr_sync(self.zr)

    def stats(self):
        out = np.zeros(3, np.uint64)
        at = [cast("uint64_t *", out[k:]) for k in range(3)]
        self.lib.zr_stats(self.zr, *at)
        return out.tolist()

    def install(self, dictionary):
        code = zrecord.ffi.new("int32_t *", 77)
        raw = np.frombuffer(dictionary, np.uint8)
        return self.lib.zr_install_dict(self.zr, cast("uint8_t *", raw), raw.size, code), code[0]


def numbers(values):
    return np.array(list(values), dtype=np.uint64)


def records(rng, count):
    """Records one after the other, and where they begin; now and then not in order, empty or beyond the end."""
    lengths = [rng.choice([1, 3, 40, 700, 5000]) + rng.randrange(40) for _ in range(count)]
    offsets = [sum(lengths[:k]) for k in range(count)]
    src = np.frombuffer(bytes(rng.choice(b"abcd") for _ in range(sum(lengths))), np.uint8).copy()
    if rng.random() < 0.15 and count:
        offsets[rng.randrange(count)] = rng.choice([src.size, src.size + 1, offsets[0], offsets[-1], 1 << 40])
    return src, numbers(offsets)


def gathers(rng, store):
    """Indices and their places: shuffled, with gaps; now and then out of range or beyond the end."""
    n = store.len()
    indices = [rng.randrange(n) for _ in range(rng.randrange(30))]
    code, lengths = store.lengths(numbers(indices))
    assert code == 0
    places, at = {}, 0
    for k in rng.sample(range(len(indices)), len(indices)):
        at += rng.randrange(3)
        places[k] = at
        at += lengths[k]
    offsets = [places[k] for k in range(len(indices))]
    for _ in range(2 if rng.random() < 0.2 else 0):
        if indices:
            k = rng.randrange(len(indices))
            if rng.random() < 0.5:
                # Not farther than the table's file reaches, where loaderx reads before it looks.
                indices[k] = n + rng.randrange(1000)
            else:
                # Beyond the end: places that overlap are read by loaderx in any order.
                offsets[k] = rng.choice([at, at + 1, 1 << 62, 2**64 - 1])
    return numbers(indices), at, numbers(offsets)


def stores(seed, root):
    rng = random.Random(seed)
    codec = seed % 3
    both = [Store(side, root / f"{side}-{seed}", codec) for side in sides]
    made, counts = {}, {}

    def same(what, *args):
        results = [getattr(store, what)(*args) for store in both]
        assert results[0] == results[1], f"seed {seed}: {what}{args}: loaderx {results[0]!r}, zrfs {results[1]!r}"
        counts[what] = counts.get(what, 0) + 1
        code = results[0][0] if isinstance(results[0], (tuple, list)) else results[0]
        made.setdefault(what, set()).add(min(code, 0))
        return results[0]

    same("reopen", codec)
    if codec == 2:
        assert same("append", *records(random.Random(1), 3)) < 0
        samples = [bytes(rng.choice(b"abcd") for _ in range(200)) for _ in range(500)]
        for size in (2000, 4000):
            dictionary = zrecord.build_dict(b"".join(samples), [200] * 500, size)
            same("install", dictionary)
        same("reopen", codec)
    for _ in range(120):
        n = same("len")
        turn = rng.random()
        if turn < 0.3 or n == 0:
            src, offsets = records(rng, rng.randrange(12))
            same("append", src, offsets)
        elif turn < 0.65:
            same("gather", *gathers(rng, both[0]))
        elif turn < 0.75:
            same("lengths", numbers(rng.randrange(n + (rng.random() < 0.1)) for _ in range(rng.randrange(9))))
        elif turn < 0.88:
            same("delete", numbers(rng.randrange(n + (rng.random() < 0.1)) for _ in range(rng.randrange(6))))
        elif turn < 0.92:
            same("compact")
        elif turn < 0.95:
            same("reopen", rng.randrange(3))
        elif codec == 0:
            same("stats")
        else:
            same("sync")
    n = same("len")
    for start in range(0, n, 50):
        indices = numbers(range(start, min(n, start + 50)))
        lengths = numbers(same("lengths", indices)[1])
        assert same("gather", indices, int(lengths.sum()), lengths.cumsum() - lengths)[0] == 0
    for store in both:
        store.lib.zr_close(store.zr)
    return counts, made


def samplers(seed):
    rng = random.Random(seed)
    lib = sampler.ffi
    for _ in range(60):
        length = rng.choice([1, 2, 3, 10, 1000, 12345, 1 << 33])
        batch = rng.choice([1, 2, 7, 256])
        mode, start = rng.randrange(3), rng.randrange(1 << 64)
        both = [(draws, draws.cinit(length, batch, mode, start)) for _, draws in sides.values()]
        for _ in range(12):
            step = rng.randrange(2000) if rng.random() < 0.3 else None
            got = []
            for draws, s in both:
                if step is not None:
                    draws.cseek(s, step)
                out = np.zeros(batch, np.uint64)
                n = draws.cnext(s, lib.cast("uint64_t *", out.ctypes.data), batch)
                got.append((n, out.tolist()))
            assert got[0] == got[1], (length, batch, mode, start, step, got)
        for draws, s in both:
            draws.cdeinit(s)


total, codes = {}, {}
for seed in map(int, sys.argv[3:]):
    counts, made = stores(seed, Path(sys.argv[2]))
    for what, n in counts.items():
        total[what] = total.get(what, 0) + n
        codes.setdefault(what, set()).update(made[what])
    samplers(seed)
print("calls:", total)
print("codes:", {what: sorted(c) for what, c in codes.items()})
# The wrong ones were among them.
assert {-3, -6} <= codes["gather"] and {-4, -6} <= codes["append"] and -3 in codes["delete"] and -3 in codes["lengths"]
