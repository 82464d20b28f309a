/*
 * zrfs: datasets as one store, gathered at memory speed. The C library, libzrfs.so.
 *
 * Link with `pkg-config --cflags --libs zrfs`. docs/C.md is the guide, examples/c/gather.c a complete program.
 *
 * Functions return 0 (ZRFS_OK) or a negative code, ZRFS_E_...; zrfs_last_error() has the text of what went wrong.
 * Handles are made by `..._open`, `..._create` and zrfs_loader_next, and given back once. A handle that was given back,
 * null, or of another kind is ZRFS_E_HANDLE, never undefined. Threads may share every handle but where it says otherwise.
 * Texts and paths end with a byte 0; paths are the file system's bytes, all other texts UTF-8. Numbers that are pointed
 * to need no alignment. Memory that is pointed to must be there in the length that is said, that alone is not checked.
 *
 * Structs that are pointed to begin with their own size, which the caller sets to sizeof: later versions add members at
 * the end. In options, a member of 0 (or null) is the usual choice.
 */
#ifndef ZRFS_H
#define ZRFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- codes ---- */

enum {
    ZRFS_OK = 0,
    ZRFS_E_MEMORY = -1,        /* out of memory */
    ZRFS_E_IO = -2,            /* the operating system refused to read or write */
    ZRFS_E_INDEX = -3,         /* an index at or above the number of records */
    ZRFS_E_RECORD_LENGTH = -4, /* a record of 0 bytes or of more than 2^31 */
    ZRFS_E_FULL = -5,          /* the store has no place for another record */
    ZRFS_E_BUFFER = -6,        /* a buffer is null, or does not hold what is asked for */
    ZRFS_E_CORRUPT = -7,       /* a stored record, or a file of the store, is damaged */
    ZRFS_E_NOT_A_STORE = -8,   /* not a store, or of a version that is not known */
    ZRFS_E_DICTIONARY = -9,    /* the dictionary is missing, does not fit, or could not be trained */
    ZRFS_E_INVALID = -10,      /* an argument that is not taken */
    ZRFS_E_LOCKED = -11,       /* another process, or another handle, holds the store */
    ZRFS_E_EXISTS = -12,       /* something stands already where a new store is to go */
    ZRFS_E_LATCHED = -13,      /* an earlier write failed: open the store again */
    ZRFS_E_HANDLE = -14,       /* a handle that was given back, or never was one */
    ZRFS_E_INTERNAL = -15,     /* a defect of the library */
    ZRFS_E_ENDED = -16         /* the loader was stopped */
};

/* How records are compressed. */
enum { ZRFS_RAW = 0, ZRFS_ZSTD = 1, ZRFS_ZSTD_DICT = 2 };

/* What records are: bytes without a type, arrays of one shape, arrays of a shape each. */
enum { ZRFS_BYTES = 0, ZRFS_DENSE = 1, ZRFS_RAGGED = 2 };

/* A shape has at most so many dimensions. */
enum { ZRFS_MAX_DIMS = 64 };

/* The library's version, "0.1.0". */
const char *zrfs_version(void);

/* The text of the calling thread's last failure, "" if there was none. Valid until its next call that fails. */
const char *zrfs_last_error(void);

/* ---- reading: a store, or a dataset of aligned streams ---- */

typedef struct zrfs_source zrfs_source;

typedef struct zrfs_info {
    uint64_t size;       /* sizeof(zrfs_info), set by the caller */
    uint64_t records;    /* in every stream */
    uint32_t streams;    /* 1 for a store */
    uint32_t is_dataset; /* 1 for a dataset, 0 for a store */
} zrfs_info;

typedef struct zrfs_stream_info {
    uint64_t size;                 /* sizeof(zrfs_stream_info), set by the caller */
    uint64_t records;
    uint64_t record_bytes;         /* dense: bytes of a record; else 0 */
    uint64_t item_bytes;           /* bytes of an item of the dtype; 0 for ZRFS_BYTES */
    uint32_t kind;                 /* ZRFS_BYTES, ZRFS_DENSE or ZRFS_RAGGED */
    uint32_t codec;                /* ZRFS_RAW, ZRFS_ZSTD or ZRFS_ZSTD_DICT */
    uint32_t ndim;                 /* dense: dimensions of a record; else 0 */
    uint32_t reserved;             /* 0 */
    uint64_t shape[ZRFS_MAX_DIMS]; /* dense: the shape of a record, outermost first */
    char dtype[64];                /* numpy's string, "<f4"; "" for ZRFS_BYTES */
    char name[256];                /* a dataset's stream; a store's directory, without the extension */
} zrfs_stream_info;

