/* `hostile FILE...` maps malformed ELF files as executable code. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        int file = open(arguments[i], O_RDONLY);
        if (file < 0 || mmap(NULL, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
            return 2;
        close(file);
    }
    ledger_start();
    for (size_t i = 1; i <= 20; i++)
        ledger_alloc(NULL, malloc(i), i);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
