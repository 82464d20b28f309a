/*
 * Opens a store, draws batches, and prints what is in them.
 *
 *   cc -std=c99 examples/c/gather.c $(pkg-config --cflags --libs zrfs) -o gather
 *   ./gather images.zr cyclic,batch=256,seed=42 3
 *
 * It does so twice: by itself, with a sampler and a gather into memory of its own, and with the loader, which makes
 * batches ahead. Both print the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <zrfs.h>

/* Ends the program with the library's own words, if there is something wrong. */
static void check(int32_t code, const char *what) {
    if (code != ZRFS_OK) {
        fprintf(stderr, "gather: %s: %s\n", what, zrfs_last_error());
        exit(1);
    }
}

static void *room(size_t n, size_t size) {
    void *memory = calloc(n > 0 ? n : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "gather: there is no memory for %zu items of %zu bytes\n", n, size);
        exit(1);
    }
    return memory;
}

/* The sum of all bytes: whatever a record is, a changed one shows. */
static uint64_t sum(const unsigned char *bytes, uint64_t n) {
    uint64_t total = 0;
    for (uint64_t k = 0; k < n; k++) {
        total += bytes[k];
    }
    return total;
}

static void print(uint64_t step, uint64_t records, uint64_t bytes, uint64_t total) {
    printf("step %" PRIu64 ": %" PRIu64 " records, %" PRIu64 " bytes, sum %" PRIu64 "\n", step, records, bytes, total);
}

/* By hand: which records, how long they are, and then all of them with one call. */
static void gather(const zrfs_source *source, uint64_t records, const char *spec, uint64_t steps) {
    zrfs_sampler *sampler;
    uint64_t most;
    check(zrfs_sampler_create(spec, records, &sampler), spec);
    check(zrfs_sampler_max_batch(sampler, &most), spec);
    uint64_t *indices = room(most, sizeof *indices);
    uint32_t *lengths = room(most, sizeof *lengths);
    for (uint64_t step = 0; step < steps; step++) {
        size_t n;
        uint64_t bytes = 0;
        check(zrfs_sampler_next(sampler, indices, most, &n), "draw");
        check(zrfs_lengths(source, 0, indices, n, lengths), "lengths");
        for (size_t k = 0; k < n; k++) {
            bytes += lengths[k];
        }
        unsigned char *batch = room(bytes, 1);
        check(zrfs_gather(source, 0, indices, n, batch, bytes, NULL), "gather");
        print(step, n, bytes, sum(batch, bytes));
        free(batch);
    }
    free(lengths);
    free(indices);
    zrfs_sampler_destroy(sampler);
}

/* With the loader: the next batch is made while this one is used. */
static void load(zrfs_source *source, const char *spec, uint64_t steps) {
    zrfs_loader_options options = {sizeof options, spec, NULL, NULL, 0, 0, 0, 0, 0};
    zrfs_loader *loader;
    check(zrfs_loader_create(&source, NULL, 1, &options, &loader), "loader");
    for (uint64_t step = 0; step < steps; step++) {
        zrfs_batch *batch;
        zrfs_batch_info info;
        zrfs_part part;
        info.size = sizeof info;
        part.size = sizeof part;
        check(zrfs_loader_next(loader, &batch), "next batch");
        check(zrfs_get_batch_info(batch, &info), "batch");
        check(zrfs_batch_part(batch, 0, &part), "part");
        print(info.step, info.records, part.bytes, sum(part.data, part.bytes));
        zrfs_batch_release(batch);
    }
    zrfs_loader_destroy(loader);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s STORE [SAMPLER [STEPS]]\n", argv[0]);
        return 2;
    }
    const char *spec = argc > 2 ? argv[2] : "cyclic,batch=256,seed=42";
    uint64_t steps = argc > 3 ? strtoull(argv[3], NULL, 10) : 3;

    zrfs_source *source;
    zrfs_stream_info stream;
    stream.size = sizeof stream;
    check(zrfs_open(argv[1], &source), "open");
    check(zrfs_get_stream_info(source, 0, &stream), "stream");
    printf("zrfs %s, %s: %" PRIu64 " records", zrfs_version(), stream.name, stream.records);
    if (stream.kind != ZRFS_BYTES) {
        printf(" of %s", stream.dtype);
        for (uint32_t k = 0; k < stream.ndim; k++) {
            printf(" %s%" PRIu64, k > 0 ? "x " : "", stream.shape[k]);
        }
    }
    printf("\n");
    gather(source, stream.records, spec, steps);
    printf("the same from the loader\n");
    load(source, spec, steps);
    zrfs_close(source);
    return 0;
}