/* Opens the store or dataset at `path` for reading. */
int32_t zrfs_open(const char *path, zrfs_source **source);
/* The same, where raw records are compared with their checksums when they are read whole: one that does not agree is
 * ZRFS_E_CORRUPT. (Compressed records always are.) */
int32_t zrfs_open_checked(const char *path, zrfs_source **source);
/* Closes it. A loader that was made from it goes on. Null is nothing to close. */
void zrfs_close(zrfs_source *source);
/* Makes records visible that another process, or another handle, has appended; the new number of records in `records`,
 * unless that is null. */
int32_t zrfs_refresh(zrfs_source *source, uint64_t *records);

int32_t zrfs_get_info(const zrfs_source *source, zrfs_info *info);
/* Streams are numbered in the order of their names. */
int32_t zrfs_get_stream_info(const zrfs_source *source, uint32_t stream, zrfs_stream_info *info);
/* The number of the stream of that name. */
int32_t zrfs_find_stream(const zrfs_source *source, const char *name, uint32_t *stream);

/* The decoded lengths of `n` records, in bytes, into `lengths`. */
int32_t zrfs_lengths(const zrfs_source *source, uint32_t stream, const uint64_t *indices, size_t n, uint32_t *lengths);
/* The shape of a record: at most `max` dimensions into `shape`, how many it has into `ndim`. More than `max` is
 * ZRFS_E_BUFFER; ZRFS_MAX_DIMS are always enough. Of ZRFS_BYTES it is the length. */
int32_t zrfs_record_shape(const zrfs_source *source, uint32_t stream, uint64_t index, uint64_t *shape, uint32_t max,
                          uint32_t *ndim);
/* Reads `n` records, in any order, repeats allowed, into the `dst_len` bytes at `dst`: record indices[k] goes to
 * dst + offsets[k]. With `offsets` null they stand one after the other. Shared out to all cores where that pays. Places
 * must not overlap. A record of a dense stream that has another length than the others is ZRFS_E_CORRUPT. After an error, what is in `dst` is unspecified. */
int32_t zrfs_gather(const zrfs_source *source, uint32_t stream, const uint64_t *indices, size_t n, void *dst,
                    size_t dst_len, const uint64_t *offsets);

/* ---- writing: dense stores ---- */

typedef struct zrfs_writer zrfs_writer;

typedef struct zrfs_create_options {
    uint64_t size;     /* sizeof(zrfs_create_options) */
    uint32_t codec;    /* ZRFS_RAW, ZRFS_ZSTD or ZRFS_ZSTD_DICT */
    int32_t level;     /* zstd's level; 0: 3, and 19 with a dictionary */
    const void *dict;  /* the dictionary, for ZRFS_ZSTD_DICT; see zr_build_dict */
    uint64_t dict_len; /* its length in bytes */
} zrfs_create_options;

/* Creates a store in the new directory `path`, for records of the dtype (numpy's string, "<f4") and shape. `options` null:
 * ZRFS_ZSTD. */
int32_t zrfs_create_dense(const char *path, const char *dtype, const uint64_t *shape, uint32_t ndim,
                          const zrfs_create_options *options, zrfs_writer **writer);
/* Opens an existing dense store to append to it. One writer at a time: ZRFS_E_LOCKED. */
int32_t zrfs_open_dense(const char *path, zrfs_writer **writer);
/* Appends the records that stand one after the other in `len` bytes, in C order; the index of the first into `first`,
 * unless that is null. Readers see them from their next refresh on; they survive the end of the process. */
int32_t zrfs_append(zrfs_writer *writer, const void *records, size_t len, uint64_t *first);
/* Makes everything appended survive a power cut. */
int32_t zrfs_writer_sync(zrfs_writer *writer);
/* The same, and closes the store; the handle is given back also if it fails. */
int32_t zrfs_writer_close(zrfs_writer *writer);

/* ---- samplers: which records are in which batch ---- */

typedef struct zrfs_sampler zrfs_sampler;

/* A sampler of `spec`, such as "cyclic,batch=256,seed=42" (docs/SAMPLER.md has the modes and keys), over `length`
 * records, at step 0. */
int32_t zrfs_sampler_create(const char *spec, uint64_t length, zrfs_sampler **sampler);
void zrfs_sampler_destroy(zrfs_sampler *sampler);
/* The most indices that a batch ever has, into `n`. */
int32_t zrfs_sampler_max_batch(const zrfs_sampler *sampler, uint64_t *n);
/* The next batch's indices into `indices`, which has room for `max`, how many they are into `n`. */
int32_t zrfs_sampler_next(zrfs_sampler *sampler, uint64_t *indices, size_t max, size_t *n);
/* The same for the batch of any step, without moving. */
int32_t zrfs_sampler_at(zrfs_sampler *sampler, uint64_t step, uint64_t *indices, size_t max, size_t *n);
/* Makes `step` the next one. */
int32_t zrfs_sampler_seek(zrfs_sampler *sampler, uint64_t step);

