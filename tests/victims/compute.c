/* `compute ROUNDS`: computes without allocating, after a line from the harness. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdint.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    uint64_t rounds = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    ledger_start();
    uint64_t state = 1;
    for (uint64_t i = 0; i < rounds; i++) {
        /* The compiler must not compute the result in advance. */
        __asm__ volatile("" : "+r"(state));
        state = state * 6364136223846793005u + 1442695040888963407u;
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
