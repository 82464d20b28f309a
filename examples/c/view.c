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

int main(int argc, char **argv)
{
    struct zrfs_view_large gather;
    struct zrfs_sample sample;
    struct zrfs_view *view = NULL, done;
    const struct zrfs_slab_header *header;
    const struct zrfs_slab_stream *stream;
    unsigned char *memory = NULL;
    uint64_t slab = 0, steps = 1, step, i, sum;
    uint32_t s;
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
    fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(argv[1]);
    if (ioctl(fd, ZRFS_IOC_SERVER, &server) || server.version != ZRFS_ABI_VERSION)
        fail("not a zrfs mount");
    memset(&gather, 0, sizeof gather);
    memset(&sample, 0, sizeof sample);
    for (k = 2; k < argc && !drawn && k - 2 < (int)ZRFS_LARGE; k++)
        gather.indices[k - 2] = number(argv[k]);
    if (drawn && argc > 3)
        steps = number(argv[3]);
    if (steps == 0) {
        fprintf(stderr, "view: no steps\n");
        return 2;
    }
    sample.spec.mode = ZRFS_MODE_CYCLIC;
    sample.spec.batch = 256;
    sample.spec.seed = 42;
    sample.spec.world = 1;
    view = drawn ? &sample.view : &gather.view;
    memset(&done, 0, sizeof done);

    for (step = 0; step < steps; step++) {
        memset(view, 0, sizeof *view);
        view->view = done.view; /* the same memory again */
        view->stream = ZRFS_STREAM_OWN;
        sample.spec.step = step;
        if (!drawn)
            view->count = (uint64_t)(k - 2);
        if (ioctl(fd, drawn ? ZRFS_IOC_SAMPLE : ZRFS_IOC_GATHER_LARGE, drawn ? (void *)&sample : (void *)&gather))
            fail("gather");
        done = *view;
        if (done.slab != slab) {
            memory = map(&done);
            slab = done.slab;
        }
    }

    header = (const struct zrfs_slab_header *)memory;
    stream = (const struct zrfs_slab_stream *)(memory + sizeof *header);
    for (s = 0; s < header->streams; s++, stream++) {
        for (sum = i = 0; i < stream->data_bytes; i++)
            sum += memory[stream->data + i];
        printf("%.*s: %llu records, %llu bytes, sum %llu\n", (int)stream->name_len, (const char *)memory + stream->name,
               (unsigned long long)header->count, (unsigned long long)stream->data_bytes, (unsigned long long)sum);
    }
    memset(view, 0, sizeof *view);
    view->view = done.view;
    if (ioctl(fd, ZRFS_IOC_CLOSE, view))
        fail("close");
    close(fd);
    return 0;
}