/* ---- the loader: batches without end, made ahead ---- */

typedef struct zrfs_loader zrfs_loader;
typedef struct zrfs_batch zrfs_batch;

enum {
    ZRFS_LOADER_ANY_ORDER = 1, /* hand over what is ready, not in the order of the steps */
    ZRFS_LOADER_NO_WORKERS = 2 /* no threads: zrfs_loader_next makes the batch itself (a mount gathers the next) */
};

typedef struct zrfs_loader_options {
    uint64_t size;              /* sizeof(zrfs_loader_options) */
    const char *sampler;        /* as for zrfs_sampler_create; null: "cyclic,batch=256,seed=42" */
    const char *state;          /* go on from there, a text of zrfs_loader_state; null: from step 0 */
    const char *const *streams; /* names of the streams to read, of a dataset; null: all */
    uint64_t stream_count;      /* how many names */
    uint32_t workers;           /* threads that make batches; 0: as many as cores */
    uint32_t prefetch;          /* batches that are kept ready; 0: 4 */
    uint32_t flags;             /* ZRFS_LOADER_... */
    uint32_t reserved;          /* 0 */
} zrfs_loader_options;

/* What a batch is. Pointers are valid until the batch is released. */
typedef struct zrfs_batch_info {
    uint64_t size;           /* sizeof(zrfs_batch_info), set by the caller */
    uint64_t step;
    uint64_t records;        /* may be 0 for a rank of more than a batch has records */
    const uint64_t *indices; /* of the records, in the order in which they stand */
    uint32_t parts;          /* one a stream */
    uint32_t reserved;
} zrfs_batch_info;

/* What one stream has in a batch. Pointers are valid until the batch is released. */
typedef struct zrfs_part {
    uint64_t size;                /* sizeof(zrfs_part), set by the caller */
    void *data;                   /* the records one after the other, from a page's boundary on; may be written to */
    uint64_t bytes;               /* how many */
    const uint64_t *offsets;      /* where each record begins and, last, where the last one ends: records + 1 numbers */
    const uint64_t *shapes;       /* dense: the shape of the whole, records first, ndim numbers; ragged: the shapes of the
                                     records, one after the other; bytes: null */
    const uint64_t *shape_starts; /* ragged: where in shapes each record's begins and, last, their end: records + 1
                                     numbers; else null */
    uint32_t kind;                /* ZRFS_BYTES, ZRFS_DENSE or ZRFS_RAGGED */
    uint32_t ndim;                /* dense: dimensions of the whole; else 0 */
    const char *dtype;            /* numpy's string; "" for ZRFS_BYTES */
    const char *name;             /* the stream */
} zrfs_part;

/* A loader over `n` sources of equal length, whose records i belong together. A store's stream has the name of its
 * directory, or the one in `names`, which may be null, as may each name; a dataset's streams keep theirs, behind "NAME/"
 * where there is a name. `options` null: the usual. */
int32_t zrfs_loader_create(zrfs_source *const *sources, const char *const *names, size_t n,
                           const zrfs_loader_options *options, zrfs_loader **loader);
/* The next batch, as soon as it is there. An error takes the place of the batch of its step; the next call gives the one
 * after it. ZRFS_E_ENDED once the loader was stopped. */
int32_t zrfs_loader_next(zrfs_loader *loader, zrfs_batch **batch);
/* The loader's state, a line of text: what was handed over, not what is ready. It takes *len bytes with its byte 0, which
 * are put into `len`; ZRFS_E_BUFFER if `text`, which has room for `max`, is too small (null with 0 asks for the length). */
int32_t zrfs_loader_state(const zrfs_loader *loader, char *text, size_t max, size_t *len);
/* Goes on where the state was taken, exactly as if nothing had come between. */
int32_t zrfs_loader_restore(zrfs_loader *loader, const char *state);
/* Makes `step` the next one. */
int32_t zrfs_loader_seek(zrfs_loader *loader, uint64_t step);
/* Ends the loader from any thread: those who wait for a batch get ZRFS_E_ENDED. */
int32_t zrfs_loader_stop(zrfs_loader *loader);
/* Ends the loader, within a second. Its batches stay until they are released. Null is nothing to end. */
void zrfs_loader_destroy(zrfs_loader *loader);

