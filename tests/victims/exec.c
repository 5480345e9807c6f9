/* Allocates, then calls exec: the first heap disappears with the old address space. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void *before_exec(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

__attribute__((noinline)) static void *after_exec(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

static void drop(void *block) {
    ledger_free(block);
    free(block);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "second") == 0) {
        ledger->counting = 1;
        for (size_t i = 0; i < 30; i++)
            after_exec(500 + i);
        drop(after_exec(9000));
        ledger_print("");
        return wait_for_harness() ? 0 : 1;
    }
    void *early = malloc(64);
    ledger_start();
    for (size_t i = 0; i < 50; i++)
        before_exec(1000 + i);
    drop(before_exec(7000));
    drop(early);
    ledger_print("");
    execl("/proc/self/exe", arguments[0], "second", (char *)NULL);
    return 2;
}
