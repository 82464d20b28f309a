"""One other system, in a process of its own: `contender.py NAME DIR RECORD` makes its form of DIR's `data.bin` (records of
RECORD bytes) where it is not made yet, and prints its version, or why it cannot take part. Then it reads lines: "gather
SECONDS" gathers batches of 256 and prints MiB/s, "check" prints the checksum of the first batch, "append" writes the first
64 MiB of records to something new without a sync and prints MiB/s.
"""

import os
import shutil
import sys
import time
import zlib

import numpy as np

BATCH = 256
# A turn has at least so many batches.
LEAST = 4
# An append's calls have so many bytes.
CALL = 16 << 20
# An append's turn has so many, as in examples/gather_time/append.rs.
MOST = 64 << 20


class Peer:
    """What the contenders are measured by. `package` names where its version comes from."""

    package = "numpy"
    # Whether it keeps records in a form of its own, which only has to be made once.
    form = None

    def __init__(self, folder, record):
        self.folder, self.record = folder, record
        self.data = np.memmap(os.path.join(folder, "data.bin"), np.uint8, "r").reshape(-1, record)
        self.length = len(self.data)
        self.path = os.path.join(folder, self.form or "npy.npy")
        self.room = np.zeros((BATCH, record), np.uint8)
        if self.form and not os.path.exists(self.path):
            self.make(self.path)
        self.open()

    def pieces(self, data=None):
        """The records in arrays of a call's bytes."""
        data, rows = self.data if data is None else data, max(1, CALL // self.record)
        for start in range(0, len(data), rows):
            yield start, data[start : start + rows]

    def some(self):
        """The records of an append, in memory."""
        return np.array(self.data[: -(-MOST // self.record)])

    def open(self):
        pass

    def turns(self, batches):
        """Gathers of these batches, one a step."""
        return map(self.gather, batches)

    def array(self, batch):
        """What a gather returned, for its checksum."""
        return np.ascontiguousarray(batch)

    def append(self):
        """Bytes a second."""
        raise NotImplementedError("does not append")


class Npy(Peer):
    """numpy's index of a mapped .npy: a fresh array for each batch."""

    def open(self):
        self.mapped = np.load(self.path, mmap_mode="r")

    def gather(self, indices):
        return self.mapped[indices]

    def append(self):
        path = os.path.join(self.folder, "append.npy")
        data = self.some()
        start = time.perf_counter()
        np.save(path, data)
        took = time.perf_counter() - start
        os.remove(path)
        return data.nbytes / took


class NpyTake(Npy):
    """np.take of a mapped .npy into an array that is used again."""

    def gather(self, indices):
        # Another mode than "clip" would copy the batch once more.
        return np.take(self.mapped, indices, axis=0, out=self.room, mode="clip")


class Loaderx(Peer):
    """loaderx 1.5.2 on the very stores that zrfs reads."""

    package, codec = "loaderx", "raw"

    def open(self):
        from loaderx.dataset import DenseDataset

        self.kind = DenseDataset
        path = os.path.join(self.folder, self.codec + ".zr")
        self.store = DenseDataset(path)
        self.length = len(self.store)

    def gather(self, indices):
        return self.store[indices]

    def append(self):
        path = os.path.join(self.folder, "append.loaderx")
        store = self.kind(path, dtype=np.dtype(np.uint8), item_shape=(self.record,), codec=self.codec)
        data = self.some()
        start = time.perf_counter()
        for _, piece in self.pieces(data):
            store.append(piece)
        took = time.perf_counter() - start
        store.close()
        shutil.rmtree(path)
        return data.nbytes / took


class LoaderxZstd(Loaderx):
    codec = "zstd"


class LoaderxDict(Loaderx):
    codec = "zstd_dict"


class Loaderx28(Peer):
    """loaderx 2.8.19 on a store of its own."""

    package, form, codec = "loaderx", "loaderx28.raw", "raw"

    def make(self, path):
        from loaderx.zrecord import DenseWriter

        with DenseWriter(path, np.dtype(np.uint8), (self.record,), codec=self.codec) as writer:
            for _, piece in self.pieces():
                writer.append(np.array(piece))

    def open(self):
        from loaderx import Allocator
        from loaderx.zrecord import DenseStore

        self.store, self.allocator = DenseStore(self.path), Allocator("cpu")
        self.view = self.store.bind(self.allocator)

    def gather(self, indices):
        return self.view[indices]

    def array(self, batch):
        return np.from_dlpack(batch)

    def append(self):
        from loaderx.zrecord import DenseWriter

        path = os.path.join(self.folder, "append.loaderx28")
        data = self.some()
        with DenseWriter(path, np.dtype(np.uint8), (self.record,), codec=self.codec) as writer:
            start = time.perf_counter()
            for _, piece in self.pieces(data):
                writer.append(piece)
            took = time.perf_counter() - start
        shutil.rmtree(path)
        return data.nbytes / took


class Loaderx28Zstd(Loaderx28):
    form, codec = "loaderx28.zstd", "zstd"


class Hdf5(Peer):
    """h5py: a contiguous data set, a read for each record, since a list of indices would have to be in order."""

    package, form = "h5py", "hdf5.h5"

    def make(self, path):
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=self.data)

    def open(self):
        import h5py

        self.records = h5py.File(self.path, "r")["x"]

    def gather(self, indices):
        for place, index in enumerate(indices):
            self.records.read_direct(self.room, np.s_[int(index)], np.s_[place])
        return self.room


class Lmdb(Peer):
    """lmdb: a key of 8 bytes for each record, copied out of the map."""

    package, form = "lmdb", "lmdb"

    def make(self, path):
        import lmdb

        with lmdb.open(path, map_size=4 * self.data.nbytes + (1 << 30), sync=False) as env:
            for first, piece in self.pieces():
                with env.begin(write=True) as txn:
                    for k, row in enumerate(piece):
                        txn.put((first + k).to_bytes(8, "big"), row.tobytes(), append=True)

    def open(self):
        import lmdb

        self.txn = lmdb.open(self.path, readonly=True, lock=False, readahead=False).begin(buffers=True)

    def gather(self, indices):
        for place, index in enumerate(indices.tolist()):
            self.room[place] = np.frombuffer(self.txn.get(index.to_bytes(8, "big")), np.uint8)
        return self.room


class ArrayRecord(Peer):
    """array_record, uncompressed, a group for each record, as random access is advised."""

    package, form = "array-record", "arrayrecord"

    def make(self, path):
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
        for _, piece in self.pieces():
            for row in piece:
                writer.write(row.tobytes())
        writer.close()

    def open(self):
        from array_record.python.array_record_module import ArrayRecordReader

        self.reader = ArrayRecordReader(self.path, "readahead_buffer_size:0")

    def gather(self, indices):
        for place, bytes_ in enumerate(self.reader.read(indices.tolist())):
            self.room[place] = np.frombuffer(bytes_, np.uint8)
        return self.room


class TensorStore(Peer):
    """tensorstore: zarr3, a chunk for each record, in shards of about 16 MiB, uncompressed."""

    package, form = "tensorstore", "zarr"

    def make(self, path):
        import tensorstore

        rows = max(1, CALL // self.record)
        inner = {"chunk_shape": [1, self.record], "codecs": [{"name": "bytes"}]}
        grid = {"name": "regular", "configuration": {"chunk_shape": [rows, self.record]}}
        metadata = {
            "shape": list(self.data.shape),
            "data_type": "uint8",
            "chunk_grid": grid,
            "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        }
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}, "metadata": metadata}
        store = tensorstore.open(spec, create=True).result()
        for first, piece in self.pieces():
            store[first : first + len(piece)].write(np.array(piece)).result()

    def open(self):
        import tensorstore

        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": self.path}}
        self.store = tensorstore.open(spec).result()

    def gather(self, indices):
        return self.store[indices.astype(np.int64)].read().result()


class Torch(Peer):
    """torch's DataLoader over a mapped .npy, a worker for each core; what is ready when a turn begins does not count."""

    package = "torch"

    def open(self):
        import torch.utils.data

        mapped = np.load(self.path, mmap_mode="r")

        class Records(torch.utils.data.Dataset):
            def __len__(self):
                return len(mapped)

            def __getitem__(self, index):
                return torch.from_numpy(np.array(mapped[index]))

        self.torch, self.records = torch, Records()

    def turns(self, batches):
        workers = os.cpu_count()
        lists = (batch.tolist() for batch in batches)
        loader = self.torch.utils.data.DataLoader(self.records, batch_sampler=lists, num_workers=workers)
        return iter(loader)


PEERS = {
    "numpy": Npy,
    "numpy take": NpyTake,
    "loaderx": Loaderx,
    "loaderx zstd": LoaderxZstd,
    "loaderx dict": LoaderxDict,
    "loaderx28": Loaderx28,
    "loaderx28 zstd": Loaderx28Zstd,
    "h5py": Hdf5,
    "lmdb": Lmdb,
    "array_record": ArrayRecord,
    "tensorstore": TensorStore,
    "torch": Torch,
}


def endless(batches, length):
    while True:
        for batch in batches:
            yield batch % length


def main():
    name, folder, record = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # What a library prints is not an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        peer = PEERS[name](folder, record)
        from importlib.metadata import version

        print("ready", version(peer.package), file=answers)
    except Exception as error:
        print("missing", str(error).splitlines()[0] if str(error) else type(error).__name__, file=answers)
        return
    batches = np.fromfile(os.path.join(folder, "indices.u64"), np.uint64).reshape(-1, BATCH)
    stream, bytes_ = endless(batches, np.uint64(peer.length)), BATCH * record
    running = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "check":
            # A loader that makes batches ahead goes on from here.
            running = peer.turns(stream)
            print(zlib.crc32(peer.array(next(running))), file=answers)
        elif words[0] == "append":
            print(peer.append() / 2**20, file=answers)
        else:
            limit, steps = float(words[1]), 0
            if name == "torch":
                # Two batches for each worker are ready, and one that it has begun.
                for _ in range(3 * os.cpu_count()):
                    next(running)
            start = time.perf_counter()
            while time.perf_counter() - start < limit or steps < LEAST:
                next(running)
                steps += 1
            print(bytes_ * steps / 2**20 / (time.perf_counter() - start), file=answers)


if __name__ == "__main__":
    main()
