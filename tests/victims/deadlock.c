/* Two threads, each of which holds one mutex and waits for that of the other one.
 *
 * Prints both threads, with the address of the futex for which each waits, as one line of JSON. */
#define _GNU_SOURCE
#include "ledger.h"
#include "system_call.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t both_held;
static int tids[2];

static void *run(void *argument) {
    int self = (int)(size_t)argument;
    tids[self] = (int)syscall(SYS_gettid);
    pthread_mutex_lock(&mutexes[self]);
    pthread_barrier_wait(&both_held);
    pthread_mutex_lock(&mutexes[1 - self]);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&both_held, NULL, 2);
    for (size_t index = 0; index < 2; index++)
        pthread_create(&threads[index], NULL, run, (void *)index);
    for (int index = 0; index < 2; index++)
        while (tids[index] == 0 || !is_in_call(tids[index], &mutexes[1 - index]))
            usleep(100);
    char text[128];
    ledger_start();
    snprintf(text, sizeof text, "[{\"tid\": %d, \"futex\": \"%p\"}, {\"tid\": %d, \"futex\": \"%p\"}]\n", tids[0],
             (void *)&mutexes[1], tids[1], (void *)&mutexes[0]);
    print_text(text);
    exit(wait_for_harness() ? 0 : 1);
}
