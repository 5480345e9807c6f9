/* Eight threads pinned to one CPU. Each recurses through its own functions, so that a stack mixed from two threads
 * shows. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define NOIPA __attribute__((noipa))
#define ROUNDS 3000

static pthread_barrier_t start;

#define CHAIN(name)                                                                                                    \
    NOIPA static void *leaf_##name(size_t size) {                                                                      \
        void *block = malloc(size);                                                                                    \
        ledger_alloc(NULL, block, size);                                                                               \
        return block;                                                                                                  \
    }                                                                                                                  \
    NOIPA static void *chain_##name(int depth) {                                                                       \
        volatile char room[16 * sizeof(#name)];                                                                        \
        room[0] = (char)depth;                                                                                         \
        void *block = depth == 0 ? leaf_##name(64) : chain_##name(depth - 1);                                          \
        return room[0] == (char)depth ? block : NULL;                                                                  \
    }                                                                                                                  \
    NOIPA static void *run_##name(void *depth) {                                                                       \
        pthread_barrier_wait(&start);                                                                                  \
        for (int i = 0; i < ROUNDS; i++) {                                                                             \
            void *block = chain_##name((int)(intptr_t)depth);                                                          \
            ledger_free(block);                                                                                        \
            free(block);                                                                                               \
        }                                                                                                              \
        return NULL;                                                                                                   \
    }

CHAIN(a)
CHAIN(bb)
CHAIN(ccc)
CHAIN(dddd)
CHAIN(eeeee)
CHAIN(ffffff)
CHAIN(ggggggg)
CHAIN(hhhhhhhh)

static void *(*const runs[])(void *) = {run_a, run_bb, run_ccc, run_dddd, run_eeeee, run_ffffff, run_ggggggg, run_hhhhhhhh};

#define THREADS (sizeof runs / sizeof *runs)

int main(void) {
    pthread_t threads[THREADS];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        abort();
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, runs[i], (void *)(i * 7)) != 0)
            abort();
    ledger_start();
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
