/* A preloaded shim between CPython and libc: every call that touches a file below one folder can be
 * made to fail, to be cut short, to succeed and yet report an error, or to be the last thing this
 * process does. Each call is logged with its offset and its bytes, so that the states which a power
 * cut may leave can be rebuilt from the log (tests/faults/disk_model.py).
 *
 * Armed by the environment when it is loaded, or later by fault_arm():
 *   FAULT_ROOT  absolute path of the folder that is watched, links resolved
 *   FAULT_LOG   where the log goes; it must lie outside the folder
 *   FAULT_PLAN  faults joined by ';', each `call,nth,count,action,argument`; count 0: for ever
 *
 * A call is decided, made and logged under one lock, so that the order in the log is the order in
 * which the system saw the calls. Syncs are the exception: they are logged when they begin and when
 * they end, and others may come between, because a sync covers only what came before it began. So is
 * flock, which may wait; it is logged when it ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "offsets have 64 bits here, whatever the call is named");

enum { MARK, OPEN, WRITE, PWRITE, PREAD, FDATASYNC, FSYNC, FTRUNCATE, LINK, UNLINK, RENAME, MKDIR, FSTAT, LSTAT,
       FLOCK, COPY_FILE_RANGE, SENDFILE, READ, CLOSE, CALLS };
static const char *const names[CALLS] = {"mark",   "open",      "write",  "pwrite", "pread",  "fdatasync", "fsync",
                                         "ftruncate", "link", "unlink", "rename", "mkdir", "fstat", "lstat",
                                         "flock", "copy_file_range", "sendfile", "read", "close"};

enum { NONE, ERRNO, AFTER, SHORT, KILL_BEFORE, KILL_AFTER, DELAY };
static const char *const actions[] = {"none", "errno", "after", "short", "kill_before", "kill_after", "delay"};

enum { PHASE_DONE, PHASE_BEGIN };
enum { FLAG_INJECTED = 1, FLAG_CREATED = 2, FLAG_FOLDER = 4 };

struct fault {
    int call, action, dies;
    long nth, count, argument;
};

struct header {
    uint32_t magic;
    uint16_t call, phase;
    uint32_t nth, flags;
    int32_t error;
    uint32_t path_bytes, data_bytes;
    int32_t unused;
    int64_t inode, offset, size, result;
};

#define MAGIC 0x31544c46u
#define FAULTS_MAX 64
#define PATH_SIZE 8192

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int armed;
static int log_fd = -1;
static char root[4096];
static size_t root_bytes;
static struct fault faults[FAULTS_MAX];
static int fault_count;
static long counts[CALLS];
static __thread int quiet;

#define REAL(type, name, ...)                                                                                \
    static type (*real)(__VA_ARGS__);                                                                        \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* Settings */

static int find_name(const char *const *table, int size, const char *name)
{
    for (int i = 0; i < size; i++)
        if (!strcmp(table[i], name)) return i;
    fprintf(stderr, "fault shim: nothing is called %s\n", name);
    abort();
}

static void parse_plan(const char *plan)
{
    char copy[8192], *rest = copy, *one;
    snprintf(copy, sizeof copy, "%s", plan ? plan : "");
    fault_count = 0;
    while ((one = strsep(&rest, ";"))) {
        char call[32], action[32];
        struct fault *fault = &faults[fault_count];
        if (!*one) continue;
        if (fault_count == FAULTS_MAX ||
            sscanf(one, "%31[a-z_],%ld,%ld,%31[a-z_],%ld", call, &fault->nth, &fault->count, action,
                   &fault->argument) != 5) {
            fprintf(stderr, "fault shim: can't read the fault %s\n", one);
            abort();
        }
        fault->call = find_name(names, CALLS, call);
        fault->action = find_name(actions, sizeof actions / sizeof *actions, action);
        fault_count++;
    }
}

