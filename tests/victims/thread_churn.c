/* `thread_churn THREADS`: starts threads one after the other, which allocate and exit. Counts the usable sizes of the blocks
 * that they have allocated and freed. Prints the ID of the first thread and the counters, and waits. */
#define _GNU_SOURCE
#include "ledger.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
static void *kept;

static void add(uint64_t *counter, uint64_t amount) { __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED); }

static void *run(void *argument) {
    size_t size = 16 + (size_t)argument % 3000;
    for (int i = 0; i < 20; i++) {
        void *block = malloc(size + (size_t)i);
        add(&alloc_bytes, malloc_usable_size(block));
        add(&alloc_count, 1);
        /* A block of an earlier thread. */
        void *freed = __atomic_exchange_n(&kept, block, __ATOMIC_ACQ_REL);
        if (freed) {
            add(&free_bytes, malloc_usable_size(freed));
            add(&free_count, 1);
            free(freed);
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    size_t threads = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    ledger_start();
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)i) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    static char text[200];
    snprintf(text, sizeof text, "[%d,%lu,%lu,%lu,%lu]\n", getpid(), alloc_bytes, alloc_count, free_bytes, free_count);
    print_text(text);
    wait_for_harness();
    return 0;
}
