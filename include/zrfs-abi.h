/*
 * What programs and a zrfs mount say to each other: ioctl numbers, the structures that go with them, and what a view looks
 * like in shared memory. docs/VIEWS.md tells how they are used, examples/c/view.c uses them. This file needs nothing else.
 *
 * All numbers have the machine's byte order. Every field stands at a multiple of its width, so programs of 32 and of 64
 * bits have the same layout. Padding (zero…) must be 0, and so must fields that only come out when they go in.
 *
 * The calls work on any open file or directory of the mount. They fail with
 *   ENOTTY  the file is not on a zrfs mount, or the mount does not know the call
 *   EINVAL  something in the structure is not possible: an index that is no record, a spec that is none
 *   EACCES  the view is another user's        ENOENT  there is no such view (any more)
 *   EBUSY   another call is at work on the view
 *   EMFILE  too many views                    ENOSPC  more memory than the mount gives to one user
 *   EIO     a record is damaged; the mount's log says which
 */
#ifndef ZRFS_ABI_H
#define ZRFS_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZRFS_ABI_VERSION 1u

/* As stream: the one that the file of the call belongs to (all, where it belongs to none); all of them. */
#define ZRFS_STREAM_OWN 0xFFFFFFFFu
#define ZRFS_STREAM_ALL 0xFFFFFFFEu

#define ZRFS_FEATURE_VIEWS 1u
#define ZRFS_FEATURE_SOCKET 2u
#define ZRFS_FEATURE_ANNOUNCE 4u
#define ZRFS_FEATURE_START 8u

/* As flags of a call that gathers: it is answered at once, and the batch gathered meanwhile; ZRFS_IOC_WAIT waits for it. Where
 * seal names another view whose batch was started before, the call is answered as ZRFS_IOC_WAIT for that one. */
#define ZRFS_START 1u

#define ZRFS_STORE_DATASET 1u
#define ZRFS_STORE_TREE 2u

#define ZRFS_KIND_BYTES 0u
#define ZRFS_KIND_DENSE 1u
#define ZRFS_KIND_RAGGED 2u

#define ZRFS_MODE_SEQUENTIAL 0u
#define ZRFS_MODE_IID 1u
#define ZRFS_MODE_IID_COUNTER 2u
#define ZRFS_MODE_CYCLIC 3u

#define ZRFS_TAIL_DEFAULT 0u
#define ZRFS_TAIL_DROP 1u
#define ZRFS_TAIL_KEEP 2u
#define ZRFS_TAIL_WRAP 3u

/* Indices that go with a small and with a large call. */
#define ZRFS_SMALL 256u
#define ZRFS_LARGE 2032u

#define ZRFS_ALIGN 4096u
#define ZRFS_MAGIC "ZRFSVIEW"
#define ZRFS_NO_STEP UINT64_MAX

/* The server of the mount. */
struct zrfs_server {
    uint32_t version;
    uint32_t socket_len;  /* bytes of socket in use */
    uint64_t features;    /* ZRFS_FEATURE_… */
    uint64_t view_memory; /* bytes that the views of one user may have, slabs and indices */
    uint64_t max_views;   /* views that one user may have */
    uint8_t socket[96];   /* abstract name of the datagram socket that hands over the memory of views */
};

/* The store or dataset of the mount. */
struct zrfs_store {
    uint64_t records;
    uint64_t generation; /* changes when records are appended */
    uint32_t streams;    /* numbered from 0 in the order of their names */
    uint32_t own;        /* the one that the file of the call belongs to, or ZRFS_STREAM_ALL */
    uint32_t flags;      /* ZRFS_STORE_… */
    uint8_t zero[4];
};

/* A stream. All but number is 0 when it goes in. */
struct zrfs_stream {
    uint32_t number;       /* in: which */
    uint32_t kind;         /* ZRFS_KIND_… */
    uint32_t codec;        /* 0 raw, 1 zstd, 2 zstd_dict */
    uint32_t ndim;         /* dimensions of a dense record; those after the 64th are not told */
    uint64_t itemsize;     /* bytes of an item, 1 for bytes without a type */
    uint64_t record_bytes; /* bytes of a dense record, 0 where records differ */
    uint64_t records;
    uint64_t shape[64];    /* of a dense record */
    uint32_t dtype_len;    /* bytes of dtype in use */
    uint32_t name_len;     /* bytes of name in use */
    uint8_t dtype[64];     /* numpy's string for the type of items */
    uint8_t name[256];     /* a store has none */
};