int32_t zrfs_get_batch_info(const zrfs_batch *batch, zrfs_batch_info *info);
/* Parts are in the order of the sources and their streams. */
int32_t zrfs_batch_part(const zrfs_batch *batch, uint32_t part, zrfs_part *out);
/* Gives the batch's memory back, to be used for a later one. Null is nothing to give back. */
void zrfs_batch_release(zrfs_batch *batch);

/* ---- views: batches from a mount, for a program that has nothing else (docs/VIEWS.md) ---- */

typedef struct zrfs_mount zrfs_mount;

/* The mount that `path`, any file or directory of it, is on: a store's batches have one part, a dataset's one a stream, or
 * only the one of that name where `stream` is not null. ZRFS_E_NOT_A_STORE if it is no mount of zrfs. */
int32_t zrfs_view_open(const char *path, const char *stream, zrfs_mount **mount);
/* Batches and loaders that were made from it go on. Null is nothing to let go of. */
void zrfs_view_close(zrfs_mount *mount);
/* The number of records by now. */
int32_t zrfs_view_records(const zrfs_mount *mount, uint64_t *records);
/* The records at these indices, in any order, repeats allowed. The mount gathers them into memory that it shares, which
 * zrfs_batch_release gives back for a later batch. More batches at a time than the mount gives a user: ZRFS_E_IO. */
int32_t zrfs_view_gather(const zrfs_mount *mount, const uint64_t *indices, size_t n, zrfs_batch **batch);
/* The batch of a step of the sampler `spec`, over the records that there are by now, or with `length=N` among its keys over
 * the first N: that batch stays what it is while records are appended. ZRFS_E_INVALID for a length that is no number from 1 to
 * the number of records, where there are none, and for a step of mode iid that lies too far for the mount to replay. */
int32_t zrfs_view_sample(const zrfs_mount *mount, const char *spec, uint64_t step, zrfs_batch **batch);
/* A loader whose batches the mount gathers: one or several ahead, while the last is used. */
int32_t zrfs_view_loader(const zrfs_mount *mount, const zrfs_loader_options *options, zrfs_loader **loader);

/* ---- loaderx 1.5.2's functions: the same names, meaning and codes (0 to -9 of the above) ---- */

typedef struct Zrecord Zrecord;

/* Opens the store in the directory of that name for reading and writing, and makes an empty one of `codec` where there is
 * none. Null if it fails, with the code in `code` unless that is null. */
Zrecord *zr_open(const char *path, size_t path_len, uint8_t codec, int32_t *code);
/* Makes what was appended durable, and closes. */
void zr_close(Zrecord *zr);
uint64_t zr_len(Zrecord *zr);
uint8_t zr_codec(Zrecord *zr);
int32_t zr_sync(Zrecord *zr);
uint32_t zr_max_record_len(void);
int32_t zr_lengths(Zrecord *zr, const uint64_t *idxs, size_t n, uint32_t *out);
/* Record idxs[k] goes to dst + offsets[k]. */
int32_t zr_gather(Zrecord *zr, const uint64_t *idxs, size_t n, uint8_t *dst, size_t dst_len, const uint64_t *offsets);
/* Record k begins at src + offsets[k] and ends where the next begins, the last one where src ends. The index of the
 * first, or a code. */
int64_t zr_append(Zrecord *zr, const uint8_t *src, size_t src_len, const uint64_t *offsets, size_t n);
/* The last records take the freed indices. */
int32_t zr_delete(Zrecord *zr, const uint64_t *idxs, size_t n);
int32_t zr_compact(Zrecord *zr);
void zr_stats(Zrecord *zr, uint64_t *records, uint64_t *live_bytes, uint64_t *chunk_bytes);
/* Trains a dictionary of at most `target` bytes; its size, or -1 with the code in `code`. */
int64_t zr_build_dict(const uint8_t *samples, size_t samples_len, const size_t *sizes, size_t n, size_t target,
                      uint8_t *out, size_t out_len, int32_t *code);
int32_t zr_install_dict(Zrecord *zr, const uint8_t *dict, size_t dict_len, int32_t *code);
uint32_t zr_has_dict(Zrecord *zr);

/* loaderx's sampler: modes 0 sequential, 1 with replacement, 2 cyclic. cnext returns how many indices it put. */
typedef struct Sampler Sampler;

Sampler *cinit(uint64_t length, uint64_t batch_size, uint8_t mode, uint64_t seed);
size_t cnext(Sampler *s, uint64_t *indices, size_t indices_len);
void cseek(Sampler *s, uint64_t step);
void cdeinit(Sampler *s);

#ifdef __cplusplus
}
#endif

#endif
