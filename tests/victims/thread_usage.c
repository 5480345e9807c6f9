/* Threads that count the usable sizes of the blocks that each of them allocates and frees.
 *
 * Arguments: number of threads, and of steps. The threads run before recording starts. At the first line from the harness
 * they work, and wait at a barrier. Prints the counters of each thread: its ID, then bytes and blocks that it has allocated
 * and freed. At the second line the threads exit. */
#define _GNU_SOURCE
#include "ledger.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_THREADS 600
#define BOXES 256
#define STACK_SIZE (64 * 1024)

struct counts {
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
};

static size_t threads, steps;
static pthread_barrier_t ready, begin, worked, leave;
static struct counts counts[MOST_THREADS];
static int tids[MOST_THREADS];
/* Blocks that any thread takes. */
static void *boxes[BOXES];
static char text[MOST_THREADS * 100];
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;

static void *swap(void **place, void *block) { return __atomic_exchange_n(place, block, __ATOMIC_ACQ_REL); }

static void add_allocated(struct counts *own, void *block) {
    own->alloc_bytes += malloc_usable_size(block);
    own->alloc_count++;
}

static void release(struct counts *own, void *block) {
    if (block) {
        own->free_bytes += malloc_usable_size(block);
        own->free_count++;
    }
    free(block);
}

static void *resize(struct counts *own, void *block, size_t size) {
    size_t old = malloc_usable_size(block);
    void *resized = realloc(block, size);
    if (!resized)
        return block;
    if (block) {
        own->free_bytes += old;
        own->free_count++;
    }
    add_allocated(own, resized);
    return resized;
}

static void *allocate(struct counts *own, uint32_t kind, size_t size) {
    void *block = NULL;
    switch (kind % 8) {
    case 0:
        block = calloc(size, 2);
        break;
    case 1:
        block = memalign(64, size);
        break;
    case 2: /* It calls malloc itself, since the alignment is that of malloc. */
        block = memalign(8, size);
        break;
    case 3:
        if (posix_memalign(&block, 256, size) != 0)
            block = NULL;
        break;
    case 4:
        block = aligned_alloc(32, size);
        break;
    case 5:
        block = reallocarray(NULL, 2, size);
        break;
    case 6: /* An overflow: it fails. */
        if (calloc(too_large, 4) || posix_memalign(&block, 64, too_large) == 0)
            abort();
        block = malloc(size);
        break;
    default:
        block = malloc(size);
    }
    add_allocated(own, block);
    return block;
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    struct counts *own = &counts[self];
    uint32_t random = 2463534242u + 7919u * (uint32_t)self;
    char name[16];
    snprintf(name, sizeof name, "usage-%zu", self);
    pthread_setname_np(pthread_self(), name);
    tids[self] = gettid();
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&begin);
    for (size_t i = 0; i < steps; i++) {
        random = random * 1664525 + 1013904223;
        size_t size = (random >> 8) % (random % 100 == 0 ? 300000 : 2000);
        void *block = swap(&boxes[random >> 16 & (BOXES - 1)], NULL);
        if (block && random >> 5 & 1) {
            release(own, block);
            continue;
        }
        if (block && random >> 6 & 1 && realloc(block, too_large) != NULL)
            abort();
        block = block ? resize(own, block, size + 1) : allocate(own, random >> 20, size);
        release(own, swap(&boxes[random >> 24 & (BOXES - 1)], block));
    }
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&leave);
    return NULL;
}

static void print_counts(void) {
    int length = snprintf(text, sizeof text, "[");
    for (size_t i = 0; i < threads; i++) {
        struct counts *own = &counts[i];
        length += snprintf(text + length, sizeof text - (size_t)length, "%s[%d,%lu,%lu,%lu,%lu]", i ? "," : "", tids[i],
                           own->alloc_bytes, own->alloc_count, own->free_bytes, own->free_count);
    }
    snprintf(text + length, sizeof text - (size_t)length, "]\n");
    print_text(text);
}

int main(int count, char **arguments) {
    if (count != 3 || (threads = strtoul(arguments[1], NULL, 10)) > MOST_THREADS)
        return 2;
    steps = strtoul(arguments[2], NULL, 10);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_SIZE);
    pthread_barrier_t *barriers[] = {&ready, &begin, &worked, &leave};
    for (size_t i = 0; i < 4; i++)
        pthread_barrier_init(barriers[i], NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, run, (void *)i) != 0)
            abort();
        pthread_detach(thread);
    }
    pthread_barrier_wait(&ready);
    ledger_start();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&worked);
    print_counts();
    if (!wait_for_harness())
        return 0;
    pthread_barrier_wait(&leave);
    wait_for_harness();
    return 0;
}
