/* `changes USER` changes its user or its name between phases of work, each on a command of one letter. Only blocks that
 * should be recorded are in its ledger, which it prints after each command. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static uid_t user;

static void *early[40], *counted[60], *late[30];

static void expect(int condition) {
    if (!condition)
        abort();
}

static void give_back(void **block) {
    ledger_free(*block);
    free(*block);
    *block = NULL;
}

/* Before it is selected: nothing is recorded. */
static void work_before(void) {
    for (size_t i = 0; i < 40; i++)
        early[i] = malloc(100 + i);
    for (size_t i = 0; i < 40; i += 4)
        free(early[i]);
}

/* While it is selected: the frees of early blocks are unmatched. */
static void work_selected(void) {
    for (size_t i = 0; i < 60; i++) {
        counted[i] = malloc(1000 + i);
        ledger_alloc(NULL, counted[i], 1000 + i);
    }
    for (size_t i = 0; i < 60; i += 3)
        give_back(&counted[i]);
    for (size_t i = 1; i < 40; i += 4)
        if (early[i])
            give_back(&early[i]);
}

/* After it was selected: allocations are not recorded, but frees are. */
static void work_after(void) {
    for (size_t i = 0; i < 30; i++)
        late[i] = malloc(3000 + i);
    for (size_t i = 0; i < 30; i += 5)
        give_back(&late[i]);
    for (size_t i = 1; i < 40; i += 3)
        give_back(&counted[i]);
    /* A failed realloc keeps the block; one that succeeds frees it. */
    volatile size_t too_large = (size_t)PTRDIFF_MAX + 4096;
    expect(realloc(counted[50], too_large) == NULL);
    ledger_free(counted[53]);
    counted[53] = realloc(counted[53], 9000);
    expect(counted[53] != NULL);
}

static void print(void) {
    char pid[32];
    snprintf(pid, sizeof pid, "\"pid\":%d,", (int)getpid());
    ledger_print(pid);
}

/* A worker that drops its privileges, works and exits. */
static void work_in_child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        work_before();
        expect(setresuid(user, user, user) == 0);
        work_selected();
        print();
        _exit(0);
    }
    int status = 0;
    expect(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int count, char **arguments) {
    expect(count == 2);
    user = (uid_t)atoi(arguments[1]);
    ledger->counting = 1;
    print_ready();
    for (char command; read(STDIN_FILENO, &command, 1) == 1;) {
        switch (command) {
        case 'b':
            work_before();
            break;
        case 's':
            work_selected();
            break;
        case 'a':
            work_after();
            break;
        case 'f':
            work_in_child();
            continue;
        case 'u':
            expect(setresuid(user, user, user) == 0);
            break;
        case 'n':
            expect(prctl(PR_SET_NAME, "mt-new-name") == 0);
            break;
        case 'o':
            expect(prctl(PR_SET_NAME, "mt-old-name") == 0);
            break;
        default:
            continue;
        }
        print();
    }
    return 0;
}
