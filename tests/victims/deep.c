/* `deep DEPTH` recurses without frame pointers through frames of several sizes. The innermost call allocates a block
 * and takes the stack with glibc's backtrace. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include "places.h"

#include <execinfo.h>

#define MOST 300
static void *callers[MOST];
static int count;
#endif

#define NOIPA __attribute__((noipa))

static char extra[1 << 15];

NOIPA static void *allocate(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
#ifdef __GLIBC__
    count = backtrace(callers, MOST);
#endif
    return block;
}

NOIPA static void *narrow(unsigned depth);

/* The buffer is read back, so that the compiler cannot remove the frame. */
NOIPA static void *wide(unsigned depth) {
    volatile char room[200];
    room[depth % sizeof room] = (char)depth;
    void *block = depth == 0 ? allocate(100) : narrow(depth - 1);
    return room[depth % sizeof room] == (char)depth ? block : NULL;
}

NOIPA static void *narrow(unsigned depth) {
    void *block = depth == 0 ? allocate(100) : wide(depth - 1);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void describe(void) {
#ifdef __GLIBC__
    uintptr_t calls[MOST];
    struct place places[MOST];
    for (int i = 0; i < count; i++)
        calls[i] = (uintptr_t)callers[i] - 1;
    find_places(calls, (size_t)count, places);
    char *at = extra + sprintf(extra, "\"callers\":[");
    for (int i = 0; i < count; i++) {
        const char *object = places[i].object ? places[i].object : "?";
        at += sprintf(at, "%s[\"%s\",%lu]", i ? "," : "", object, (unsigned long)places[i].offset);
    }
    sprintf(at, "],");
#endif
}

int main(int argc, char **argv) {
    unsigned depth = argc > 1 ? (unsigned)atoi(argv[1]) : 20;
#ifdef __GLIBC__
    /* The first call loads libgcc, which allocates. */
    backtrace(callers, MOST);
#endif
    ledger_start();
    void *block = wide(depth);
    describe();
    ledger_print(extra);
    return wait_for_harness() && block ? 0 : 1;
}
