/* `steady BYTES...` does one step of work per line from the harness and prints its totals after each.
 * A step allocates ten blocks of the next size and frees one of them. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void work(size_t size) {
    for (int i = 0; i < 10; i++) {
        unsigned char *block = malloc(size);
        ledger_alloc(NULL, block, size);
        memset(block, i, size);
        if (i == 9) {
            ledger_free(block);
            free(block);
        }
    }
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    ledger_start();
    for (int turn = 1;; turn = turn + 1 < count ? turn + 1 : 1) {
        work(strtoul(arguments[turn], NULL, 10));
        ledger_print("");
        if (!wait_for_harness())
            return 0;
    }
}
