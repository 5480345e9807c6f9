/* A thread that is not the leader calls exec in a traced function. The process goes on with the leader's ID (`de_thread`,
 * fs/exec.c). The new image prints the former ID of the thread. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *name;

__attribute__((noipa)) static int replace(const char *tid) {
    return execl("/proc/self/exe", name, tid, (char *)NULL);
}

static void *run(void *unused) {
    char tid[16];
    (void)unused;
    snprintf(tid, sizeof tid, "%d", gettid());
    replace(tid);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count > 1) {
        print_text(arguments[1]);
        print_text("\n");
        return wait_for_harness() ? 0 : 1;
    }
    name = arguments[0];
    print_ready();
    if (!wait_for_harness() || pthread_create(&thread, NULL, run, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 2;
}
