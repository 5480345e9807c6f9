/* Threads that end one after the other, each with a block that it leaves allocated: one with the name of the process,
 * one that names itself, one that it starts, and one that its creator names. Prints their ids and names. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct task {
    const char *name;         /* the name that the thread sets, or NULL */
    const char *creator_name; /* the name that its creator sets, or NULL */
    const char *expected;
    size_t size;
    struct task *starts;
    int tid;
    sem_t named;
};

static void *run(void *argument) {
    struct task *task = argument;
    task->tid = gettid();
    if (task->name)
        prctl(PR_SET_NAME, task->name);
    if (task->creator_name)
        sem_wait(&task->named);
    void *block = malloc(task->size);
    ledger_alloc(NULL, block, task->size);
    if (task->starts) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, task->starts) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    return NULL;
}

int main(void) {
    struct task child = {.expected = "namer", .size = 3000};
    struct task tasks[] = {
        {.expected = "named_threads", .size = 1000},
        {.name = "namer", .expected = "namer", .size = 2000, .starts = &child},
        {.creator_name = "by creator", .expected = "by creator", .size = 4000},
    };
    ledger_start();
    for (size_t i = 0; i < 3; i++) {
        pthread_t thread;
        sem_init(&tasks[i].named, 0, 0);
        if (pthread_create(&thread, NULL, run, &tasks[i]) != 0)
            abort();
        if (tasks[i].creator_name) {
            pthread_setname_np(thread, tasks[i].creator_name);
            sem_post(&tasks[i].named);
        }
        pthread_join(thread, NULL);
    }
    const struct task *all[] = {&tasks[0], &tasks[1], &child, &tasks[2]};
    char line[400];
    int length = 0;
    for (size_t i = 0; i < 4; i++)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s[\"%s (%d)\",%zu]", i ? "," : "[",
                           all[i]->expected, all[i]->tid, all[i]->size);
    snprintf(line + length, sizeof line - (size_t)length, "]\n");
    print_text(line);
    return wait_for_harness() ? 0 : 1;
}
