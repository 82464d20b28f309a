/*
 * Batches from a zrfs mount with include/zrfs-abi.h alone.
 *
 *   cc -std=c99 -O2 -I include examples/c/view.c -o view
 *   ./view /mnt/images 5 17 0            the records at these indices
 *   ./view /mnt/images -s 100            100 shuffled batches of 256, whose indices the mount draws
 *
 * A batch is in memory shared with the mount; in a container with a network of its own it is read from the view's file.
 */
#define _GNU_SOURCE
#include "zrfs-abi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct zrfs_server server;
static const char *mountpoint;
static int by_file; /* the mount's socket is not to be had here */

static void fail(const char *what)
{
    fprintf(stderr, "view: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* The mount's answer to a call is an error: where that is a limit, it is named. */
static void refused(const char *what)
{
    if (errno == EMFILE)
        fprintf(stderr, "view: %s: one user has at most %llu views at a time; mount with a larger --max-views\n", what,
                (unsigned long long)server.max_views);
    else if (errno == ENOSPC)
        fprintf(stderr, "view: %s: the views of one user have at most %llu bytes together; mount with a larger --view-memory\n",
                what, (unsigned long long)server.view_memory);
    else
        fail(what);
    exit(1);
}

/* A number as it stands in an argument; anything else ends the program. */
static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) {
        fprintf(stderr, "view: %s is no number\n", text);
        exit(2);
    }
    return value;
}

