# `just` lists what there is. https://just.systems

_default:
    @just --list

# Everything that CI runs
test:
    scripts/test

# Build and install the programs and the C library (PREFIX=/usr/local, DESTDIR for packages)
install:
    scripts/install

# loaderx's own test suite over libzrfs.so, which takes the place of its libraries
dropin:
    scripts/setup
    cargo build --locked --release --features capi
    tests/dropin.sh target/release/libzrfs.so

# Pack real data, mount it, show it
demo:
    scripts/demo

# Random readers of a mount while its store grows, for so many seconds, and memory over a million files
soak seconds="3600":
    ZRFS_SOAK_SECONDS={{seconds}} ZRFS_FILES=1000000 cargo test --release -p zrfs-mount --test conformance -- --nocapture soak:: gof603

# Fuzz one target, or each in turn, for so many seconds (with libFuzzer where nightly Rust and cargo-fuzz are there)
fuzz target="all" seconds="60":
    scripts/fuzz {{target}} {{seconds}}

# The store's real limits: chunks of 4 GiB, records of 2 GiB (takes minutes, 9 GiB of disk and 5 GiB of memory)
slow:
    scripts/setup
    cargo test --locked --release --test slow -- --ignored --nocapture --test-threads=1

# Crashes at length: many outcomes of each power cut, many random walks, kills and readers for minutes
crash outcomes="50" minutes="5":
    scripts/crash {{outcomes}} {{minutes}}

# Licenses, sources and duplicates of what we depend on (needs cargo-deny)
deny:
    cargo deny check licenses bans sources

# The benchmarks: append, gather, loader, open, sampler, or those of that name (`just bench --bench gather`)
bench *args="--bench '*'":
    cargo bench -p zrfs {{args}}

# All of the following in turn: everything beside its peers (needs root; half an hour); rewrites "Batches" in the docs
peers: mount-peers (native-peers "--docs") pack-peers sampler-peers loader-peers

# The mount beside squashfs and ratarmount (needs root)
mount-peers *args:
    cargo build --release --workspace --bins
    benches/peers/mount_peers.sh {{args}}

# Batches by path beside their records read one by one (needs Python with numpy)
batch-paths *args:
    cargo build --release --workspace
    ${ZRFS_PYTHON:-target/venv/bin/python} benches/peers/batch_paths.py {{args}}

# The engine beside the machine's limits and whatever of its peers is installed; --docs puts the tables into the docs
native-peers *args:
    cargo build --release --bin zrfs --example gather_time
    ${ZRFS_PYTHON:-target/venv/bin/python} benches/peers/native_peers.py {{args}}

# Packing a tree beside mksquashfs and tar with zstd
pack-peers *args:
    cargo build --release --bin zrfs
    benches/peers/pack_peers.sh {{args}}

# Index streams beside numpy and loaderx (needs Python with both)
sampler-peers *args:
    cargo build --release --example sample_time
    ${ZRFS_PYTHON:-target/venv/bin/python} benches/peers/sampler_peers.py {{args}}

# The loader beside its own gather and loaderx's (needs Python with loaderx)
loader-peers *args:
    cargo build --release --bin zrfs --example loader_time
    ${ZRFS_PYTHON:-target/venv/bin/python} benches/peers/loader_peers.py {{args}}
