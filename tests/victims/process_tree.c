/* A process and three forked children, one of which calls exec. Each prints its own totals. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *blocks[400];

static void take(size_t at, size_t size) {
    blocks[at] = malloc(size);
    ledger_alloc(NULL, blocks[at], size);
}

static void give_back(size_t at) {
    ledger_free(blocks[at]);
    free(blocks[at]);
    blocks[at] = NULL;
}

static void print(void) {
    char pid[32];
    snprintf(pid, sizeof pid, "\"pid\":%d,", (int)getpid());
    ledger_print(pid);
}

/* Allocates `count` blocks and frees every third. */
static void work(size_t first, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++)
        take(first + i, size + i);
    for (size_t i = 0; i < count; i += 3)
        give_back(first + i);
}

static void child(size_t number, char *program) {
    /* The ledger of the child starts empty: inherited blocks are not its own. */
    memset(ledger, 0, sizeof *ledger);
    ledger->max_size = SIZE_MAX;
    ledger->counting = 1;
    for (size_t i = 1; i < 20; i += 3)
        give_back(i);
    work(100, 40 + number, 1000 * (number + 1));
    print();
    if (number == 1)
        execl(program, program, "second", (char *)NULL);
    _exit(0);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "second") == 0) {
        ledger->counting = 1;
        work(0, 30, 500);
        print();
        return 0;
    }
    ledger_start();
    work(0, 60, 100);
    for (size_t number = 0; number < 3; number++) {
        pid_t pid = fork();
        if (pid == 0)
            child(number, arguments[0]);
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            abort();
        work(200 + number * 20, 20, 5000);
    }
    print();
    return wait_for_harness() ? 0 : 1;
}
