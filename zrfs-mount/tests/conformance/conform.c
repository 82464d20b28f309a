/* What system calls see of a mount, beside what they see of plain files. Exits with a line that says what differs.
 *
 *   conform dir DIR COUNT           a directory of COUNT names: telldir, seekdir, rewinddir, d_ino, d_type, 8 at once
 *   conform file FILE PLAIN TMP     every way to read FILE gives the bytes of PLAIN; TMP is a directory to write in
 *   conform readonly DIR FILE       every way to change something in DIR, which has FILE, is EROFS
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void fail(const char *format, ...) {
    int e = errno;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "conform: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, " (errno %d: %s)\n", e, strerror(e));
    exit(1);
}

#define CHECK(what, ...) do { if (!(what)) fail(__VA_ARGS__); } while (0)

static uint64_t state = 88172645463325252u;
static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return below ? state % below : 0;
}

/* Directories */

typedef struct { char *name; long at; ino_t ino; unsigned char type; } Name;

static size_t list(DIR *dir, Name *names, size_t max) {
    size_t n = 0;
    for (;;) {
        long at = telldir(dir);
        errno = 0;
        struct dirent *e = readdir(dir);
        if (!e) { CHECK(errno == 0, "readdir"); return n; }
        CHECK(n < max, "more names than there should be: %s", e->d_name);
        names[n++] = (Name){strdup(e->d_name), at, e->d_ino, e->d_type};
    }
}

static int by_name(const void *a, const void *b) { return strcmp(((const Name *)a)->name, ((const Name *)b)->name); }
static int by_ino(const void *a, const void *b) {
    ino_t x = *(const ino_t *)a, y = *(const ino_t *)b;
    return x < y ? -1 : x > y;
}

static void directory(const char *path, size_t count) {
    DIR *dir = opendir(path);
    CHECK(dir, "opendir %s", path);
    size_t all = count + 2;
    Name *names = calloc(all + 1, sizeof *names), *again = calloc(all + 1, sizeof *again);
    size_t n = list(dir, names, all + 1);
    CHECK(n == all, "%s: %zu names, not %zu", path, n, all);
    long end = telldir(dir);
    rewinddir(dir);
    CHECK(list(dir, again, all + 1) == all, "rewinddir");
    for (size_t i = 0; i < all; i++) CHECK(!strcmp(names[i].name, again[i].name), "rewinddir: entry %zu", i);
    for (int round = 0; round < 100; round++) {
        size_t k = draw(all);
        seekdir(dir, names[k].at);
        for (size_t i = k; i < all && (round < 3 || i < k + 20); i++) {
            struct dirent *e = readdir(dir);
            CHECK(e && !strcmp(e->d_name, names[i].name), "seekdir to %zu: entry %zu", k, i);
        }
    }
    seekdir(dir, end);
    CHECK(!readdir(dir), "seekdir to the end");
    size_t step = all > 5000 ? 97 : 1;
    for (size_t i = 0; i < all; i += step) {
        if (!strcmp(names[i].name, "..") || !strcmp(names[i].name, ".")) continue;
        struct stat st;
        CHECK(!fstatat(dirfd(dir), names[i].name, &st, AT_SYMLINK_NOFOLLOW), "stat of %s", names[i].name);
        CHECK(st.st_ino == names[i].ino, "%s: d_ino %lu, st_ino %lu", names[i].name, names[i].ino, st.st_ino);
        CHECK(names[i].type == IFTODT(st.st_mode), "%s: d_type %d", names[i].name, names[i].type);
    }
    for (int child = 0; child < 8; child++) {
        if (fork() == 0) {
            DIR *own = opendir(path);
            CHECK(own, "opendir");
            CHECK(list(own, again, all + 1) == all, "listing beside 7 others");
            for (size_t i = 0; i < all; i++) CHECK(!strcmp(names[i].name, again[i].name), "beside others: %zu", i);
            _exit(0);
        }
    }
    for (int child = 0; child < 8; child++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0, "a listing beside others");
    }
    qsort(names, all, sizeof *names, by_name);
    for (size_t i = 1; i < all; i++) CHECK(strcmp(names[i - 1].name, names[i].name), "%s twice", names[i].name);
    ino_t *inos = calloc(all, sizeof *inos);
    size_t used = 0;
    for (size_t i = 0; i < all; i++)
        if (strcmp(names[i].name, ".") && strcmp(names[i].name, "..")) inos[used++] = names[i].ino;
    qsort(inos, used, sizeof *inos, by_ino);
    for (size_t i = 0; i < used; i++) CHECK(inos[i] > 1 && (!i || inos[i] != inos[i - 1]), "inode %lu", inos[i]);
    CHECK(!closedir(dir), "closedir");
}

/* Files */

static const char *now;
static unsigned char *plain;
static off_t size;

