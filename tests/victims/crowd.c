/* `crowd COUNT BATCH` forks COUNT children. Each allocates 100, 200, 300 and 400 bytes, frees the 100 and exits. With a
 * BATCH, that many run at a time, and all are forked after the barrier. With 0, all are forked before it, and wait until it
 * is passed. Prints the totals of all children when they have exited. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static __attribute__((noinline)) void *keep(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void child(void) {
    void *first = keep(100);
    for (size_t i = 2; i <= 4; i++)
        keep(i * 100);
    free(first);
    _exit(0);
}

static void reap(long count) {
    for (long i = 0; i < count; i++) {
        int status = 0;
        if (wait(&status) < 0 || status != 0)
            abort();
    }
}

/* Forks children that run when the other end of `barrier` is closed, or at once. */
static void start(long count, const int *barrier) {
    for (long i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0)
            abort();
        if (pid > 0)
            continue;
        char byte;
        if (barrier) {
            close(barrier[1]);
            if (read(barrier[0], &byte, 1) != 0)
                abort();
        }
        child();
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    long count = atol(argv[1]), batch = atol(argv[2]);
    int barrier[2];
    if (pipe(barrier))
        abort();
    if (batch == 0)
        start(count, barrier);
    ledger_start();
    close(barrier[1]);
    for (long done = 0; batch > 0 && done < count; done += batch) {
        start(batch, NULL);
        reap(batch);
    }
    if (batch == 0)
        reap(count);
    /* The children cannot share this ledger. */
    uint64_t all = (uint64_t)count;
    ledger->alloc_bytes = all * 1000;
    ledger->alloc_count = all * 4;
    ledger->free_bytes = all * 100;
    ledger->free_count = all;
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
