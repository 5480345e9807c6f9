/* Generates a function with a frame pointer, calls back through it, and writes its name as the argument says:
 *   map      to its perf map
 *   foreign  to its perf map, which it gives to another user
 *   link     to a file to which its perf map is a link
 *   dump     to a jitdump file in the current directory
 *   memfd    to its perf map; the function is in a memfd, which is mapped twice
 *   none     nowhere
 * It removes the files when it is released. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NOIPA __attribute__((noipa))

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static const char name[] = "LazyCompile:*compiled /srv/app.js:12:3";

/* tools/perf/Documentation/jitdump-specification.txt */
struct header {
    uint32_t magic, version, size, machine, padding, pid;
    uint64_t time, flags;
};
struct load {
    uint32_t kind, size;
    uint64_t time;
    uint32_t pid, tid;
    uint64_t virtual_address, address, bytes, index;
    char name[sizeof name];
    unsigned char code[sizeof code];
} __attribute__((packed));

NOIPA static void allocate(void) {
    void *block = malloc(100);
    ledger_alloc(NULL, block, 100);
}

NOIPA static void called_back(void) {
    allocate();
    __asm__ volatile("");
}

NOIPA static void through(void *function) {
    ((void (*)(void (*)(void)))function)(called_back);
    __asm__ volatile("");
}

static void check(int ok) {
    if (!ok)
        abort();
}

static void write_map(const char *path, const void *function) {
    /* An earlier function at the same address, the line in use, and one that is not complete. fopen would allocate. */
    char text[256];
    int length = snprintf(text, sizeof text, "%lx %zx earlier\n%lx %zx %s\n%lx", (long)function, sizeof code,
                          (long)function, sizeof code, name, 1L);
    int map = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    check(map >= 0 && write(map, text, length) == length);
    close(map);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void write_dump(const char *path, const void *function) {
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    check(file >= 0);
    struct header header = {0x4a695444, 1, sizeof header, 62, 0, getpid(), now(), 0};
    struct load load = {0, sizeof load, now(), getpid(), gettid(), (uintptr_t)function, (uintptr_t)function, sizeof code,
                        1, {0}, {0}};
    memcpy(load.name, name, sizeof name);
    memcpy(load.code, code, sizeof code);
    check(write(file, &header, sizeof header) == sizeof header && write(file, &load, sizeof load) == sizeof load);
    /* Shows where the file is. */
    check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED);
    close(file);
}

static void *in_memory(void) {
    void *function = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(function != MAP_FAILED);
    memcpy(function, code, sizeof code);
    return function;
}

static void *in_memfd(void) {
    int file = memfd_create("code", MFD_CLOEXEC);
    check(file >= 0 && ftruncate(file, 4096) == 0);
    void *function = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    void *writable = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(function != MAP_FAILED && writable != MAP_FAILED);
    memcpy(writable, code, sizeof code);
    close(file);
    return function;
}

int main(int count, char **arguments) {
    check(count == 2);
    const char *how = arguments[1];
    int is_in_memfd = strcmp(how, "memfd") == 0;
    void *function = is_in_memfd ? in_memfd() : in_memory();
    char map[64], dump[64], target[64];
    snprintf(map, sizeof map, "/tmp/perf-%d.map", getpid());
    snprintf(dump, sizeof dump, "jit-%d.dump", getpid());
    snprintf(target, sizeof target, "/tmp/perf-%d.target", getpid());
    ledger_start();
    for (int i = 0; i < 30; i++)
        through(function);
    if (is_in_memfd || strcmp(how, "map") == 0 || strcmp(how, "foreign") == 0)
        write_map(map, function);
    if (strcmp(how, "foreign") == 0)
        check(chown(map, 65534, 65534) == 0);
    if (strcmp(how, "link") == 0) {
        write_map(target, function);
        check(symlink(target, map) == 0);
    }
    if (strcmp(how, "dump") == 0)
        write_dump(dump, function);
    ledger_print("");
    int released = wait_for_harness();
    unlink(map);
    unlink(target);
    unlink(dump);
    return released ? 0 : 1;
}
