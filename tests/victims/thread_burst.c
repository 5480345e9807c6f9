/* Many short-lived threads. It keeps no ledger, since it cannot see the C library's allocations for threads; count_shim
 * records these. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdlib.h>

static void *run(void *argument) {
    size_t size = 100 + (size_t)argument;
    void *kept = malloc(size);
    void *freed = calloc(size, 2);
    free(realloc(freed, size * 5));
    return kept;
}

int main(void) {
    for (size_t round = 0; round < 40; round++) {
        pthread_t threads[5];
        void *kept[5];
        for (size_t i = 0; i < 5; i++)
            if (pthread_create(&threads[i], NULL, run, (void *)(round * 5 + i)) != 0)
                abort();
        for (size_t i = 0; i < 5; i++)
            pthread_join(threads[i], &kept[i]);
        for (size_t i = 0; i < round % 5; i++)
            free(kept[i]);
    }
    return 0;
}
