/* `flood PAIRS`: threads that allocate and free as fast as possible. The totals are computed afterwards, since
 * recording each call would slow the threads down. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 4
#define WINDOW 16
#define SIZE 48

static pthread_barrier_t start, done;
static size_t pairs;

static void *run(void *argument) {
    void *window[WINDOW] = {NULL};
    (void)argument;
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < pairs; i++) {
        free(window[i % WINDOW]);
        window[i % WINDOW] = malloc(SIZE);
        if (!window[i % WINDOW])
            abort();
    }
    pthread_barrier_wait(&done);
    /* Thread exit would free the tcache; wait until the trace has ended. */
    pthread_barrier_wait(&start);
    return NULL;
}

int main(int count, char **arguments) {
    pairs = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    if (pairs < WINDOW)
        return 2;
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&done, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            abort();
    ledger_start();
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&done);
    ledger->alloc_count = THREADS * pairs;
    ledger->free_count = THREADS * (pairs - WINDOW);
    ledger->alloc_bytes = ledger->alloc_count * SIZE;
    ledger->free_bytes = ledger->free_count * SIZE;
    ledger_print("");
    int released = wait_for_harness();
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return released ? 0 : 1;
}
