#!/usr/bin/env python3
"""Batches from a zrfs mount with nothing but Python's own modules (numpy only where it is there).

    examples/mount_client.py MOUNTPOINT 5 17 0                    the records at these indices
    examples/mount_client.py MOUNTPOINT --sample 256 --steps 100  shuffled batches, one after the other

docs/VIEWS.md and include/zrfs-abi.h say what the bytes mean.
"""

import argparse
import errno
import fcntl
import mmap
import os
import socket
import struct
import sys
import time

VIEW = struct.Struct("=QIIQQQQQQ")  # view stream flags count bytes slab capacity key seal
SPEC = struct.Struct("=BB6x6Q")  # mode tail batch seed rank world step length
SERVER = struct.Struct("=IIQQQ96s")  # version socket_len features view_memory max_views socket
HEADER = struct.Struct("=8sIIQQQQQQ")  # magic version streams seal count bytes indices length step
STREAM = struct.Struct("=II8QIIQ8x")  # number kind data data_bytes offsets shapes shapes_bytes itemsize dtype name …
SMALL, LARGE = 256, 2032
OWN = 0xFFFFFFFF
CYCLIC = 3


def call(direction, number, size):
    """The number of an ioctl."""
    return direction << 30 | size << 16 | ord("z") << 8 | number


GET_SERVER = call(2, 0xC0, SERVER.size)
GET_STORE = call(2, 0xC1, 32)
BEGIN = call(3, 0xC3, VIEW.size)
PUSH = call(3, 0xC4, VIEW.size + 8 * LARGE)
SEAL = call(3, 0xC5, VIEW.size)
GATHER = {n: call(3, 0xC6, VIEW.size + 8 * n) for n in (SMALL, LARGE)}
SAMPLE = call(3, 0xC7, VIEW.size + SPEC.size)
CLOSE = call(1, 0xC8, VIEW.size)
WAIT = call(3, 0xC9, VIEW.size)
START = 1


