/* Threads that start and exit, some at a time. Prints for each its TID, its name, and four times: before its start, in it first
 * and last, and after its exit, as one line of JSON. */
#define _GNU_SOURCE
#include "spans.h"

#include <pthread.h>
#include <sched.h>

enum { BATCHES = 40, AT_A_TIME = 5 };

struct life {
    int tid;
    char name[16];
    uint64_t at[4];
};

static struct life lives[BATCHES * AT_A_TIME];

static void *run(void *argument) {
    struct life *life = argument;
    life->at[1] = now();
    life->tid = gettid();
    snprintf(life->name, sizeof life->name, "life-%d", (int)(life - lives));
    pthread_setname_np(pthread_self(), life->name);
    memtrace_event_number("life", life - lives);
    life->at[2] = now();
    return NULL;
}

/* A thread is joined before the kernel has ended it. */
static void wait_for_exit(int tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", tid);
    while (access(path, F_OK) == 0)
        sched_yield();
}

int main(void) {
    pthread_t threads[AT_A_TIME];
    char text[256];
    ledger_start();
    for (struct life *life = lives; life < lives + BATCHES * AT_A_TIME; life += AT_A_TIME) {
        for (int i = 0; i < AT_A_TIME; i++) {
            life[i].at[0] = now();
            if (pthread_create(&threads[i], NULL, run, &life[i]) != 0)
                return 3;
        }
        for (int i = 0; i < AT_A_TIME; i++) {
            pthread_join(threads[i], NULL);
            wait_for_exit(life[i].tid);
            life[i].at[3] = now();
        }
    }
    for (int i = 0; i < BATCHES * AT_A_TIME; i++) {
        size_t used = (size_t)snprintf(text, sizeof text, "%s[%d,\"%s\"", i ? "," : "[", lives[i].tid, lives[i].name);
        print_four(text, &used, sizeof text, lives[i].at);
        snprintf(text + used, sizeof text - used, "]");
        print_text(text);
    }
    print_text("]\n");
    return wait_for_harness() ? 0 : 1;
}
