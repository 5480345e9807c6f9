/* `fuse DIRECTORY OBJECT` serves a copy of OBJECT as the file `object` of a FUSE file system, and maps it as executable code.
 * After the first step, a line from the harness stops the server, so that no further request is answered. With the third
 * argument `no-pages`, the file can be read, but after the first reader, pages of the mapping are never answered. A thread
 * waits for a futex in one of these pages. With `exec`, a child then calls exec, which closes the file and waits. With
 * `remap`, a thread then replaces a mapping with written pages, and waits with the lock of the memory map. A fourth argument
 * is the number of seconds after which the server then ends. */
#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_NODE 2
#define MAX_REQUEST (1 << 20)

static char *content;
static size_t length;
static int serves_pages, has_exec, has_remap;
/* Pipe with a byte for each close of the file, or write to it, that is not answered. */
static int waits[2];
/* True if the kernel has forgotten the content, so that pages of the mapping are missing. */
static int is_dropped;

/* Handles of the open file: that of the mapping, and those of others. */
#define MAPPING 1
#define OTHER 2
/* Time after which the server ends all the same, because a kernel that waits for a page can hold up the whole machine. */
#define LONGEST_HANG 8
/* The same for a memory map that stays locked. Nothing else waits for it, unless a probe is inserted. */
static unsigned longest_lock = 60;

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096};
    attr.mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755;
    attr.size = node == FILE_NODE ? length : 0;
    attr.blocks = (attr.size + 511) / 512;
    return attr;
}

static void reply(int device, const struct fuse_in_header *request, int error, const void *body, size_t size) {
    static char buffer[sizeof(struct fuse_out_header) + MAX_REQUEST];
    struct fuse_out_header header = {.len = (uint32_t)(sizeof header + size), .error = -error, .unique = request->unique};
    memcpy(buffer, &header, sizeof header);
    if (size > 0)
        memcpy(buffer + sizeof header, body, size);
    if (write(device, buffer, header.len) < 0 && errno != ENOENT)
        _exit(4);
}

/* Makes the kernel forget the content of the file. */
static void drop_pages(int device) {
    struct {
        struct fuse_out_header header;
        struct fuse_notify_inval_inode_out body;
    } notice = {{.len = sizeof notice, .error = FUSE_NOTIFY_INVAL_INODE}, {.ino = FILE_NODE}};
    is_dropped = 1;
    if (write(device, &notice, sizeof notice) < 0)
        _exit(5);
}

static void serve(int device) {
    static char buffer[MAX_REQUEST];
    while (read(device, buffer, sizeof buffer) > 0) {
        struct fuse_in_header *request = (struct fuse_in_header *)buffer;
        void *body = request + 1;
        switch (request->opcode) {
        case FUSE_INIT: {
            struct fuse_init_in *in = body;
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
            out.max_readahead = in->max_readahead;
            out.max_write = 4096;
            reply(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out out = {.nodeid = FILE_NODE, .attr = attributes(FILE_NODE)};
            int is_file = strcmp(body, "object") == 0;
            reply(device, request, is_file ? 0 : ENOENT, &out, is_file ? sizeof out : 0);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr = attributes(request->nodeid)};
            reply(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN: {
            static int is_open;
            struct fuse_open_out out = {.fh = MAPPING};
            if (is_open)
                out.fh = OTHER;
            is_open = 1;
            reply(device, request, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ: {
            struct fuse_read_in *in = body;
            if (in->fh == MAPPING && is_dropped) {
                alarm(LONGEST_HANG);
                break;
            }
            size_t left = in->offset < length ? length - in->offset : 0;
            reply(device, request, 0, content + in->offset, left < in->size ? left : in->size);
            break;
        }
        case FUSE_WRITE:
            alarm(longest_lock);
            if (write(waits[1], "", 1) != 1)
                _exit(5);
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
            break;
        case FUSE_RELEASE:
            reply(device, request, 0, NULL, 0);
            if (!serves_pages)
                drop_pages(device);
            break;
        case FUSE_FLUSH:
            if (has_exec) {
                if (write(waits[1], "", 1) != 1)
                    _exit(5);
                break;
            }
            reply(device, request, 0, NULL, 0);
            break;
        default:
            reply(device, request, ENOSYS, NULL, 0);
        }
    }
    _exit(0);
}

static void load(const char *path) {
    int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0)
        exit(2);
    length = (size_t)status.st_size;
    content = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0);
    if (content == MAP_FAILED)
        exit(2);
    close(file);
}

/* Makes the mounts of this process invisible to others, so that they end with it. */
static int leave_mounts(void) {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int is_mapped;

static void *wait_for_futex(void *file) {
    uint32_t *words = mmap(NULL, length, PROT_READ, MAP_SHARED, *(int *)file, 0);
    if (words == MAP_FAILED)
        _exit(3);
    __atomic_store_n(&is_mapped, 1, __ATOMIC_RELEASE);
    /* The value of a lock of glibc with waiters. memtrace then reads two words further. */
    size_t index = 0;
    while (words[index] != 2 || index % 1024 > 1020)
        index++;
    syscall(SYS_futex, &words[index], FUTEX_WAIT, 2, NULL, NULL, 0);
    return NULL;
}

static void allocate(void) {
    for (size_t i = 1; i <= 20; i++)
        ledger_alloc(NULL, malloc(i), i);
}

/* Starts a child that stays in exec: the kernel holds locks of the process while it waits for the close of the file. */
static pid_t start_exec(void) {
    char byte;
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/sleep", "sleep", "60", NULL);
        _exit(1);
    }
    if (read(waits[0], &byte, 1) != 1)
        _exit(3);
    return child;
}

/* Replaces a mapping of the file. The kernel writes its pages while it holds the lock of the memory map (`fuse_vma_close`). */
static void *remap(void *path) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        _exit(3);
    page[0]++;
    mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return NULL;
}

static void start_remap(char *path) {
    char byte;
    pthread_t thread;
    if (pthread_create(&thread, NULL, remap, path) != 0 || read(waits[0], &byte, 1) != 1)
        _exit(3);
}

int main(int count, char **arguments) {
    char options[100], path[4096];
    if (count < 3)
        return 2;
    has_exec = count == 4 && strcmp(arguments[3], "exec") == 0;
    has_remap = count >= 4 && strcmp(arguments[3], "remap") == 0;
    if (count == 5)
        longest_lock = (unsigned)atoi(arguments[4]);
    serves_pages = count == 3 || has_exec || has_remap;
    if (pipe(waits) != 0)
        return 3;
    load(arguments[2]);
    int device = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (device < 0 || !leave_mounts() || mount("memtrace-test", arguments[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0)
        return 3;
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(device);
    }
    close(device);
    snprintf(path, sizeof path, "%s/object", arguments[1]);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || mmap(NULL, length, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
        return 3;
    if (!serves_pages) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_futex, &file) != 0)
            return 3;
        while (!__atomic_load_n(&is_mapped, __ATOMIC_ACQUIRE))
            sched_yield();
    }
    /* The close waits for the server. The mapping stays, and its end does not wait. */
    if (!has_exec)
        close(file);
    ledger_start();
    allocate();
    ledger_print("");
    if (!wait_for_harness())
        return 0;
    /* Probes of malloc wait for the lock of the memory map. */
    allocate();
    pid_t child = has_exec ? start_exec() : 0;
    if (has_remap)
        start_remap(path);
    else if (serves_pages)
        kill(server, SIGSTOP);
    ledger_print("");
    int is_line = wait_for_harness();
    /* With its server, the file system ends, and all requests fail. */
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    if (child != 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return is_line ? 0 : 1;
}