static void same(const void *got, off_t at, size_t n) {
    CHECK(!n || at + (off_t)n <= size, "%s: bytes beyond the end", now);
    if (n && memcmp(got, plain + at, n)) fail("%s: %zu bytes at %ld differ", now, n, (long)at);
}

static void preads(int fd, unsigned char *buffer, size_t room) {
    off_t spots[] = {0, 1, 4095, 4096, 4097, 131071, 131072, size / 2, size - 1, size, size + 1, size + 4096};
    size_t sizes[] = {0, 1, 511, 512, 513, 4095, 4096, 4097, 12345, 131072, 131073, room};
    for (size_t i = 0; i < sizeof spots / sizeof *spots + 60; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            off_t at = i < sizeof spots / sizeof *spots ? spots[i] : (off_t)draw(size + 10);
            if (at < 0) continue;
            off_t left = at < size ? size - at : 0, want = (off_t)sizes[k] < left ? (off_t)sizes[k] : left;
            ssize_t n = pread(fd, buffer, sizes[k], at);
            CHECK(n == want, "%s: pread of %zu at %ld gives %zd, not %ld", now, sizes[k], (long)at, n, (long)want);
            same(buffer, at, n);
        }
}

static int scratch(const char *dir) {
    int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0, "a file in %s", dir);
    return fd;
}

static void holds_all(int fd, unsigned char *buffer) {
    for (off_t at = 0; at < size;) {
        ssize_t n = pread(fd, buffer, 1 << 20, at);
        CHECK(n > 0, "%s: short at %ld", now, (long)at);
        same(buffer, at, n);
        at += n;
    }
}

static void file(const char *path, const char *want, const char *tmp) {
    int p = open(want, O_RDONLY), fd = open(path, O_RDONLY);
    struct stat st, ps;
    CHECK(p >= 0 && fd >= 0 && !fstat(fd, &st) && !fstat(p, &ps), "open %s and %s", path, want);
    size = ps.st_size;
    CHECK(st.st_size == size, "%s has %ld bytes, not %ld", path, (long)st.st_size, (long)size);
    CHECK(st.st_blocks == (size + 511) / 512, "%ld blocks", (long)st.st_blocks);
    plain = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, p, 0) : (unsigned char *)"";
    size_t room = 1 << 21;
    unsigned char *buffer = aligned_alloc(4096, room);
    CHECK(plain != MAP_FAILED && buffer, "memory");

    now = "pread";
    preads(fd, buffer, room);
    now = "O_DIRECT";
    int direct = open(path, O_RDONLY | O_DIRECT);
    CHECK(direct >= 0, "open with O_DIRECT");
    preads(direct, buffer, room);
    preads(direct, buffer + 1, room - 1);
    now = "read";
    lseek(fd, 0, SEEK_SET);
    off_t at = 0;
    for (ssize_t n; (n = read(fd, buffer, 1 + draw(300000))) != 0; at += n) {
        CHECK(n > 0, "read");
        same(buffer, at, n);
    }
    CHECK(at == size, "read ends at %ld", (long)at);
    now = "preadv";
    struct iovec parts[3] = {{buffer, 7}, {buffer + 7, 0}, {buffer + 7, 5000}};
    ssize_t got = preadv(fd, parts, 3, size / 3);
    CHECK(got >= 0, "preadv");
    same(buffer, size / 3, got);

    now = "SEEK_HOLE and SEEK_DATA";
    CHECK(lseek(fd, 0, SEEK_END) == size, "SEEK_END");
    if (size) {
        CHECK(lseek(fd, 0, SEEK_HOLE) == size, "SEEK_HOLE: %ld", (long)lseek(fd, 0, SEEK_HOLE));
        CHECK(lseek(fd, size - 1, SEEK_DATA) == size - 1, "SEEK_DATA");
    }
    CHECK(lseek(fd, size, SEEK_DATA) == -1 && errno == ENXIO, "SEEK_DATA at the end");

    if (size) {
        int kinds[] = {MAP_PRIVATE, MAP_SHARED};
        for (int k = 0; k < 2; k++) {
            now = k ? "shared map" : "private map";
            unsigned char *map = mmap(NULL, size, PROT_READ, kinds[k], fd, 0);
            CHECK(map != MAP_FAILED, "%s", now);
            for (off_t page = (size - 1) / 4096 * 4096; page >= 0; page -= 4096)
                same(map + page, page, size - page < 4096 ? size - page : 4096);
            for (off_t i = size; i % 4096; i++) CHECK(map[i] == 0, "%s: not zero after the end", now);
            munmap(map, size);
        }
        unsigned char *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        CHECK(own != MAP_FAILED, "private map to write");
        own[0] ^= 0xff, own[size - 1] ^= 0xff;
        munmap(own, size);
        CHECK(pread(fd, buffer, 1, 0) == 1, "pread");
        now = "what was written to a private map";
        same(buffer, 0, 1);
        CHECK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES,
              "a shared map to write");
    }

    now = "sendfile";
    int out = scratch(tmp);
    off_t from = 0;
    while (from < size) CHECK(sendfile(out, fd, &from, 1 + draw(400000)) > 0, "sendfile at %ld", (long)from);
    CHECK(sendfile(out, fd, &from, 100) == 0, "sendfile at the end");
    holds_all(out, buffer);
    close(out);

    now = "splice";
    int pipes[2];
    CHECK(!pipe(pipes), "pipe");
    loff_t place = 0;
    at = 0;
    for (ssize_t n; (n = splice(fd, &place, pipes[1], NULL, 1 + draw(65536), 0)) != 0; at += n) {
        CHECK(n > 0, "splice at %ld", (long)at);
        for (ssize_t have = 0; have < n;) {
            ssize_t m = read(pipes[0], buffer + have, n - have);
            CHECK(m > 0, "pipe");
            have += m;
        }
        same(buffer, at, n);
    }
    CHECK(at == size, "splice ends at %ld", (long)at);

    now = "copy_file_range";
    out = scratch(tmp);
    loff_t source = 0, target = 0;
    ssize_t copied = 1;
    while (copied > 0 && source < size) copied = copy_file_range(fd, &source, out, &target, 1 << 20, 0);
    if (copied < 0) CHECK(errno == EXDEV || errno == EOPNOTSUPP, "copy_file_range");
    else holds_all(out, buffer);
    close(out);

    now = "control";
    int flags;
    CHECK(!isatty(fd) && errno == ENOTTY, "isatty");
    CHECK(ioctl(fd, 0x5a5a, buffer) == -1 && errno == ENOTTY, "an unknown ioctl");
    CHECK(ioctl(fd, _IOWR('z', 200, char[64]), buffer) == -1 && errno == ENOTTY, "an unknown ioctl with data");
    CHECK(ioctl(fd, FIONREAD, &flags) == 0 || errno == ENOTTY, "FIONREAD");
    CHECK(ftruncate(fd, 0) == -1 && errno == EINVAL, "ftruncate of what is open to read");
    CHECK(write(fd, "x", 1) == -1 && errno == EBADF, "write to what is open to read");
    CHECK(!flock(fd, LOCK_SH) && !flock(fd, LOCK_UN), "flock");
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    CHECK(!fcntl(fd, F_SETLK, &lock), "a lock to read");
    CHECK(!posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED), "fadvise");
    CHECK(!fsync(fd), "fsync");
    for (int i = 0; i < 2; i++) {
        preads(i ? direct : fd, buffer, room);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    close(direct);
    close(fd);
}

