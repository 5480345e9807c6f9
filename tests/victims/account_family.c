/* Processes that allocate and free at the same time, with counters and water marks of all of them together.
 *
 * All calls of the allocator are made under one lock that the processes share, so that their order is that of the counters.
 * The first phase only lets each process allocate. Prints the counters after the second phase as one line of JSON: allocated
 * and freed bytes and blocks since the start, and the low and high water marks of this phase. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 3
#define STEPS 6000
#define SLOTS 100

struct amount {
    uint64_t bytes, count;
};

struct shared {
    pthread_mutex_t lock;
    pthread_barrier_t barrier;
    struct amount alloc, freed, low, high;
};

static struct shared *shared;

static void mark(void) {
    uint64_t bytes = shared->alloc.bytes - shared->freed.bytes, count = shared->alloc.count - shared->freed.count;
    if (bytes < shared->low.bytes)
        shared->low.bytes = bytes;
    if (bytes > shared->high.bytes)
        shared->high.bytes = bytes;
    if (count < shared->low.count)
        shared->low.count = count;
    if (count > shared->high.count)
        shared->high.count = count;
}

static void *allocate(size_t size) {
    pthread_mutex_lock(&shared->lock);
    void *block = malloc(size);
    shared->alloc.bytes += size;
    shared->alloc.count++;
    mark();
    pthread_mutex_unlock(&shared->lock);
    return block;
}

static void release(void *block, size_t size) {
    pthread_mutex_lock(&shared->lock);
    free(block);
    shared->freed.bytes += size;
    shared->freed.count++;
    mark();
    pthread_mutex_unlock(&shared->lock);
}

static void run(uint32_t random) {
    static void *blocks[SLOTS];
    static size_t sizes[SLOTS];
    pthread_barrier_wait(&shared->barrier);
    blocks[0] = allocate(sizes[0] = 500);
    pthread_barrier_wait(&shared->barrier);
    pthread_barrier_wait(&shared->barrier);
    for (int i = 0; i < STEPS; i++) {
        random = random * 1664525 + 1013904223;
        size_t slot = (random >> 8) % SLOTS;
        if (blocks[slot] != NULL) {
            release(blocks[slot], sizes[slot]);
            blocks[slot] = NULL;
        } else {
            blocks[slot] = allocate(sizes[slot] = 16 + (random >> 16) % 2000);
        }
    }
    pthread_barrier_wait(&shared->barrier);
    /* They hold their blocks until the harness has its counters. */
    pthread_barrier_wait(&shared->barrier);
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    pthread_mutexattr_t lock;
    pthread_barrierattr_t barrier;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &lock);
    pthread_barrierattr_init(&barrier);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &barrier, PROCESSES + 1);
    ledger_start();
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            run(i + 1);
            _exit(0);
        }
    }
    pthread_barrier_wait(&shared->barrier);
    pthread_barrier_wait(&shared->barrier);
    print_text("[]\n");
    if (!wait_for_harness())
        return 1;
    shared->low.bytes = shared->high.bytes = shared->alloc.bytes;
    shared->low.count = shared->high.count = shared->alloc.count;
    pthread_barrier_wait(&shared->barrier);
    pthread_barrier_wait(&shared->barrier);
    static char text[512];
    snprintf(text, sizeof text, "[%lu,%lu,%lu,%lu,%lu,%lu,%lu,%lu]\n", shared->alloc.bytes, shared->alloc.count,
             shared->freed.bytes, shared->freed.count, shared->low.bytes, shared->low.count, shared->high.bytes,
             shared->high.count);
    print_text(text);
    int ends = wait_for_harness();
    pthread_barrier_wait(&shared->barrier);
    while (wait(NULL) > 0)
        ;
    return ends ? 0 : 1;
}