void fault_arm(const char *folder, const char *log, const char *plan)
{
    pthread_mutex_lock(&lock);
    armed = 0;
    memset(counts, 0, sizeof counts);
    snprintf(root, sizeof root, "%s", folder);
    root_bytes = strlen(root);
    parse_plan(plan);
    if (log_fd >= 0) syscall(SYS_close, log_fd);
    int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        fprintf(stderr, "fault shim: can't open the log %s\n", log);
        abort();
    }
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 700); /* out of the way of the numbers that the program sees */
    syscall(SYS_close, fd);
    armed = 1;
    pthread_mutex_unlock(&lock);
}

/* From now on nothing fails any more; calls are still logged. */
void fault_lift(void)
{
    pthread_mutex_lock(&lock);
    fault_count = 0;
    pthread_mutex_unlock(&lock);
}

/* Calls of this thread are logged, but not counted and never made to fail. */
void fault_quiet(int on) { quiet = on; }

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *folder = getenv("FAULT_ROOT"), *log = getenv("FAULT_LOG");
    if (folder && log) fault_arm(folder, log, getenv("FAULT_PLAN"));
}

/* The log */

static void put(struct header *header, const char *path, const void *data)
{
    header->magic = MAGIC;
    struct iovec parts[3] = {{header, sizeof *header},
                             {(void *)path, header->path_bytes},
                             {(void *)data, header->data_bytes}};
    size_t total = sizeof *header + header->path_bytes + header->data_bytes;
    if (syscall(SYS_writev, log_fd, parts, 3) != (long)total) abort();
}

void fault_mark(const char *text, size_t size)
{
    if (!armed) return;
    struct header header = {.call = MARK, .data_bytes = size};
    pthread_mutex_lock(&lock);
    put(&header, "", text);
    pthread_mutex_unlock(&lock);
}

/* Which calls are ours */

static int is_watched(const char *path)
{
    return !strncmp(path, root, root_bytes) && (path[root_bytes] == '/' || !path[root_bytes]);
}

