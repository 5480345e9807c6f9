/* Threads that allocate and end together with their process. `thread_ends THREADS MODE FILE`: at the first line from the
 * harness the threads start, allocate, and keep their ID, and their allocated bytes and blocks, in FILE. Then the process
 * ends by exit_group (`exit`), by the OOM killer, since the first thread allocates on (`oom`), or by a signal from the
 * harness, after a line of output (`wait`). */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_THREADS 64
#define BLOCKS 200
#define STEP 100000

struct counts {
    uint64_t tid, bytes, blocks;
};

/* Of jemalloc. */
int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size) __attribute__((weak));

static volatile struct counts *counts;
static pthread_barrier_t worked;
static int eats;

/* Returns the bytes that the calling thread has allocated. `before`: bytes before the allocation of `block`. */
static uint64_t bytes_with(uint64_t before, void *block) {
    uint64_t value = 0;
    size_t size = sizeof value;
    if (!mallctl)
        return before + malloc_usable_size(block);
    if (mallctl("thread.allocated", &value, &size, NULL, 0) != 0)
        _exit(5);
    return value;
}

/* No page is charged between the return of malloc and the count, so no OOM kill by this thread can come there. */
static void allocate(volatile struct counts *own, size_t size) {
    void *block = malloc(size);
    if (!block)
        _exit(4);
    own->blocks += 1;
    own->bytes = bytes_with(own->bytes, block);
    __asm__ volatile("" ::: "memory");
    memset(block, 1, size);
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    volatile struct counts *own = &counts[self];
    own->tid = (uint64_t)gettid();
    for (size_t i = 0; i < BLOCKS; i++)
        allocate(own, 1000 + 10 * self + i);
    pthread_barrier_wait(&worked);
    while (eats && self == 0)
        allocate(own, STEP);
    for (;;)
        pause();
    return NULL;
}

/* Counts in a file. Existing mappings are locked, so that a count charges no page. */
static void count_in(const char *path) {
    size_t size = MOST_THREADS * sizeof *counts;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        exit(3);
    counts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED || mlockall(MCL_CURRENT) != 0)
        exit(6);
}

int main(int count, char **arguments) {
    size_t threads = count == 4 ? strtoul(arguments[1], NULL, 10) : 0;
    if (threads < 1 || threads > MOST_THREADS)
        return 2;
    eats = strcmp(arguments[2], "oom") == 0;
    /* The first call of mallctl allocates. */
    bytes_with(0, NULL);
    count_in(arguments[3]);
    pthread_barrier_init(&worked, NULL, (unsigned)threads + 1);
    ledger_start();
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)i) != 0)
            abort();
        pthread_detach(thread);
    }
    pthread_barrier_wait(&worked);
    if (strcmp(arguments[2], "exit") == 0)
        exit(0);
    print_text("[]\n");
    for (;;)
        pause();
}