/* Asks the mount's socket for the memory of a view, and maps it. Null if there is no such socket here. */
static unsigned char *map(const struct zrfs_view *view)
{
    struct sockaddr_un own, to;
    struct zrfs_slab_request request;
    struct zrfs_slab_answer answer;
    struct timeval patience = {10, 0};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec piece;
    struct msghdr message;
    struct cmsghdr *c;
    void *memory;
    int s, file;

    memset(&own, 0, sizeof own);
    memset(&to, 0, sizeof to);
    own.sun_family = to.sun_family = AF_UNIX;
    memcpy(to.sun_path + 1, server.socket, server.socket_len);
    s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* An address without a name gets one from the kernel, to be answered at. */
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
        bind(s, (struct sockaddr *)&own, sizeof own.sun_family))
        fail("socket");
    if (connect(s, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + server.socket_len))) {
        close(s);
        return NULL;
    }
    request.view = view->view;
    request.key = view->key;
    if (send(s, &request, sizeof request, 0) < 0)
        fail("send");
    memset(&message, 0, sizeof message);
    piece.iov_base = &answer;
    piece.iov_len = sizeof answer;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    if (recvmsg(s, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof answer)
        fail("no answer");
    c = CMSG_FIRSTHDR(&message);
    if (!c || c->cmsg_type != SCM_RIGHTS)
        fail("no file in the answer");
    memcpy(&file, CMSG_DATA(c), sizeof file);
    memory = mmap(NULL, answer.capacity, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    close(file);
    close(s);
    return memory;
}

/* Maps the file of a view, which has the same bytes, below the mount's root: what the program was given, or a directory above. */
static unsigned char *map_file(const struct zrfs_view *view, uint64_t *bytes)
{
    char path[PATH_MAX], name[PATH_MAX + 64], *end;
    struct stat own, found;
    void *memory;
    int file;

    if (!realpath(mountpoint, path) || stat(path, &own))
        fail(mountpoint);
    for (end = path + strlen(path); end; end = strrchr(path, '/')) {
        *end = 0;
        snprintf(name, sizeof name, "%s/.zrfs/views/%llu", path, (unsigned long long)view->view);
        file = open(name, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        if (fstat(file, &found))
            fail(name);
        if (found.st_dev == own.st_dev) {
            *bytes = (uint64_t)found.st_size;
            memory = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
            if (memory == MAP_FAILED)
                fail(name);
            close(file);
            return memory;
        }
        close(file);
    }
    fprintf(stderr,
            "view: the mount's socket is not in this network namespace, and the view's file not to be seen from %s, on a part "
            "of the mount, or one with --root: let this program see the root of a mount without --root, or share the network "
            "namespace of zrfs-mount\n",
            mountpoint);
    exit(1);
}

/* A view, and its memory here. */
struct batch {
    struct zrfs_view view;
    unsigned char *memory;
    uint64_t slab; /* whose memory it is, and its bytes */
    uint64_t capacity;
};

/* Takes the answer of a call, which says where the batch is. */
static void take(struct batch *batch, const struct zrfs_view *answer)
{
    batch->view = *answer;
    if (!by_file && answer->slab == batch->slab)
        return;
    if (batch->memory)
        munmap(batch->memory, batch->capacity);
    batch->slab = answer->slab;
    batch->capacity = answer->capacity;
    batch->memory = by_file ? NULL : map(answer);
    if (!batch->memory) {
        by_file = 1;
        batch->memory = map_file(answer, &batch->capacity);
    }
}

/* A call about a view that needs no more than its number. */
static void call(int fd, unsigned long what, struct batch *batch, struct zrfs_view *answer)
{
    memset(answer, 0, sizeof *answer);
    answer->view = batch->view.view;
    if (what == ZRFS_IOC_BEGIN)
        answer->stream = ZRFS_STREAM_OWN;
    if (ioctl(fd, what, answer))
        refused("call");
}

/* The records at these indices, of as many as there are. */
static void gather(int fd, struct batch *batch, char **indices, int n, uint64_t records)
{
    struct zrfs_view_large ask;
    int k;

    memset(&ask, 0, sizeof ask);
    ask.view.stream = ZRFS_STREAM_OWN;
    ask.view.count = (uint64_t)n;
    for (k = 0; k < n; k++) {
        ask.indices[k] = number(indices[k]);
        if (ask.indices[k] >= records) {
            fprintf(stderr, "view: there is no record %s: %s has %llu records, from 0 on\n", indices[k], mountpoint,
                    (unsigned long long)records);
            exit(1);
        }
    }
    if (ioctl(fd, ZRFS_IOC_GATHER_LARGE, &ask))
        refused("gather");
    take(batch, &ask.view);
}

/* Has the batch of a step gathered into a view; the same call waits for the batch before it, in the other view. */
static void start(int fd, struct batch *batch, uint64_t step, struct batch *before)
{
    struct zrfs_sample ask;
    struct zrfs_view begun;

    if (!batch->view.view) {
        call(fd, ZRFS_IOC_BEGIN, batch, &begun);
        batch->view = begun;
    }
    memset(&ask, 0, sizeof ask);
    ask.view.view = batch->view.view;
    ask.view.stream = ZRFS_STREAM_OWN;
    ask.view.flags = ZRFS_START;
    ask.view.seal = before ? before->view.view : 0;
    ask.spec.mode = ZRFS_MODE_CYCLIC;
    ask.spec.batch = 256;
    ask.spec.seed = 42;
    ask.spec.world = 1;
    ask.spec.step = step;
    if (ioctl(fd, ZRFS_IOC_SAMPLE, &ask))
        refused("sample");
    if (before)
        take(before, &ask.view);
}

/* Goes through a batch, as a program that uses it would. */
static uint64_t sum_of(const struct batch *batch, uint32_t s)
{
    const struct zrfs_slab_header *header = (const struct zrfs_slab_header *)batch->memory;
    const struct zrfs_slab_stream *stream = (const struct zrfs_slab_stream *)(batch->memory + sizeof *header) + s;
    uint64_t i, sum = 0;

    for (i = 0; i < stream->data_bytes; i++)
        sum += batch->memory[stream->data + i];
    return sum;
}

static void show(const struct batch *batch)
{
    const struct zrfs_slab_header *header = (const struct zrfs_slab_header *)batch->memory;
    const struct zrfs_slab_stream *stream = (const struct zrfs_slab_stream *)(batch->memory + sizeof *header);
    uint32_t s;

    for (s = 0; s < header->streams; s++, stream++)
        printf("%.*s: %llu records, %llu bytes, sum %llu\n", (int)stream->name_len,
               (const char *)batch->memory + stream->name, (unsigned long long)header->count,
               (unsigned long long)stream->data_bytes, (unsigned long long)sum_of(batch, s));
}

int main(int argc, char **argv)
{
    struct batch batches[2], *now, *later;
    struct zrfs_view answer;
    struct zrfs_store store;
    uint64_t steps = 1, step;
    int fd, k, drawn;

    if (argc < 3) {
        fprintf(stderr, "usage: view MOUNT INDEX... | view MOUNT -s STEPS\n");
        return 2;
    }
    drawn = strcmp(argv[2], "-s") == 0;
    if (!drawn && argc - 2 > (int)ZRFS_LARGE) {
        fprintf(stderr, "view: %d indices; one call takes %d\n", argc - 2, (int)ZRFS_LARGE);
        return 2;
    }
    if (drawn && argc > 3)
        steps = number(argv[3]);
    if (steps == 0) {
        fprintf(stderr, "view: no steps\n");
        return 2;
    }
    mountpoint = argv[1];
    fd = open(mountpoint, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(mountpoint);
    if (ioctl(fd, ZRFS_IOC_SERVER, &server) || server.version != ZRFS_ABI_VERSION || ioctl(fd, ZRFS_IOC_STORE, &store))
        fail("not a zrfs mount");
    if (store.records == 0) {
        fprintf(stderr, "view: %s has no records\n", mountpoint);
        return 1;
    }
    memset(batches, 0, sizeof batches);
    now = &batches[0];
    later = &batches[1];
    if (drawn) {
        start(fd, now, 0, NULL);
        for (step = 1; step < steps; step++) {
            start(fd, later, step, now);
            /* The batch in `now` is used here, while the mount gathers the one in `later`. */
            now = later;
            later = &batches[step % 2 == 0];
        }
        call(fd, ZRFS_IOC_WAIT, now, &answer);
        take(now, &answer);
    } else {
        gather(fd, now, argv + 2, argc - 2, store.records);
    }
    show(now);
    for (k = 0; k < 2; k++)
        if (batches[k].view.view)
            call(fd, ZRFS_IOC_CLOSE, &batches[k], &answer);
    close(fd);
    return 0;
}
