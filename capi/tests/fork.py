"""A process that forks while it has stores open through libzrfs.so: the children read on, and leave the parent's be.

usage: fork.py DIR, with loaderx's package over the library on PYTHONPATH
"""

import os
import sys
import threading

import numpy as np
from loaderx.dataset import DenseDataset
from loaderx.zrecord import ZrecordError, ffi

rows = np.arange(4000 * 100, dtype=np.int32).reshape(4000, 100)
ds = DenseDataset(f"{sys.argv[1]}/store", dtype=np.int32, item_shape=(100,))
ds.append(rows)
stop = threading.Event()


def gather(seed):
    rng = np.random.default_rng(seed)
    while not stop.is_set():
        picked = rng.integers(0, 4000, 2000)
        assert np.array_equal(ds[picked], rows[picked])


def child():
    picked = np.arange(3999, 0, -3)
    for _ in range(5):
        assert np.array_equal(ds[picked], rows[picked])
    try:
        ds.append(rows[:1])
        raise AssertionError("a child wrote with its parent's writer")
    except ZrecordError as e:
        assert e.code == -2
    ds.close()


threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
try:
    for _ in range(8):
        # cffi's own lock, which a child would find taken for good where another thread has it at this moment.
        with ffi._lock:
            pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(0)
            except BaseException as e:
                print(repr(e), file=sys.stderr, flush=True)
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0, "a child failed"
finally:
    stop.set()
    for thread in threads:
        thread.join()
assert ds.append(rows[:2]) == 4000
ds.close()
print("8 children")
