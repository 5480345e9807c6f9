/* `plugins LIBRARY LIBRARY [unload]` loads two libraries with dlopen and calls each after the harness has released it.
 * With `unload`, the first is closed before the second is loaded, which then usually gets the same address. */
#define _GNU_SOURCE
#include "ledger.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define NOIPA __attribute__((noipa))

NOIPA static void use(void *(*take)(size_t), size_t size) {
    for (int i = 0; i < 50; i++)
        free(take(size));
}

NOIPA static void *with(const char *path, size_t size, int keep) {
    void *library = dlopen(path, RTLD_NOW);
    void *(*take)(size_t) = library ? (void *(*)(size_t))dlsym(library, "take") : NULL;
    if (!take)
        abort();
    /* The first call lets memtrace notice the library. */
    free(take(1));
    print_text("loaded\n");
    if (!wait_for_harness())
        abort();
    use(take, size);
    if (!keep)
        dlclose(library);
    return (void *)take;
}

int main(int argc, char **argv) {
    ledger_start();
    void *first = with(argv[1], 1001, argc == 3);
    void *second = with(argv[2], 2002, 1);
    char extra[64];
    sprintf(extra, "\"distance\":%ld,", labs((long)((char *)first - (char *)second)));
    ledger_print(extra);
    return wait_for_harness() ? 0 : 1;
}
