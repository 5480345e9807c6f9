/* Forked children allocate and free in their copies of the heap. None of that may count for the parent. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *blocks[200];

static void take(size_t at, size_t size) {
    blocks[at] = malloc(size);
    ledger_alloc(NULL, blocks[at], size);
}

static void give_back(size_t at) {
    ledger_free(blocks[at]);
    free(blocks[at]);
    blocks[at] = NULL;
}

static void child(void) {
    /* The same addresses as in the parent, in the child's copy of the heap. */
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    for (size_t i = 0; i < 300; i++)
        if (!malloc(i * 10))
            _exit(1);
    free(realloc(malloc(10), 100000));
    _exit(42);
}

int main(void) {
    ledger_start();
    for (size_t i = 0; i < 100; i++)
        take(i, 100 + i);
    for (int round = 0; round < 3; round++) {
        pid_t pid = fork();
        if (pid == 0)
            child();
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
            abort();
        for (size_t i = 0; i < 10; i++)
            give_back((size_t)round * 10 + i);
        for (size_t i = 0; i < 20; i++)
            take(100 + (size_t)round * 20 + i, 1000 + i);
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
