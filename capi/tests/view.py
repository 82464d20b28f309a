"""Batches from a mount through libzrfs.so: view.py LIBZRFS_SO make STORE, then, mounted by zrfs-mount run, view.py LIBZRFS_SO.
"""

import ctypes as c
import os
import sys

import numpy as np

lib = c.CDLL(sys.argv[1])
lib.zrfs_last_error.restype = c.c_char_p
N, SHAPE = 1000, (4, 3)
WANT = np.arange(N * 12, dtype="<i2").reshape(N, *SHAPE)


class BatchInfo(c.Structure):
    _fields_ = [("size", c.c_uint64), ("step", c.c_uint64), ("records", c.c_uint64), ("indices", c.POINTER(c.c_uint64)),
                ("parts", c.c_uint32), ("reserved", c.c_uint32)]


class Part(c.Structure):
    _fields_ = [("size", c.c_uint64), ("data", c.c_void_p), ("bytes", c.c_uint64), ("offsets", c.c_void_p),
                ("shapes", c.POINTER(c.c_uint64)), ("shape_starts", c.c_void_p), ("kind", c.c_uint32), ("ndim", c.c_uint32),
                ("dtype", c.c_char_p), ("name", c.c_char_p)]


def ok(code):
    assert code == 0, (code, lib.zrfs_last_error())


def take(batch):
    """The indices and the array of a batch, which is given back."""
    info, part = BatchInfo(size=c.sizeof(BatchInfo)), Part(size=c.sizeof(Part))
    ok(lib.zrfs_get_batch_info(batch, c.byref(info)))
    ok(lib.zrfs_batch_part(batch, 0, c.byref(part)))
    shape = [part.shapes[k] for k in range(part.ndim)]
    array = np.frombuffer(c.string_at(part.data, part.bytes), part.dtype.decode()).reshape(shape)
    indices = [info.indices[k] for k in range(info.records)]
    lib.zrfs_batch_release(batch)
    return info.step, indices, array


if sys.argv[2:3] == ["make"]:
    writer, shape = c.c_void_p(), (c.c_uint64 * 2)(*SHAPE)
    ok(lib.zrfs_create_dense(sys.argv[3].encode(), b"<i2", shape, 2, None, c.byref(writer)))
    data = WANT.tobytes()
    ok(lib.zrfs_append(writer, data, c.c_size_t(len(data)), None))
    ok(lib.zrfs_writer_close(writer))
    sys.exit()

at = os.environ["ZRFS_MOUNT"]
mount, batch, loader = c.c_void_p(), c.c_void_p(), c.c_void_p()
ok(lib.zrfs_view_open(f"{at}/records/5".encode(), None, c.byref(mount)))
records = c.c_uint64()
ok(lib.zrfs_view_records(mount, c.byref(records)))
assert records.value == N

for wanted in [[5, 0, 5, 999], list(range(0, 1000, 7)) * 20, []]:
    indices = (c.c_uint64 * len(wanted))(*wanted)
    ok(lib.zrfs_view_gather(mount, indices, c.c_size_t(len(wanted)), c.byref(batch)))
    _, drawn, array = take(batch)
    assert drawn == wanted and np.array_equal(array, WANT[wanted]), wanted

spec = b"cyclic,batch=32,seed=7"
options = (c.c_uint64 * 8)(64, c.cast(c.c_char_p(spec), c.c_void_p).value)
ok(lib.zrfs_view_loader(mount, options, c.byref(loader)))
for step in range(5):
    ok(lib.zrfs_view_sample(mount, spec, c.c_uint64(step), c.byref(batch)))
    _, drawn, array = take(batch)
    by_path = np.load(f"{at}/batches/{spec.decode()}/{step}.npy")
    assert np.array_equal(array, WANT[drawn]) and np.array_equal(array, by_path)
    ok(lib.zrfs_loader_next(loader, c.byref(batch)))
    number, same, array = take(batch)
    assert number == step and same == drawn and np.array_equal(array, by_path)
lib.zrfs_loader_destroy(loader)

# Drawn from the first records alone, as by path; the key may stand anywhere behind the mode.
for among in ["cyclic,batch=32,seed=7,length=500", "cyclic,length=500,batch=32,seed=7"]:
    ok(lib.zrfs_view_sample(mount, among.encode(), c.c_uint64(3), c.byref(batch)))
    step, drawn, array = take(batch)
    assert step == 3 and max(drawn) < 500 and np.array_equal(array, np.load(f"{at}/batches/{among}/3.npy")), among

# What is wrong is a code, and nothing is handed over.
batch = c.c_void_p()
for wrong, step, why in [
    *((f"cyclic,batch=4,length={length}", 0, "length") for length in ["0", "1001", "05", "+5", "", "x", "9,length=9", 2**64]),
    ("length=9,cyclic,batch=4", 0, "mode"),
    ("iid,batch=1000", 1 << 60, "too far"),
]:
    code = lib.zrfs_view_sample(mount, wrong.encode(), c.c_uint64(step), c.byref(batch))
    said = lib.zrfs_last_error().decode()
    assert code == -10 and why in said and not batch.value, (wrong, code, said)
one = (c.c_uint64 * 1)(N)
for code, said in [
    (lib.zrfs_view_gather(mount, one, c.c_size_t(1), c.byref(batch)), -3),
    (lib.zrfs_view_gather(mount, None, c.c_size_t(1), c.byref(batch)), -6),
    (lib.zrfs_view_gather(mount, one, c.c_size_t(1), None), -6),
    (lib.zrfs_view_sample(mount, b"cyclic,batch=0", c.c_uint64(0), c.byref(batch)), -10),
    (lib.zrfs_view_open(b"/", None, c.byref(loader)), -8),
    (lib.zrfs_view_open(at.encode(), b"nothing", c.byref(loader)), -10),
]:
    assert code == said, (code, said, lib.zrfs_last_error())
assert not batch.value and not loader.value
lib.zrfs_view_close(mount)
assert lib.zrfs_view_records(mount, c.byref(records)) == -14
