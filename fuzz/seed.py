"""usage: seed.py TARGET. Makes the first inputs of a fuzz target in fuzz/corpus from the stores in tests/golden."""

import struct
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
target = sys.argv[1]
corpus = root / "fuzz" / "corpus" / target
corpus.mkdir(parents=True, exist_ok=True)
stores = sorted((root / "tests" / "golden" / "stores").iterdir())
assert stores, "no golden stores"


def seed(name, data):
    (corpus / f"seed-{name}").write_bytes(data)


def header_table_schema():
    for store in stores:
        meta, schema = (store / "meta.zr").read_bytes(), (store / "schema.msgpack").read_bytes()
        loc = store / "0.loc"
        seed(f"{store.name}-0", b"\0" + meta)
        seed(f"{store.name}-1", b"\1" + meta + (loc.read_bytes() if loc.exists() else b""))
        seed(f"{store.name}-2", b"\2" + schema)
    seed("shapes", b"\3" + bytes([0x91, 3, 0x92, 2, 3, 0x90, 0x91, 0xCD, 1, 0, 0x91, 0xCF] + [0] * 7 + [9]))


FILES = ("meta.zr", "0.loc", "0.chunk", "schema.msgpack", "dict.zr", "sums.zr", "delete.zr", "shapes.zr", "schema.new")


def files(path):
    data = b""
    for name in FILES:
        file = path / name
        content = file.read_bytes() if file.exists() else None
        data += struct.pack("<H", 0xFFFF) if content is None else struct.pack("<H", len(content)) + content
    return data


def store():
    for path in stores:
        seed(path.name, files(path))


# Their checksums are made to match by the targets.
INTENTS = (
    b"ZRSET\0\0\1" + struct.pack("<IIQQI", 1, 0, 0, 0, 0),
    b"ZRSET\0\0\1" + struct.pack("<IIQQQQI", 2, 0, 5, 2, 3, 1, 0),
)


def dataset():
    for path in stores:
        for i, intent in enumerate(INTENTS):
            seed(f"{path.name}-{i}", struct.pack("<H", len(intent)) + intent + files(path) * 2)


def side_files():
    for path in stores:
        meta = (path / "meta.zr").read_bytes()
        journal = b"ZRDEL\0\0\2" + meta * 2 + struct.pack("<Q", 1) + bytes(28) + bytes(4)
        seed(f"delete-{path.name}", b"\0" + journal)
    seed("shapes", b"\1ZRSHP\0\0\1" + bytes(28) + struct.pack("<QIII", 0, 1, 2, 0) + b"\x91\3")
    seed("sums", b"\2ZRSUM\0\0\1" + bytes(24))
    for i, intent in enumerate(INTENTS):
        seed(f"intent-{i}", b"\3" + intent)


def tree_index():
    def node(kind, name_off, name_len, parent, first, size, nlink, mode=0o644):
        mtime = (0, 0) if kind == 4 else (1_700_000_000, 5)
        mode = 0 if kind == 4 else mode
        return struct.pack("<QHBBHHqIIIIIIQQ", name_off, name_len, kind, 0, mode, 0, *mtime, nlink, 0, 0, parent, 0, first, size)

    empty = node(1, 0, 0, 0, 0, 0, 2, 0o755)
    nodes = [
        node(1, 0, 0, 0, 1, 3, 3, 0o755),  # the root with a, b and sym
        node(2, 0, 1, 0, 0, 10, 2),        # a: one record, two names
        node(1, 1, 1, 0, 4, 1, 2, 0o755),  # b: a directory with c
        node(3, 3, 3, 0, 6, 4, 1, 0o777),  # sym -> ../x
        node(4, 2, 1, 2, 1, 0, 0),         # b/c: the same as a
    ]
    # In the order in which the nodes stand: a, b, sym and its target, c.
    ordered = b"ab" + b"sym" + b"../x" + b"c"
    nodes[3] = node(3, 2, 3, 0, 5, 4, 1, 0o777)
    nodes[4] = node(4, 9, 1, 2, 1, 0, 0)
    seed("empty", b"\1" + struct.pack("<IIH", 4096, 0, 0) + empty)
    seed("small", b"\1" + struct.pack("<IIH", 4096, 1, len(ordered)) + ordered + b"".join(nodes))
    seed("raw", b"\0ZRTREE\0\0" + bytes(120))


def npy_idx():
    import gzip

    def npy(text, data, version=1):
        size = struct.pack("<H" if version == 1 else "<I", len(text))
        return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + data

    template = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"
    for i, (dtype, fortran, shape, size) in enumerate(
        [("<f4", False, "(3, 2)", 24), ("|u1", True, "(4, 2, 3)", 24), (">i8", False, "(2,)", 16),
         ("<U3", False, "(2, 1)", 24), ("<M8[ns]", False, "(1,)", 8), ("|b1", False, "(0, 3)", 0)]
    ):
        seed(f"npy-{i}", npy(template % (dtype, fortran, shape), bytes(range(size)), 1 + i % 3))
    seed("npy-gz", gzip.compress(npy(template % ("<f4", False, "(2,)"), bytes(8)), mtime=0))
    for kind, width in ((8, 1), (9, 1), (0xB, 2), (0xC, 4), (0xD, 4), (0xE, 8)):
        seed(f"idx-{kind}", bytes([0, 0, kind, 2]) + struct.pack(">II", 3, 2) + bytes(6 * width))


def dictionary():
    for path in stores:
        file = path / "dict.zr"
        if file.exists():
            content = file.read_bytes()[:0xFFFF]
            # The first record's place, and its length when it is decoded.
            offset, stored, length, _ = struct.unpack("<IIII", (path / "0.loc").read_bytes()[:16])
            frame = (path / "0.chunk").read_bytes()[offset : offset + stored]
            seed(path.name, struct.pack("<H", len(content)) + content + struct.pack("<H", length & 0xFFFF) + frame)
    seed("raw", struct.pack("<H", 8) + b"any text" + struct.pack("<H", 4) + b"text")


{f.__name__: f for f in (header_table_schema, store, dataset, side_files, tree_index, npy_idx, dictionary)}[target]()
print(f"{len(list(corpus.iterdir()))} inputs in {corpus.relative_to(root)}")
