/* Calls of code that calls back, where the callback allocates. */
#ifndef CALL_BACK_H
#define CALL_BACK_H

#include "ledger.h"

#include <stddef.h>
#include <stdlib.h>

#define NOIPA __attribute__((noipa))

/* Calls the function that it is passed. */
typedef void caller(void (*)(void));

/* Size of the block that is allocated. */
static size_t size;

NOIPA static void allocate(void) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
}

NOIPA static void called_back(void) {
    allocate();
    __asm__ volatile("");
}

NOIPA static void through(caller *code) {
    code(called_back);
    __asm__ volatile("");
}

#endif