static int watches_path(int folder, const char *path, char *full)
{
    if (!armed || !path) return 0;
    if (*path == '/' || folder == AT_FDCWD) {
        snprintf(full, PATH_SIZE, "%s", path);
    } else {
        char link[64], base[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
        snprintf(full, PATH_SIZE, "%s/%s", base, path);
    }
    return is_watched(full);
}

static int watches_fd(int fd, char *path)
{
    char link[64];
    if (!armed || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_SIZE - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return is_watched(path);
}

/* The plain system calls: not every libc exports fstat and lstat by name. */

static int64_t inode_of(int fd)
{
    struct stat status;
    return syscall(SYS_fstat, fd, &status) ? -1 : (int64_t)status.st_ino;
}

static int64_t size_of(int fd)
{
    struct stat status;
    return syscall(SYS_fstat, fd, &status) ? -1 : (int64_t)status.st_size;
}

static int64_t inode_at(const char *path)
{
    struct stat status;
    int failed = syscall(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW);
    return failed ? -1 : (int64_t)status.st_ino;
}

/* Faults */

static struct fault decide(struct header *header)
{
    struct fault decided = {.action = NONE};
    if (quiet) return decided;
    long nth = ++counts[header->call];
    header->nth = nth;
    for (int i = 0; i < fault_count; i++) {
        const struct fault *fault = &faults[i];
        if (fault->call != header->call || nth < fault->nth || (fault->count && nth >= fault->nth + fault->count))
            continue;
        header->flags |= FLAG_INJECTED;
        if (fault->action == KILL_AFTER)
            decided.dies = 1; /* goes with another one: cut short, then killed */
        else if (decided.action == NONE)
            decided.action = fault->action, decided.argument = fault->argument;
    }
    return decided;
}

static void die(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

static void begin(struct fault *fault, struct header *header, const char *path)
{
    if (fault->action != KILL_BEFORE) return;
    header->result = -1;
    header->error = EINTR; /* the log says that it never happened */
    put(header, path, "");
    die();
}

/* Ends a call: logs it, releases the lock, gives what the program sees. */
static ssize_t end(struct fault *fault, struct header *header, const char *path, const void *data, int error)
{
    if (fault->action == AFTER && header->result >= 0) error = fault->argument;
    header->error = error;
    put(header, path, data);
    if (fault->dies) die();
    pthread_mutex_unlock(&lock);
    errno = error;
    return error ? -1 : header->result;
}

#define FAILS(fault) ((fault).action == ERRNO)

/* The calls */

static int do_open(int folder, const char *path, int flags, mode_t mode)
{
    REAL(int, "openat", int, const char *, int, ...);
    char full[PATH_SIZE];
    if (!watches_path(folder, path, full)) return real(folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    struct header header = {.call = OPEN, .size = flags, .path_bytes = strlen(full), .inode = -1};
    struct fault fault = decide(&header);
    begin(&fault, &header, full);
    int absent = inode_at(full) < 0;
    int fd = FAILS(fault) ? -1 : real(folder, path, flags, mode);
    int error = FAILS(fault) ? (int)fault.argument : fd < 0 ? errno : 0;
    if (fd >= 0) {
        header.inode = inode_of(fd);
        if (absent) header.flags |= FLAG_CREATED;
        if (fault.action == AFTER) syscall(SYS_close, fd);
    }
    header.result = fd;
    return end(&fault, &header, full, "", error);
}

#define OPEN_MODE                                                                                            \
    mode_t mode = 0;                                                                                         \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                   \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        mode = va_arg(rest, mode_t);                                                                         \
        va_end(rest);                                                                                        \
    }

int open(const char *path, int flags, ...)
{
    OPEN_MODE
    return do_open(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    OPEN_MODE
    return do_open(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...)
{
    OPEN_MODE
    return do_open(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...)
{
    OPEN_MODE
    return do_open(folder, path, flags, mode);
}

static size_t shortened(const struct fault *fault, size_t size)
{
    if (fault->action != SHORT || size < 2) return size;
    size_t wanted = fault->argument == -1 ? size / 2 : fault->argument == -2 ? size - 1 : (size_t)fault->argument;
    return wanted < size ? wanted : size - 1;
}

static ssize_t ended_write(struct fault *fault, struct header *header, const char *path, const void *data,
                           ssize_t written)
{
    int error = FAILS(*fault) ? (int)fault->argument : written < 0 ? errno : 0;
    header->result = written;
    header->data_bytes = written > 0 ? written : 0;
    return end(fault, header, path, data, error);
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd, data, size);
    pthread_mutex_lock(&lock);
    struct header header = {
        .call = WRITE, .size = size, .offset = -1, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    ssize_t written = FAILS(fault) ? -1 : real(fd, data, shortened(&fault, size));
    int error = errno;
    /* Where it landed: with O_APPEND only the position afterwards tells. */
    if (written > 0) header.offset = lseek(fd, 0, SEEK_CUR) - written;
    errno = error;
    return ended_write(&fault, &header, path, data, written);
}

static ssize_t do_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd, data, size, offset);
    pthread_mutex_lock(&lock);
    struct header header = {
        .call = PWRITE, .size = size, .offset = offset, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    if (fcntl(fd, F_GETFL) & O_APPEND) header.offset = size_of(fd); /* pwrite(2), BUGS */
    ssize_t written = FAILS(fault) ? -1 : real(fd, data, shortened(&fault, size), offset);
    return ended_write(&fault, &header, path, data, written);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return do_pwrite(fd, data, size, offset); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return do_pwrite(fd, data, size, offset); }

static ssize_t do_pread(int fd, void *data, size_t size, off_t offset)
{
    REAL(ssize_t, "pread", int, void *, size_t, off_t);
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd, data, size, offset);
    pthread_mutex_lock(&lock);
    struct header header = {
        .call = PREAD, .size = size, .offset = offset, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    ssize_t got = FAILS(fault) ? -1 : real(fd, data, shortened(&fault, size), offset);
    header.result = got;
    return end(&fault, &header, path, "", FAILS(fault) ? (int)fault.argument : got < 0 ? errno : 0);
}
ssize_t pread(int fd, void *data, size_t size, off_t offset) { return do_pread(fd, data, size, offset); }
ssize_t pread64(int fd, void *data, size_t size, off_t offset) { return do_pread(fd, data, size, offset); }

ssize_t read(int fd, void *data, size_t size)
{
    REAL(ssize_t, "read", int, void *, size_t);
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd, data, size);
    pthread_mutex_lock(&lock);
    struct header header = {.call = READ, .size = size, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    ssize_t got = FAILS(fault) ? -1 : real(fd, data, shortened(&fault, size));
    header.result = got;
    return end(&fault, &header, path, "", FAILS(fault) ? (int)fault.argument : got < 0 ? errno : 0);
}

/* Copies inside the kernel: the log gets the bytes from the source, the target may be open to write only. */

struct copying {
    int in, out;
    off_t *in_offset, *out_offset;
    size_t size;
    unsigned flags;
};

static ssize_t copied(int call, const struct copying *copying, ssize_t (*copy)(const struct copying *, size_t),
                      const char *path)
{
    pthread_mutex_lock(&lock);
    struct header header = {
        .call = call, .size = copying->size, .path_bytes = strlen(path), .inode = inode_of(copying->out)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    off_t from = copying->in_offset ? *copying->in_offset : lseek(copying->in, 0, SEEK_CUR);
    off_t to = copying->out_offset ? *copying->out_offset : lseek(copying->out, 0, SEEK_CUR);
    ssize_t size = FAILS(fault) ? -1 : copy(copying, shortened(&fault, copying->size));
    int error = FAILS(fault) ? (int)fault.argument : size < 0 ? errno : 0;
    char *data = size > 0 ? malloc(size) : NULL;
    if (size > 0 && (!data || syscall(SYS_pread64, copying->in, data, size, from) != size)) abort();
    header.offset = to;
    header.result = size;
    header.data_bytes = size > 0 ? size : 0;
    size = end(&fault, &header, path, data ? data : "", error);
    error = errno;
    free(data);
    errno = error;
    return size;
}

static ssize_t make_copy(const struct copying *with, size_t size)
{
    REAL(ssize_t, "copy_file_range", int, off_t *, int, off_t *, size_t, unsigned);
    return real(with->in, with->in_offset, with->out, with->out_offset, size, with->flags);
}
ssize_t copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t size, unsigned flags)
{
    char path[PATH_SIZE];
    struct copying with = {in, out, in_offset, out_offset, size, flags};
    if (!watches_fd(out, path)) return make_copy(&with, size);
    return copied(COPY_FILE_RANGE, &with, make_copy, path);
}

static ssize_t make_send(const struct copying *with, size_t size)
{
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    return real(with->out, with->in, with->in_offset, size);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size)
{
    char path[PATH_SIZE];
    struct copying with = {.in = in, .out = out, .in_offset = offset, .size = size};
    if (!watches_fd(out, path)) return make_send(&with, size);
    return copied(SENDFILE, &with, make_send, path);
}
ssize_t sendfile64(int out, int in, off_t *offset, size_t size) { return sendfile(out, in, offset, size); }

/* Whatever is reported, the descriptor is gone: close(2). */
int close(int fd)
{
    REAL(int, "close", int);
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd);
    pthread_mutex_lock(&lock);
    struct header header = {.call = CLOSE, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    int failed = real(fd);
    header.result = failed;
    return end(&fault, &header, path, "", FAILS(fault) ? (int)fault.argument : failed ? errno : 0);
}

static int do_sync(int call, int (*real)(int), int fd)
{
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd);
    pthread_mutex_lock(&lock);
    struct header header = {.call = call, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    header.phase = PHASE_BEGIN;
    put(&header, path, "");
    pthread_mutex_unlock(&lock);
    if (fault.action == DELAY) {
        struct timespec time = {fault.argument / 1000, fault.argument % 1000 * 1000000};
        nanosleep(&time, NULL);
    }
    int failed = FAILS(fault) ? -1 : real(fd), error = FAILS(fault) ? (int)fault.argument : failed ? errno : 0;
    pthread_mutex_lock(&lock);
    header.phase = PHASE_DONE;
    header.result = failed;
    return end(&fault, &header, path, "", error);
}
int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return do_sync(FDATASYNC, real, fd);
}
int fsync(int fd)
{
    REAL(int, "fsync", int);
    return do_sync(FSYNC, real, fd);
}

static int do_ftruncate(int fd, off_t size)
{
    REAL(int, "ftruncate", int, off_t);
    char path[PATH_SIZE];
    if (!watches_fd(fd, path)) return real(fd, size);
    pthread_mutex_lock(&lock);
    struct header header = {.call = FTRUNCATE, .size = size, .path_bytes = strlen(path), .inode = inode_of(fd)};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    int failed = FAILS(fault) ? -1 : real(fd, size);
    header.result = failed;
    return end(&fault, &header, path, "", FAILS(fault) ? (int)fault.argument : failed ? errno : 0);
}
int ftruncate(int fd, off_t size) { return do_ftruncate(fd, size); }
int ftruncate64(int fd, off_t size) { return do_ftruncate(fd, size); }

/* Calls on names. `second` is NULL where there is only one; the log joins two with a NUL. */
static int on_names(int call, const char *first, const char *second, int64_t inode, int (*make)(void *), void *with)
{
    char both[2 * PATH_SIZE];
    int size = snprintf(both, sizeof both, "%s", first);
    if (second) size += 1 + snprintf(both + size + 1, sizeof both - size - 1, "%s", second);
    pthread_mutex_lock(&lock);
    struct header header = {.call = call, .path_bytes = size, .inode = inode};
    struct fault fault = decide(&header);
    begin(&fault, &header, both);
    int failed = FAILS(fault) ? -1 : make(with);
    header.result = failed;
    return end(&fault, &header, both, "", FAILS(fault) ? (int)fault.argument : failed ? errno : 0);
}

struct names {
    int folder, second_folder, flags;
    const char *first, *second;
    mode_t mode;
};

static int make_link(void *with)
{
    REAL(int, "linkat", int, const char *, int, const char *, int);
    struct names *names = with;
    return real(names->folder, names->first, names->second_folder, names->second, names->flags);
}
static int make_rename(void *with)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    struct names *names = with;
    return real(names->folder, names->first, names->second_folder, names->second);
}
static int make_unlink(void *with)
{
    REAL(int, "unlinkat", int, const char *, int);
    struct names *names = with;
    return real(names->folder, names->first, names->flags);
}
static int make_mkdir(void *with)
{
    REAL(int, "mkdirat", int, const char *, mode_t);
    struct names *names = with;
    return real(names->folder, names->first, names->mode);
}

int linkat(int folder, const char *first, int second_folder, const char *second, int flags)
{
    char full[PATH_SIZE], other[PATH_SIZE];
    struct names with = {folder, second_folder, flags, first, second, 0};
    if (!watches_path(second_folder, second, other)) return make_link(&with);
    if (!watches_path(folder, first, full)) snprintf(full, sizeof full, "%s", first);
    return on_names(LINK, full, other, inode_at(full), make_link, &with);
}
int link(const char *first, const char *second) { return linkat(AT_FDCWD, first, AT_FDCWD, second, 0); }

int renameat(int folder, const char *first, int second_folder, const char *second)
{
    char full[PATH_SIZE], other[PATH_SIZE];
    struct names with = {folder, second_folder, 0, first, second, 0};
    if (!watches_path(second_folder, second, other)) return make_rename(&with);
    if (!watches_path(folder, first, full)) snprintf(full, sizeof full, "%s", first);
    return on_names(RENAME, full, other, inode_at(full), make_rename, &with);
}
int rename(const char *first, const char *second) { return renameat(AT_FDCWD, first, AT_FDCWD, second); }

static int make_rename_with_flags(void *with)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    struct names *names = with;
    return real(names->folder, names->first, names->second_folder, names->second, names->flags);
}
int renameat2(int folder, const char *first, int second_folder, const char *second, unsigned flags)
{
    char full[PATH_SIZE], other[PATH_SIZE];
    struct names with = {folder, second_folder, flags, first, second, 0};
    if (!watches_path(second_folder, second, other)) return make_rename_with_flags(&with);
    if (!watches_path(folder, first, full)) snprintf(full, sizeof full, "%s", first);
    return on_names(RENAME, full, other, inode_at(full), make_rename_with_flags, &with);
}

int unlinkat(int folder, const char *path, int flags)
{
    char full[PATH_SIZE];
    struct names with = {.folder = folder, .first = path, .flags = flags};
    if (!watches_path(folder, path, full)) return make_unlink(&with);
    return on_names(UNLINK, full, NULL, inode_at(full), make_unlink, &with);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int mkdirat(int folder, const char *path, mode_t mode)
{
    char full[PATH_SIZE];
    struct names with = {.folder = folder, .first = path, .mode = mode};
    if (!watches_path(folder, path, full)) return make_mkdir(&with);
    return on_names(MKDIR, full, NULL, -1, make_mkdir, &with);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* Looking: it changes nothing, but it can fail too. */

static int looked(int call, const char *path, int (*look)(void *), void *with)
{
    pthread_mutex_lock(&lock);
    struct header header = {.call = call, .path_bytes = strlen(path), .inode = -1};
    struct fault fault = decide(&header);
    begin(&fault, &header, path);
    int failed = -1;
    if (!FAILS(fault) && call == FLOCK) { /* it may wait for another thread, which calls us meanwhile */
        pthread_mutex_unlock(&lock);
        failed = look(with);
        int error = errno;
        pthread_mutex_lock(&lock);
        errno = error;
    } else if (!FAILS(fault)) {
        failed = look(with);
    }
    header.result = failed;
    return end(&fault, &header, path, "", FAILS(fault) ? (int)fault.argument : failed ? errno : 0);
}

struct looking {
    int fd;
    const char *path;
    struct stat *status;
    int operation;
};

static int look_fstat(void *with)
{
    struct looking *looking = with;
    return syscall(SYS_fstat, looking->fd, looking->status);
}
static int look_lstat(void *with)
{
    struct looking *looking = with;
    return syscall(SYS_newfstatat, AT_FDCWD, looking->path, looking->status, AT_SYMLINK_NOFOLLOW);
}
static int take_flock(void *with)
{
    REAL(int, "flock", int, int);
    struct looking *looking = with;
    return real(looking->fd, looking->operation);
}

static int do_fstat(int fd, struct stat *status)
{
    char path[PATH_SIZE];
    struct looking with = {.fd = fd, .status = status};
    if (!watches_fd(fd, path)) return look_fstat(&with);
    return looked(FSTAT, path, look_fstat, &with);
}
int fstat(int fd, struct stat *status) { return do_fstat(fd, status); }
int fstat64(int fd, struct stat64 *status) { return do_fstat(fd, (struct stat *)status); }

static int do_lstat(const char *path, struct stat *status)
{
    char full[PATH_SIZE];
    struct looking with = {.path = path, .status = status};
    if (!watches_path(AT_FDCWD, path, full)) return look_lstat(&with);
    return looked(LSTAT, full, look_lstat, &with);
}
int lstat(const char *path, struct stat *status) { return do_lstat(path, status); }
int lstat64(const char *path, struct stat64 *status) { return do_lstat(path, (struct stat *)status); }

int flock(int fd, int operation)
{
    char path[PATH_SIZE];
    struct looking with = {.fd = fd, .operation = operation};
    if (!watches_fd(fd, path)) return take_flock(&with);
    return looked(FLOCK, path, take_flock, &with);
}
