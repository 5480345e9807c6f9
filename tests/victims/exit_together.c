/* 150 threads that run when the process exits. Thread number I has the name `w-I`, and has allocated I + 1,000 bytes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 150

static pthread_barrier_t all_have_allocated;
static void *volatile blocks[THREADS];

static void *run(void *argument) {
    size_t number = (size_t)argument;
    char name[16];
    snprintf(name, sizeof name, "w-%zu", number);
    pthread_setname_np(pthread_self(), name);
    blocks[number] = malloc(1000 + number);
    pthread_barrier_wait(&all_have_allocated);
    for (;;)
        pause();
    return NULL;
}

int main(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    pthread_barrier_init(&all_have_allocated, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, run, (void *)i) != 0)
            abort();
    }
    pthread_barrier_wait(&all_have_allocated);
    return 0;
}
