"""A thread that never gathered reads a mapping of a file that was cut short, in a process where another thread gathers
through libzrfs.so: it gets SIGBUS, as without the library.

usage: bus.py DIR FAULTHANDLER, with loaderx's package over the library on PYTHONPATH
"""

import faulthandler
import mmap
import resource
import sys
import threading

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if sys.argv[2] == "1":
    faulthandler.enable()

import numpy as np
from loaderx.dataset import DenseDataset

SIGBUS = 7


def caught():
    with open("/proc/self/status") as status:
        mask = next(line for line in status if line.startswith("SigCgt:"))
    return int(mask.split()[1], 16) >> (SIGBUS - 1) & 1


before = caught()
assert before == int(sys.argv[2])
rows = np.arange(4000 * 100, dtype=np.int32).reshape(4000, 100)
ds = DenseDataset(f"{sys.argv[1]}/store", dtype=np.int32, item_shape=(100,))
ds.append(rows)
picked = np.arange(3999, 0, -3)
for _ in range(5):
    assert np.array_equal(ds[picked], rows[picked])
assert caught(), "no batch was read through a map"

with open(f"{sys.argv[1]}/file", "w+b") as file:
    file.write(bytes(2 * mmap.PAGESIZE))
    file.flush()
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    file.truncate(0)
print("reads", flush=True)
thread = threading.Thread(target=lambda: memory[mmap.PAGESIZE])
thread.start()
thread.join()
