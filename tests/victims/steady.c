/* Works a little whenever it is told to, and says after each time what it has done so far.
 * `steady BYTES...` allocates blocks of these sizes in turn, one size a time, ten blocks each; it frees one of them. */
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
