/* Threads that free blocks, which the C library keeps in a cache for each thread and frees again when the thread exits.
 *
 * Half of the threads have a block in their cache from before recording starts. The first call of the others is a free.
 * `repeated_frees` is the number of frees that glibc repeats. Up to 2.41, an exiting thread frees each cached block and
 * the cache itself (malloc/malloc.c, `tcache_thread_shutdown`). Since 2.42, the first free of a thread creates the cache
 * if no other call did, and starts again (`tcache_free_init`). */
#define _GNU_SOURCE
#include "ledger.h"

#include <gnu/libc-version.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#ifdef ANY_GLIBC
/* The versions that all supported C libraries have. */
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.2.5");
__asm__(".symver pthread_attr_init, pthread_attr_init@GLIBC_2.2.5");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5");
#endif

#define THREADS 6
/* The cache takes 7 blocks of each size. */
#define SIZES 60
#define OF_SIZE 7

static int waiting, released, finished;
static void *early[THREADS];

static void give_back(void *block) {
    ledger_free(block);
    free(block);
}

static void wait_for(int *counter, int value) {
    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < value)
        sched_yield();
}

static void *run(void *argument) {
    static __thread void *blocks[SIZES * OF_SIZE];
    size_t self = (size_t)argument;
    if (self % 2 == 0)
        free(malloc(1024));
    __atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL);
    wait_for(&released, 1);
    give_back(early[self]);
    for (size_t i = 0; i < SIZES * OF_SIZE; i++) {
        size_t size = 24 + 16 * (i % SIZES);
        blocks[i] = malloc(size);
        ledger_alloc(NULL, blocks[i], size);
    }
    for (size_t i = 0; i < SIZES * OF_SIZE; i++)
        give_back(blocks[i]);
    /* No thread exits while another one allocates: it might get several blocks at once, into its cache. */
    __atomic_add_fetch(&finished, 1, __ATOMIC_ACQ_REL);
    wait_for(&finished, THREADS);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    for (size_t i = 0; i < THREADS; i++)
        early[i] = malloc(5000 + i);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, run, (void *)i) != 0)
            abort();
    wait_for(&waiting, THREADS);
    ledger_start();
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    _Static_assert(THREADS == 6 && SIZES * OF_SIZE == 420, "6 caches, 6 * 420 blocks and 3 from before; 3 first calls");
    int repeats_at_exit = atoi(gnu_get_libc_version() + strlen("2.")) <= 41;
    ledger_print(repeats_at_exit ? "\"repeated_frees\":2529," : "\"repeated_frees\":3,");
    return wait_for_harness() ? 0 : 1;
}
