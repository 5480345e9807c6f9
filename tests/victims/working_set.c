/* `working_set KIND PAGES TOUCHED PATTERN [FILE] [write]` maps resident memory of a kind: heap, anonymous, shmem, file, huge,
 * locked, or forked: anonymous memory, with 20 children that do nothing. From the first line on, it touches its first TOUCHED
 * pages again and again, until the second line. The pattern is read, write, sparse (one page in each 2 MiB), or skewed: the first tenth of the pages each time, and all in each eighth pass. With the
 * pattern `rate`, it touches TOUCHED further pages in each second instead. With `fault`, it releases all pages, writes to the first
 * TOUCHED of them once, and prints a line. It allocates nothing. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (2ul << 20)
#define CHILDREN 20

static char *mapped(size_t bytes, int flags, int file) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

static char *map(const char *kind, size_t bytes, const char *path) {
    if (strcmp(kind, "heap") == 0) {
        char *memory = sbrk((intptr_t)bytes);
        if (memory == (void *)-1)
            abort();
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        return memory;
    }
    if (strcmp(kind, "shmem") == 0) {
        int file = memfd_create("working set", 0);
        if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
            abort();
        return mapped(bytes, MAP_SHARED, file);
    }
    if (strcmp(kind, "file") == 0) {
        int file = open(path, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
            abort();
        return mapped(bytes, MAP_SHARED, file);
    }
    char *memory = mapped(bytes + HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    int is_huge = strcmp(kind, "huge") == 0;
    madvise(memory, bytes + HUGE, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (strcmp(kind, "locked") == 0 && mlock(memory, bytes) != 0)
        abort();
    return is_huge ? (char *)(((uintptr_t)memory + HUGE - 1) / HUGE * HUGE) : memory;
}

static size_t stride = PAGE;

static void touch(char *memory, size_t first, size_t end, int writes) {
    for (size_t page = first; page < end; page++) {
        volatile char *byte = memory + page * stride;
        if (writes)
            *byte = (char)page;
        else
            (void)*byte;
    }
}

static int has_line(int milliseconds) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, milliseconds) > 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static pid_t children[CHILDREN];

/* Starts the children, and waits until they have nothing more to do. */
static void fork_children(void) {
    int ready[2];
    if (pipe(ready) != 0)
        abort();
    for (int child = 0; child < CHILDREN; child++) {
        children[child] = fork();
        if (children[child] < 0)
            abort();
        if (children[child] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (write(ready[1], "", 1) != 1)
                abort();
            for (;;)
                pause();
        }
    }
    for (int child = 0; child < CHILDREN; child++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1)
            abort();
    }
}

static void end_children(void) {
    for (int child = 0; child < CHILDREN; child++) {
        kill(children[child], SIGKILL);
        waitpid(children[child], NULL, 0);
    }
}

int main(int count, char **arguments) {
    if (count < 5)
        return 1;
    size_t pages = strtoul(arguments[2], NULL, 10), touched = strtoul(arguments[3], NULL, 10);
    const char *pattern = arguments[4];
    char *memory = map(arguments[1], pages * PAGE, count > 5 ? arguments[5] : "");
    touch(memory, 0, pages, 1);
    int writes = strcmp(count > 6 ? arguments[6] : pattern, "write") == 0;
    if (strcmp(pattern, "sparse") == 0)
        stride = HUGE;
    int is_forked = strcmp(arguments[1], "forked") == 0;
    if (is_forked)
        fork_children();
    print_ready();
    if (!wait_for_harness())
        return 1;
    if (strcmp(pattern, "fault") == 0) {
        madvise(memory, pages * PAGE, MADV_DONTNEED);
        touch(memory, 0, touched, 1);
        print_text("touched\n");
    } else if (strcmp(pattern, "rate") == 0) {
        double start = now();
        for (size_t done = 0; !has_line(0);) {
            size_t due = (size_t)((now() - start) * (double)touched);
            due = due < pages ? due : pages;
            touch(memory, done, due, 0);
            done = due > done ? due : done;
        }
    } else {
        size_t often = strcmp(pattern, "skewed") == 0 ? touched / 10 : touched;
        for (size_t pass = 0; !has_line(1); pass++)
            touch(memory, 0, pass % 8 == 0 ? touched : often, writes);
    }
    int is_finished = wait_for_harness();
    if (is_forked)
        end_children();
    return is_finished ? 0 : 1;
}
