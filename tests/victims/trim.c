/* Leaves free pages in the heaps of two arenas, and returns them with malloc_trim after the first barrier. */
#define _GNU_SOURCE
#include "ledger.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define BLOCKS 200
#define SIZE (64 << 10)

static pthread_barrier_t arrived, leave;

/* Frees every second block, so that the others keep the free ones apart. */
static void leave_holes(void) {
    static _Thread_local char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(SIZE);
        if (!blocks[i])
            abort();
        memset(blocks[i], 1, SIZE);
    }
    for (size_t i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
}

static void *in_other_arena(void *unused) {
    leave_holes();
    pthread_barrier_wait(&arrived);
    pthread_barrier_wait(&leave);
    return unused;
}

int main(void) {
    pthread_t thread;
    /* A huge page would make free pages resident again. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    leave_holes();
    pthread_barrier_init(&arrived, NULL, 2);
    pthread_barrier_init(&leave, NULL, 2);
    if (pthread_create(&thread, NULL, in_other_arena, NULL))
        return 2;
    pthread_barrier_wait(&arrived);
    print_ready();
    if (!wait_for_harness())
        return 1;
    malloc_trim(0);
    print_text("trimmed\n");
    int is_released = wait_for_harness();
    pthread_barrier_wait(&leave);
    pthread_join(thread, NULL);
    return is_released ? 0 : 1;
}
