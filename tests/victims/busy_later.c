/* Is idle until the harness sends a line. Then allocates blocks, and a thread allocates and frees as fast as possible
 * until the next line. Frees all blocks at the end. The totals are computed afterwards, since recording each call would
 * slow the thread down. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BEFORE 1000
#define WINDOW 16
#define SIZE 48

static pthread_barrier_t start, done;
static atomic_int stopped;
static size_t pairs;

static void *allocate(void) {
    void *block = malloc(SIZE);
    if (!block)
        abort();
    return block;
}

static void *run(void *argument) {
    void *window[WINDOW] = {NULL};
    (void)argument;
    pthread_barrier_wait(&start);
    for (; !atomic_load_explicit(&stopped, memory_order_relaxed); pairs++) {
        free(window[pairs % WINDOW]);
        window[pairs % WINDOW] = allocate();
    }
    for (size_t i = 0; i < WINDOW; i++)
        free(window[i]);
    pthread_barrier_wait(&done);
    /* Thread exit would free the tcache; wait until the trace has ended. */
    pthread_barrier_wait(&start);
    return NULL;
}

int main(void) {
    static void *before[BEFORE];
    pthread_t thread;
    pthread_barrier_init(&start, NULL, 2);
    pthread_barrier_init(&done, NULL, 2);
    if (pthread_create(&thread, NULL, run, NULL) != 0)
        abort();
    ledger_start();
    for (size_t i = 0; i < BEFORE; i++)
        before[i] = allocate();
    pthread_barrier_wait(&start);
    int released = wait_for_harness();
    atomic_store(&stopped, 1);
    pthread_barrier_wait(&done);
    for (size_t i = 0; i < BEFORE; i++)
        free(before[i]);
    ledger->alloc_count = ledger->free_count = pairs + BEFORE;
    ledger->alloc_bytes = ledger->free_bytes = ledger->alloc_count * SIZE;
    ledger_print("");
    released &= wait_for_harness();
    pthread_barrier_wait(&start);
    pthread_join(thread, NULL);
    return released ? 0 : 1;
}
