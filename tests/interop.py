"""PyPI's loaderx on the other side of tests/interop.rs: writes, changes and reads stores, and prints what they hold.

Every command prints one JSON object: the description of a store, or of several by name. A description lists the
records as [shape, length in bytes, CRC-32 of the bytes].
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
from loaderx.dataset import DenseDataset, MSDataset, RaggedDataset
from loaderx.utils import from_iterator, from_numpy, train_dict
from loaderx.zrecord import SCHEMA


def facts(record, dtype):
    # A scalar that was taken out of an array has forgotten its byte order.
    record = np.asarray(record, dtype=dtype)
    data = record.tobytes()
    return [list(record.shape), len(data), zlib.crc32(data)]


def open_store(path):
    # The kind is a text in the schema, and each class refuses the other's stores.
    ragged = b"\xa6ragged" in (Path(path) / SCHEMA).read_bytes()[:200]
    return RaggedDataset(path) if ragged else DenseDataset(path)


def describe(ds):
    one_by_one = [facts(ds[i], ds.dtype) for i in range(len(ds))]
    if len(ds):
        # A batch must give the same: reversed, so that the order of places and of records differ.
        order = np.arange(len(ds), dtype=np.uint64)[::-1]
        batch = ds.__getitems__(order)
        assert [facts(r, ds.dtype) for r in batch] == one_by_one[::-1], "a batch differs from single records"
    kind = "ragged" if isinstance(ds, RaggedDataset) else "dense"
    return {"kind": kind, "dtype": np.dtype(ds.dtype).str, "records": one_by_one}


def dense_arrays():
    rng = np.random.default_rng(5)
    yield "u1", rng.integers(0, 255, (50, 7, 5), dtype=np.uint8)
    yield "f4", rng.standard_normal((33, 3)).astype("<f4")
    yield "f4-big", rng.standard_normal((9, 4)).astype(">f4")
    yield "f2", rng.standard_normal((9, 4, 1)).astype("<f2")
    yield "i8-scalar", np.arange(-300, 300, dtype="<i8")
    yield "u2-big-scalar", np.arange(70, dtype=">u2")
    yield "bool", rng.integers(0, 2, (12, 9)).astype(bool)
    yield "c16", (rng.standard_normal((6, 2)) + 1j).astype("<c16")
    yield "text", np.array(["a", "bc", "déf"], dtype="<U5")
    yield "large", rng.integers(0, 4, (3, 1 << 20), dtype=np.uint8)


def ragged_records():
    rng = np.random.default_rng(6)
    shapes = [(3,), (2, 3), (1, 1, 1), (1000,), (4, 1, 2), (70_000,), (1,)] * 3
    return [rng.integers(-9, 9, shape).astype("<i4") for shape in shapes]


def write(root):
    root = Path(root)
    out = {}
    images = (np.add.outer(np.arange(400), np.arange(64)) % 251 // 9).astype(np.uint8)
    dictionary = train_dict(images, tier="fast")
    for name, array in dense_arrays():
        for codec in ("raw", "zstd"):
            path = root / f"dense-{name}-{codec}"
            from_numpy(path, array, codec=codec)
            out[path.name] = {"kind": "dense", "dtype": array.dtype.str, "records": [facts(r, array.dtype) for r in array]}
    path = root / "dense-images-zstd_dict"
    from_numpy(path, images, codec="zstd_dict", dict_bytes=dictionary)
    out[path.name] = {"kind": "dense", "dtype": "|u1", "records": [facts(r, np.uint8) for r in images]}
    records = ragged_records()
    for codec in ("raw", "zstd", "zstd_dict"):
        path = root / f"ragged-i4-{codec}"
        from_iterator(path, records, np.int32, codec=codec, dict_bytes=dictionary if codec == "zstd_dict" else None)
        out[path.name] = {"kind": "ragged", "dtype": "<i4", "records": [facts(r, np.int32) for r in records]}
    return out


def new_records(ds, count):
    """Records that fit the store, made from nothing but their number."""
    dtype = np.dtype(ds.dtype)
    if isinstance(ds, RaggedDataset):
        return [(np.arange(2 * n + 2).reshape(2, n + 1) % 7).astype(dtype) for n in range(count)]
    shape = (count, *ds.item_shape)
    return (np.arange(int(np.prod(shape))).reshape(shape) % 251).astype(dtype)


def change(path, do):
    with open_store(path) as ds:
        do(ds)
    with open_store(path) as ds:
        return describe(ds)


def main(command, *args):
    if command == "write":
        return write(*args)
    if command == "npy":
        # The arrays that `zrfs pack` gets as .npy files.
        out = {}
        for name, array in dense_arrays():
            np.save(Path(args[0]) / f"{name}.npy", array)
            np.save(Path(args[0]) / f"{name}-fortran.npy", np.asfortranarray(array))
            out[name] = out[f"{name}-fortran"] = {
                "kind": "dense", "dtype": array.dtype.str, "records": [facts(r, array.dtype) for r in array],
            }
        return out
    if command == "read":
        out = {}
        for path in args:
            with open_store(path) as ds:
                out[Path(path).name] = describe(ds)
        return out
    if command == "waiting":
        # An empty zstd_dict store, without a dictionary yet.
        with DenseDataset(args[0], dtype=np.uint8, item_shape=(64,), codec="zstd_dict") as ds:
            assert not ds.has_dict()
            return describe(ds)
    if command == "train":
        with open_store(args[0]) as ds:
            train_dict(ds, tier="fast", path=args[1])
        return {}
    if command == "pack-with":
        # A store that loaderx packs with a dictionary given as a file.
        with open_store(args[0]) as ds:
            array = np.asarray(ds.__getitems__(np.arange(len(ds), dtype=np.uint64)))
        from_numpy(args[1], array, codec="zstd_dict", dict_bytes=Path(args[2]).read_bytes())
        return {}
    if command == "streams":
        with MSDataset(args[0]) as ms:
            assert len({len(ms[name]) for name in ms.names}) == 1 and len(ms) == len(ms[ms.names[0]])
            return {name: describe(ms[name]) for name in ms.names}
    if command == "delete":
        return change(args[0], lambda ds: ds.delete([int(i) for i in args[1:]]))
    if command == "delete-samples":
        with MSDataset(args[0]) as ms:
            ms.delete([int(i) for i in args[1:]])
            return {name: describe(ms[name]) for name in ms.names}
    if command == "compact":
        return change(args[0], lambda ds: ds.compact())
    if command == "append":
        return change(args[0], lambda ds: ds.append(new_records(ds, int(args[1]))))
    raise SystemExit(f"no command {command}")


if sys.argv[1:] == ["serve"]:
    # One command a line, as a JSON list; one answer a line.
    for line in sys.stdin:
        print(json.dumps(main(*json.loads(line))), flush=True)
else:
    print(json.dumps(main(*sys.argv[1:])))
