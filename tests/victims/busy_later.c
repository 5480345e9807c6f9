/* Is idle until the harness sends a line. Then allocates blocks, and a thread allocates and frees as fast as possible
 * until it has allocated MORE blocks after the next line. Frees all blocks at the end. The totals are computed
 * afterwards, since recording each call would slow the thread down. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BEFORE 1000
#define WINDOW 16
#define SIZE 48
#define MORE 1000

static pthread_barrier_t start, done;
static atomic_int stopped;
static atomic_size_t pairs;

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
    for (size_t i = 0; !atomic_load_explicit(&stopped, memory_order_relaxed); i++) {
        free(window[i % WINDOW]);
        window[i % WINDOW] = allocate();
        atomic_store_explicit(&pairs, i + 1, memory_order_relaxed);
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
    /* The thread may have no processor while the line arrives. */
    size_t seen = atomic_load(&pairs);
    while (atomic_load(&pairs) < seen + MORE)
        sched_yield();
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
