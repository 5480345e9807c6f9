/* Leaves deep frames and a signal handler by siglongjmp, and allocates before and after. */
#define _GNU_SOURCE
#include "ledger.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

#define NOIPA __attribute__((noipa))
#define ROUNDS 300

static sigjmp_buf landing;

NOIPA static void allocate(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    if (size % 2 == 0) {
        ledger_free(block);
        free(block);
    }
}

NOIPA static void leave(void) {
    allocate(101);
    siglongjmp(landing, 1);
}

NOIPA static void leave_handler(int number) {
    allocate(200 + (size_t)number);
    siglongjmp(landing, 1);
}

NOIPA static int descend(int depth, void (*last)(void)) {
    volatile char room[64];
    room[depth] = (char)depth;
    if (depth == 0)
        last();
    else
        descend(depth - 1, last);
    return room[depth];
}

NOIPA static void raise_here(void) { raise(SIGUSR1); }

NOIPA static void jump(int depth, void (*last)(void)) {
    if (sigsetjmp(landing, 1) == 0)
        descend(depth, last);
    allocate(301);
}

int main(void) {
    struct sigaction action = {.sa_handler = leave_handler};
    if (sigaction(SIGUSR1, &action, NULL) != 0)
        abort();
    ledger_start();
    for (int i = 0; i < ROUNDS; i++) {
        jump(i % 3 == 0 ? 40 : 5, leave);
        jump(10, raise_here);
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
