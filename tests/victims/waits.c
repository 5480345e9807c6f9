/* Waits for a mutex, a condition variable, a semaphore and the exit of a thread, one after the other. A known thread ends each
 * of them.
 *
 * Prints the threads, and the address of the mutex, as one line of JSON. */
#define _GNU_SOURCE
#include "ledger.h"
#include "system_call.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static sem_t items;
static int has_work, done;

struct thread {
    void *(*run)(void *);
    int tid;
};

static void begin(struct thread *self) { __atomic_store_n(&self->tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST); }

static void *end(void) {
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void *lock(void *self) {
    begin(self);
    pthread_mutex_lock(&table);
    pthread_mutex_unlock(&table);
    return end();
}

static void *idle(void *self) {
    begin(self);
    pthread_mutex_lock(&guard);
    while (!has_work)
        pthread_cond_wait(&work, &guard);
    pthread_mutex_unlock(&guard);
    return end();
}

static void *take_item(void *self) {
    begin(self);
    while (sem_wait(&items) != 0)
        ;
    return end();
}

/* Exits when the main thread waits for it. */
static void *leave(void *self) {
    begin(self);
    while (!is_in_futex(getpid()))
        sched_yield();
    return NULL;
}

static struct thread locker = {lock, 0}, idler = {idle, 0}, taker = {take_item, 0}, leaver = {leave, 0};

static pthread_t start(struct thread *thread) {
    pthread_t started;
    if (pthread_create(&started, NULL, thread->run, thread) != 0)
        abort();
    return started;
}

/* Starts a thread, and returns when it waits. */
static void start_wait(struct thread *thread) {
    done = 0;
    pthread_detach(start(thread));
    for (int tid = 0; tid == 0 || !is_in_futex(tid); usleep(100))
        tid = __atomic_load_n(&thread->tid, __ATOMIC_SEQ_CST);
}

/* Returns when the thread has left its wait. Polls, so that the main thread does not wait for a futex. */
static void await_end(void) {
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST))
        usleep(100);
}

int main(void) {
    sem_init(&items, 0, 0);
    ledger_start();
    pthread_mutex_lock(&table);
    start_wait(&locker);
    pthread_mutex_unlock(&table);
    await_end();
    start_wait(&idler);
    pthread_mutex_lock(&guard);
    has_work = 1;
    pthread_mutex_unlock(&guard);
    pthread_cond_signal(&work);
    await_end();
    start_wait(&taker);
    sem_post(&items);
    await_end();
    pthread_join(start(&leaver), NULL);
    char text[256];
    snprintf(text, sizeof text,
             "{\"main\":%d,\"locker\":%d,\"idler\":%d,\"taker\":%d,\"leaver\":%d,\"table\":\"%p\"}\n", getpid(), locker.tid,
             idler.tid, taker.tid, leaver.tid, (void *)&table);
    print_text(text);
    return wait_for_harness() ? 0 : 1;
}