/* Nothing can be changed */

static void refused(const char *what, int result) {
    if (result != -1 || errno != EROFS) fail("%s: %d, not EROFS", what, result);
}

static void readonly(const char *dir, const char *path) {
    char other[4096];
    snprintf(other, sizeof other, "%s/new", dir);
    refused("open to write", open(path, O_WRONLY));
    refused("open to read and write", open(path, O_RDWR));
    refused("open to append", open(path, O_WRONLY | O_APPEND));
    refused("open to truncate", open(path, O_RDONLY | O_TRUNC));
    refused("create", open(other, O_CREAT | O_EXCL | O_WRONLY, 0644));
    refused("an unnamed file", open(dir, O_TMPFILE | O_RDWR, 0600));
    refused("mkdir", mkdir(other, 0755));
    refused("mknod", mknod(other, S_IFIFO | 0644, 0));
    refused("symlink", symlink("x", other));
    refused("link", link(path, other));
    refused("rename", rename(path, other));
    refused("unlink", unlink(path));
    refused("rmdir", rmdir(dir));
    refused("truncate", truncate(path, 0));
    refused("chmod", chmod(path, 0600));
    refused("chown", chown(path, 1, 1));
    refused("utimes", utimes(path, NULL));
    refused("setxattr", setxattr(path, "user.x", "y", 1, 0));
    refused("removexattr", removexattr(path, "user.x"));
    CHECK(access(path, W_OK) == -1 && errno == EROFS, "access to write");
    CHECK(!access(path, R_OK), "access to read");
}

int main(int argc, char **argv) {
    alarm(50);
    if (argc == 4 && !strcmp(argv[1], "dir")) directory(argv[2], strtoul(argv[3], NULL, 10));
    else if (argc == 5 && !strcmp(argv[1], "file")) file(argv[2], argv[3], argv[4]);
    else if (argc == 4 && !strcmp(argv[1], "readonly")) readonly(argv[2], argv[3]);
    else fail("see the top of conform.c");
    puts("good");
    return 0;
}