/* A view: what goes in with every call about it and, in the same place, what comes out. */
struct zrfs_view {
    uint64_t view;     /* in: which, or 0 for a new one; out: its number */
    uint32_t stream;   /* in: a number or ZRFS_STREAM_…; 0 with push, seal and close */
    uint32_t flags;    /* in: 0 or ZRFS_START */
    uint64_t count;    /* in: indices that follow; out: those that the view has */
    uint64_t bytes;    /* out: bytes of the slab in use, also the length of .zrfs/views/NUMBER */
    uint64_t slab;     /* out: number of the slab: the memory is the same as long as it stays the same */
    uint64_t capacity; /* out: bytes of the slab's memory */
    uint64_t key;      /* out: what to show to the socket */
    uint64_t seal;     /* in: 0, or with ZRFS_START a view to wait for; out: number of the batch, 0 if it is not there yet */
};

/* The same with indices behind it. */
struct zrfs_view_small {
    struct zrfs_view view;
    uint64_t indices[ZRFS_SMALL];
};
struct zrfs_view_large {
    struct zrfs_view view;
    uint64_t indices[ZRFS_LARGE];
};

/* Which batch of which stream of indices. */
struct zrfs_spec {
    uint8_t mode;    /* ZRFS_MODE_… */
    uint8_t tail;    /* ZRFS_TAIL_… */
    uint8_t zero[6];
    uint64_t batch;  /* indices in a batch of all ranks together */
    uint64_t seed;
    uint64_t rank;   /* below world */
    uint64_t world;
    uint64_t step;
    uint64_t length; /* draws from the first so many records; 0 for all that there are now */
};

/* A view whose indices a sampler draws; its count is 0 when it goes in. */
struct zrfs_sample {
    struct zrfs_view view;
    struct zrfs_spec spec;
};

/* An order that readers of files will follow. */
struct zrfs_announce {
    uint32_t version; /* ZRFS_ABI_VERSION */
    uint8_t mode;
    uint8_t tail;
    uint8_t zero[2];
    uint64_t batch;
    uint64_t seed;
    uint64_t rank;
    uint64_t world;
    uint64_t start;
};

/* The front of a slab; places are bytes from its start. A zrfs_slab_stream for each stream follows. */
struct zrfs_slab_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t streams;
    uint64_t seal;
    uint64_t count;   /* records */
    uint64_t bytes;   /* in use */
    uint64_t indices; /* where: a u64 each */
    uint64_t length;  /* records that the store had, or that were drawn from */
    uint64_t step;    /* that a sampler drew, or ZRFS_NO_STEP */
};

struct zrfs_slab_stream {
    uint32_t number;
    uint32_t kind;
    uint64_t data;       /* where: the records, one after the other without gaps */
    uint64_t data_bytes;
    uint64_t offsets;    /* where: count + 1 u64, where each record begins from data on, and where the last one ends */
    uint64_t shapes;     /* where: u64; dense: the extents of a record; ragged: count + 1 numbers, then all extents */
    uint64_t shapes_bytes;
    uint64_t itemsize;
    uint64_t dtype;      /* where */
    uint64_t name;       /* where */
    uint32_t dtype_len;
    uint32_t name_len;
    uint64_t record_bytes;
    uint8_t zero[8];
};

/* What goes to the socket, and what comes back with the slab's file; nothing comes back where there is no such view. */
struct zrfs_slab_request {
    uint64_t view;
    uint64_t key;
};
struct zrfs_slab_answer {
    uint64_t slab;
    uint64_t capacity;
};

#define ZRFS_IOC_ANNOUNCE _IOW('z', 0xF1, struct zrfs_announce)
#define ZRFS_IOC_SERVER _IOR('z', 0xC0, struct zrfs_server)
#define ZRFS_IOC_STORE _IOR('z', 0xC1, struct zrfs_store)
#define ZRFS_IOC_STREAM _IOWR('z', 0xC2, struct zrfs_stream)
#define ZRFS_IOC_BEGIN _IOWR('z', 0xC3, struct zrfs_view)
#define ZRFS_IOC_PUSH_SMALL _IOWR('z', 0xC4, struct zrfs_view_small)
#define ZRFS_IOC_PUSH_LARGE _IOWR('z', 0xC4, struct zrfs_view_large)
#define ZRFS_IOC_SEAL _IOWR('z', 0xC5, struct zrfs_view)
#define ZRFS_IOC_GATHER_SMALL _IOWR('z', 0xC6, struct zrfs_view_small) /* begin, push and seal in one */
#define ZRFS_IOC_GATHER_LARGE _IOWR('z', 0xC6, struct zrfs_view_large)
#define ZRFS_IOC_SAMPLE _IOWR('z', 0xC7, struct zrfs_sample)           /* begin, draw and seal in one */
#define ZRFS_IOC_CLOSE _IOW('z', 0xC8, struct zrfs_view)
#define ZRFS_IOC_WAIT _IOWR('z', 0xC9, struct zrfs_view)               /* for a batch that was started */

#ifdef __cplusplus
}
#endif

#endif
