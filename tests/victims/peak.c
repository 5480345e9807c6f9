/* Live bytes rise to a known peak, fall, and rise again to a lower level. */
#include "ledger.h"

#include <stdlib.h>

static struct site at_peak = {.name = "held_at_the_peak"}, afterwards = {.name = "held_afterwards"};
static void *blocks[100];

__attribute__((noinline)) static void *held_at_the_peak(size_t size) {
    void *block = malloc(size); at_peak.line = __LINE__;
    ledger_alloc(&at_peak, block, size);
    return block;
}

__attribute__((noinline)) static void *held_afterwards(size_t size) {
    void *block = malloc(size); afterwards.line = __LINE__;
    ledger_alloc(&afterwards, block, size);
    return block;
}

int main(void) {
    ledger_start();
    for (size_t i = 0; i < 100; i++)
        blocks[i] = held_at_the_peak(10000);
    for (size_t i = 0; i < 90; i++) {
        ledger_free(blocks[i]);
        free(blocks[i]);
    }
    for (size_t i = 0; i < 50; i++)
        held_afterwards(3000);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