class View:
    """A batch in memory that is shared with the mount, and used again for the next one."""

    def __init__(self, mountpoint):
        self.fd = os.open(mountpoint, os.O_RDONLY)
        server = bytearray(SERVER.size)
        try:
            fcntl.ioctl(self.fd, GET_SERVER, server)
        except OSError:
            os.close(self.fd)
            raise
        version, length, self.features, self.max_bytes, self.max_views, name = SERVER.unpack(server)
        if version != 1:
            raise OSError(f"{mountpoint} speaks version {version}")
        self.socket = b"\0" + name[:length]
        self.view, self.slab, self.memory = 0, 0, None
        self.path, self.by_file = mountpoint, False

    def _call(self, command, stream=0, count=0, rest=b"", size=0):
        data = bytearray(VIEW.pack(self.view, stream, 0, count, 0, 0, 0, 0, 0) + rest)
        data.extend(bytes(max(0, size - len(data))))
        self._ask(command, data)
        self._answered(data)

    def _ask(self, command, data):
        """An ioctl; where the mount refuses more, the error names its limit."""
        try:
            fcntl.ioctl(self.fd, command, data)
        except OSError as e:
            if e.errno == errno.EMFILE:
                why = f"one user has at most {self.max_views} views at a time; mount with a larger --max-views"
            elif e.errno == errno.ENOSPC:
                why = f"the views of one user have at most {self.max_bytes} bytes together; mount with a larger --view-memory"
            else:
                raise
            raise OSError(e.errno, why) from None

    def _answered(self, data):
        self.view, _, _, _, _, slab, capacity, key, _ = VIEW.unpack_from(data)
        if slab not in (0, self.slab) and not self.by_file:
            try:
                self.memory, self.slab = self._map(key, capacity), slab
            except OSError:  # no socket there: in a container with a network of its own
                self.by_file = True

    def _map(self, key, capacity):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.settimeout(10)
            s.bind("")  # a name of the kernel's choice, to be answered at
            s.connect(self.socket)
            s.send(struct.pack("=QQ", self.view, key))
            _, files, _, _ = socket.recv_fds(s, 16, 1)
        try:
            return mmap.mmap(files[0], capacity)
        finally:
            os.close(files[0])

    def _file(self):
        """The bytes of the batch from the file of the view, where its memory is not to be had."""
        top = os.path.realpath(self.path)
        while os.stat(os.path.dirname(top)).st_dev == os.stat(top).st_dev and top != "/":
            top = os.path.dirname(top)
        views = os.path.join(top, ".zrfs/views")
        if not os.path.isdir(views):
            raise OSError(
                f"the mount's socket is not in this network namespace, and the view's file not below {top}, which is a part of "
                "the mount, or one with --root: let this program see the root of a mount without --root, or share the network "
                "namespace of zrfs-mount"
            )
        with open(os.path.join(views, str(self.view)), "rb") as file:
            return file.read()

    def records(self):
        """How many records there are by now."""
        store = bytearray(32)
        fcntl.ioctl(self.fd, GET_STORE, store)
        return struct.unpack_from("=Q", store)[0]

    def begin(self, stream=OWN):
        """Has the mount make the view, if it did not yet."""
        if self.view == 0:
            self._call(BEGIN, stream)

    def gather(self, indices, stream=OWN):
        """The records at these indices, in one round trip if they are at most 2032."""
        pack = lambda part: struct.pack(f"={len(part)}Q", *part)
        if len(indices) <= LARGE:
            n = SMALL if len(indices) <= SMALL else LARGE
            self._call(GATHER[n], stream, len(indices), pack(indices), VIEW.size + 8 * n)
        else:
            self._call(BEGIN, stream)
            for at in range(0, len(indices), LARGE):
                part = indices[at : at + LARGE]
                self._call(PUSH, 0, len(part), pack(part), VIEW.size + 8 * LARGE)
            self._call(SEAL)
        return self.streams()

    def sample(self, batch, seed, step, mode=CYCLIC, rank=0, world=1, stream=OWN, length=0):
        """The batch of a step, whose indices the mount draws from the first `length` records, or from all by now."""
        self._call(SAMPLE, stream, 0, SPEC.pack(mode, 0, batch, seed, rank, world, step, length))
        return self.streams()

    def start_sample(self, batch, seed, step, mode=CYCLIC, rank=0, world=1, stream=OWN, length=0, wait_for=None):
        """Has the batch of a step gathered while this program goes on. In the same round trip it waits for the batch of another
        view that was started before, if one is given."""
        self.begin(stream)
        before = wait_for.view if wait_for else 0
        data = bytearray(VIEW.pack(self.view, stream, START, 0, 0, 0, 0, 0, before))
        data += SPEC.pack(mode, 0, batch, seed, rank, world, step, length)
        self._ask(SAMPLE, data)
        (wait_for or self)._answered(data)

    def wait(self):
        """Waits for the batch that was started."""
        self._call(WAIT)
        return self.streams()

    def streams(self):
        """What the memory holds: for each stream name, dtype, where each record begins and ends, shapes, and all bytes."""
        if self.by_file:
            self.memory = self._file()
        m = memoryview(self.memory)
        magic, _, streams, _, count, _, _, _, _ = HEADER.unpack_from(m)
        assert magic == b"ZRFSVIEW"
        numbers = lambda at, n: list(m[at : at + 8 * n].cast("Q"))
        found = {}
        for k in range(streams):
            (_, kind, data, data_bytes, offsets, shapes, shapes_bytes, _, dtype, name, dtype_len, name_len, _) = (
                STREAM.unpack_from(m, HEADER.size + k * STREAM.size)
            )
            shapes = numbers(shapes, shapes_bytes // 8)
            if kind == 1:  # dense: one array
                shapes = [count, *shapes]
            elif kind == 2:  # ragged: an array a record
                starts, extents = shapes[: count + 1], shapes[count + 1 :]
                shapes = [extents[a:b] for a, b in zip(starts, starts[1:])]
            found[bytes(m[name : name + name_len]).decode()] = {
                "kind": kind,
                "dtype": bytes(m[dtype : dtype + dtype_len]).decode(),
                "offsets": numbers(offsets, count + 1),
                "shapes": shapes,
                "bytes": m[data : data + data_bytes],  # not copied: the next batch comes into the same memory
            }
        return found

    def close(self):
        if self.view:
            fcntl.ioctl(self.fd, CLOSE, VIEW.pack(self.view, 0, 0, 0, 0, 0, 0, 0, 0))
        os.close(self.fd)


def samples(views, batch, seed, steps):
    """The batches of so many steps, in two views by turns: the mount gathers the next while the caller uses this one. Where it
    gives one view only, one batch after the other."""
    try:
        for view in views[:steps]:
            view.begin()
    except OSError as e:
        if e.errno != errno.EMFILE:
            raise
        for step in range(steps):
            yield views[0].sample(batch, seed, step)
        return
    views[0].start_sample(batch, seed, 0)
    for step in range(steps):
        now, later = views[step % 2], views[(step + 1) % 2]
        if step + 1 < steps:
            later.start_sample(batch, seed, step + 1, wait_for=now)
            yield now.streams()
        else:
            yield now.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mountpoint")
    parser.add_argument("index", type=int, nargs="*")
    parser.add_argument("--sample", type=int, metavar="BATCH", help="shuffled batches of so many records")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--steps", type=int, default=1)
    parser.error = lambda reason: sys.exit(f"mount_client: {reason}")
    args = parser.parse_args()
    if args.sample is None and not args.index:
        parser.error("give indices, or --sample BATCH")
    if args.steps < 1 or args.sample is not None and args.sample < 1:
        parser.error("--steps and --sample are at least 1")
    try:
        view = View(args.mountpoint)
    except OSError as e:
        if e.errno in (errno.ENOTTY, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
            parser.error(f"{args.mountpoint} is not on a zrfs mount that gives batches")
        parser.error(e)
    records = view.records()
    if records == 0:
        parser.error(f"{args.mountpoint} has no records")
    wrong = [index for index in args.index if not 0 <= index < records]
    if wrong:
        parser.error(f"there is no record {wrong[0]}: {args.mountpoint} has {records} records, from 0 on")
    try:
        show(args, [view, View(args.mountpoint)])
    except OSError as e:
        parser.error(e)


def show(args, views):
    begin, total = time.perf_counter(), 0
    if args.sample:
        batches = samples(views, args.sample, args.seed, args.steps)
    else:
        batches = (views[0].gather(args.index) for _ in range(args.steps))
    for streams in batches:
        total += sum(len(s["bytes"]) for s in streams.values())
    took = time.perf_counter() - begin
    for name, s in streams.items():
        print(f"{name}: {len(s['offsets']) - 1} records, {len(s['bytes'])} bytes, {s['dtype'] or 'bytes'}, crc", end=" ")
        import zlib

        print(f"{zlib.crc32(s['bytes']):08x}")
        if s["kind"] == 1:
            try:
                import numpy
            except ImportError:
                continue
            array = numpy.frombuffer(s["bytes"], dtype=s["dtype"]).reshape(s["shapes"])
            print(f"  an array of shape {array.shape}")
    if args.steps > 1:
        print(f"{args.steps} batches, {total / took / 2**20:.0f} MiB/s")
    for view in views:
        view.close()


if __name__ == "__main__":
    main()
