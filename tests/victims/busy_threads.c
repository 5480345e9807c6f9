/* `busy_threads THREADS`: threads that compute and allocate until the harness sends a line. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdlib.h>

static volatile int stops;

static void *run(void *argument) {
    while (!stops) {
        for (volatile int i = 0; i < 10000; i++)
            ;
        free(malloc(100));
    }
    return argument;
}

int main(int count, char **arguments) {
    size_t threads = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    print_ready();
    if (!wait_for_harness())
        return 1;
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, run, NULL) != 0)
            abort();
        pthread_detach(thread);
    }
    wait_for_harness();
    return 0;
}
