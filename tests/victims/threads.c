/* Eight threads in a ring: each allocates, and frees blocks of its neighbour. Then the threads exit.
 *
 * They are created before recording starts, with stacks small enough for the C library's stack cache, since creating a
 * thread and freeing its stack call the allocator. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 8
#define BLOCKS 1500
#define DEPTH 64

static pthread_barrier_t start;
/* Mailboxes: thread i puts blocks into box i, and thread i + 1 takes them out. */
static void *boxes[THREADS][DEPTH];
static void *early[THREADS];

static void *swap(void **place, void *block) { return __atomic_exchange_n(place, block, __ATOMIC_ACQ_REL); }

__attribute__((noinline)) static void give_back(void *block) {
    ledger_free(block);
    free(block);
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    size_t neighbour = (self + THREADS - 1) % THREADS;
    pthread_barrier_wait(&start);
    give_back(early[neighbour]);
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 16 + (self * 131 + i * 17) % 3000;
        void *block = malloc(size);
        ledger_alloc(NULL, block, size);
        give_back(swap(&boxes[self][i % DEPTH], block));
        give_back(swap(&boxes[neighbour][(i * 7) % DEPTH], NULL));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        early[i] = malloc(100 + i);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, run, (void *)i) != 0)
            abort();
    ledger_start();
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
