/* Calls back through a library without call frame information. */
#include "call_back.h"

/* A function of the library. */
caller twice;

int main(void) {
    ledger_start();
    for (size = 1000; size < 1030; size++)
        through(twice);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
