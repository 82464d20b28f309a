/*
 * A program of 32 bits that asks a mount for a batch, and writes what it got: the answers of the calls, then the view's file.
 * It has no C library, for few machines have one of 32 bits; the kernel's calls are made here.
 *
 *   ioctl32 MOUNT DIRECTORY      DIRECTORY is the mount's .zrfs/views/
 */
#include "zrfs-abi.h"

enum { EXIT = 1, READ = 3, WRITE = 4, OPEN = 5, IOCTL = 54 };

static long call(long number, long a, long b, long c)
{
    long result;

    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

/* The number of what failed is the exit code. */
static long must(int step, long result)
{
    if (result < 0)
        call(EXIT, step, 0, 0);
    return result;
}

static void put(int step, const void *from, long bytes)
{
    const char *at = from;
    long n;

    while (bytes > 0) {
        n = must(step, call(WRITE, 1, (long)at, bytes));
        at += n;
        bytes -= n;
    }
}

/* The view's file: the number behind the directory. */
static const char *name(const char *directory, uint32_t number)
{
    static char path[4096];
    char *end = path, digits[10];
    int n = 0;

    while (*directory)
        *end++ = *directory++;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (n)
        *end++ = digits[--n];
    *end = 0;
    return path;
}

static struct zrfs_server server;
static struct zrfs_store store;
static struct zrfs_stream stream;
static struct zrfs_view_large gathered;
static struct zrfs_sample sample;
static struct zrfs_view waited;
static char bytes[65536];

__attribute__((used)) static void run(char **arguments)
{
    long mount = must(1, call(OPEN, (long)arguments[1], 0, 0)), file, n;
    uint32_t k;

    must(2, call(IOCTL, mount, (long)ZRFS_IOC_SERVER, (long)&server));
    put(3, &server, sizeof server);
    must(4, call(IOCTL, mount, (long)ZRFS_IOC_STORE, (long)&store));
    put(5, &store, sizeof store);
    must(6, call(IOCTL, mount, (long)ZRFS_IOC_STREAM, (long)&stream));
    put(7, &stream, sizeof stream);

    /* 1,000 indices fit one large call only. A batch that is waited for goes another way than the others. */
    gathered.view.stream = ZRFS_STREAM_OWN;
    gathered.view.count = 1000;
    for (k = 0; k < 1000; k++)
        gathered.indices[k] = k * 7 % 100;
    must(8, call(IOCTL, mount, (long)ZRFS_IOC_GATHER_LARGE, (long)&gathered));
    sample.view.view = gathered.view.view;
    sample.view.stream = ZRFS_STREAM_OWN;
    sample.view.flags = ZRFS_START;
    sample.spec.mode = ZRFS_MODE_CYCLIC;
    sample.spec.batch = 32;
    sample.spec.seed = 42;
    sample.spec.world = 1;
    sample.spec.step = 2;
    must(9, call(IOCTL, mount, (long)ZRFS_IOC_SAMPLE, (long)&sample));
    waited.view = gathered.view.view;
    must(10, call(IOCTL, mount, (long)ZRFS_IOC_WAIT, (long)&waited));
    put(11, &waited, sizeof waited);

    file = must(12, call(OPEN, (long)name(arguments[2], (uint32_t)waited.view), 0, 0));
    while ((n = must(13, call(READ, file, (long)bytes, sizeof bytes))) > 0)
        put(14, bytes, n);
    call(EXIT, 0, 0, 0);
}

/* The count of the arguments is on top of the stack, and they are behind it. */
__asm__(".globl _start\n_start:\n    leal 4(%esp), %eax\n    pushl %eax\n    call run\n");
