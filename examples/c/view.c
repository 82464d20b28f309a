/*
 * Batches from a zrfs mount with include/zrfs-abi.h alone.
 *
 *   cc -std=c99 -O2 -I include examples/c/view.c -o view
 *   ./view /mnt/images 5 17 0            the records at these indices
 *   ./view /mnt/images -s 100            100 shuffled batches of 256, whose indices the mount draws
 */
#define _GNU_SOURCE
#include "zrfs-abi.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct zrfs_server server;

static void fail(const char *what)
{
    fprintf(stderr, "view: %s: %s\n", what, strerror(errno));
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

/* Asks the mount's socket for the memory of a view, and maps it. */
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
        bind(s, (struct sockaddr *)&own, sizeof own.sun_family) ||
        connect(s, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + server.socket_len)))
        fail("socket");
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
    if (answer->slab != batch->slab) {
        if (batch->memory)
            munmap(batch->memory, batch->capacity);
        batch->memory = map(answer);
        batch->slab = answer->slab;
        batch->capacity = answer->capacity;
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
        fail("view");
}

/* The records at these indices. */
static void gather(int fd, struct batch *batch, char **indices, int n)
{
    struct zrfs_view_large ask;
    int k;

    memset(&ask, 0, sizeof ask);
    ask.view.stream = ZRFS_STREAM_OWN;
    ask.view.count = (uint64_t)n;
    for (k = 0; k < n; k++)
        ask.indices[k] = number(indices[k]);
    if (ioctl(fd, ZRFS_IOC_GATHER_LARGE, &ask))
        fail("gather");
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
        fail("sample");
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
    fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(argv[1]);
    if (ioctl(fd, ZRFS_IOC_SERVER, &server) || server.version != ZRFS_ABI_VERSION)
        fail("not a zrfs mount");
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
        gather(fd, now, argv + 2, argc - 2);
    }
    show(now);
    for (k = 0; k < 2; k++)
        if (batches[k].view.view)
            call(fd, ZRFS_IOC_CLOSE, &batches[k], &answer);
    close(fd);
    return 0;
}
