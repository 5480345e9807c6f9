/* Threads that wait for a mutex which another one holds, each asleep once, and threads that hold two at a time.
 *
 * Prints the threads with their waits, holds and sleeps as one line of JSON. Waits and holds have the four times of spans.h:
 * before and after the first step, and before and after the last one. A sleep has its holder and the bounds of its duration:
 * the time for which the thread is known to have slept, and that of its call of pthread_mutex_lock. */
#define _GNU_SOURCE
#include "spans.h"
#include "system_call.h"

#include <pthread.h>
#include <sched.h>

#define NOIPA __attribute__((noipa))
enum { THREADS = 4, ROUNDS = 8, MOST = 64 };
/* A hundredth of it is more than a pause of the scheduler is likely to be. */
#define HOLD_NS 20000000
#define SHORT_HOLD_NS 2000000

struct stretch {
    int lock, holder;
    uint64_t at[4];
};

struct sleep {
    int holder;
    uint64_t least, most;
};

struct thread {
    int tid, waits, holds, sleeps;
    struct stretch wait[MOST], hold[MOST];
    struct sleep sleep[MOST];
};

static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static const char *const names[2] = {"table", "index"};
static struct thread threads[THREADS];
static pthread_barrier_t step, end;
/* The time since which all but the holder sleep, and that of the last release of the table. */
static uint64_t asleep, releasing;

/* Waits for a lock that `holder` holds, or none. Returns the hold, which begins now. */
NOIPA static struct stretch *take(struct thread *self, int lock, int holder) {
    struct stretch *wait = &self->wait[self->waits++], *hold = &self->hold[self->holds++];
    wait->lock = hold->lock = lock;
    wait->holder = holder;
    wait->at[0] = now();
    memtrace_lock_wait(&mutexes[lock], names[lock]);
    wait->at[1] = now();
    pthread_mutex_lock(&mutexes[lock]);
    wait->at[2] = hold->at[0] = now();
    memtrace_lock_acquire(&mutexes[lock]);
    wait->at[3] = hold->at[1] = now();
    if (holder)
        self->sleep[self->sleeps++] = (struct sleep){holder, releasing - asleep, wait->at[2] - wait->at[1]};
    return hold;
}

static void drop(struct stretch *hold) {
    if (hold->lock == 0)
        releasing = now();
    pthread_mutex_unlock(&mutexes[hold->lock]);
    hold->at[2] = now();
    memtrace_lock_release(&mutexes[hold->lock]);
    hold->at[3] = now();
}

/* All others sleep while this thread holds the table. */
NOIPA static void hold_for_all(struct thread *self) {
    struct timespec time = {.tv_nsec = HOLD_NS};
    struct stretch *hold = take(self, 0, 0);
    pthread_barrier_wait(&step);
    for (struct thread *other = threads; other < threads + THREADS; other++)
        while (other != self && !is_in_call(other->tid, &mutexes[0]))
            sched_yield();
    asleep = now();
    nanosleep(&time, NULL);
    drop(hold);
}

NOIPA static void contend(struct thread *self, int holder) {
    pthread_barrier_wait(&step);
    struct stretch *hold = take(self, 0, holder);
    uint64_t until = now() + SHORT_HOLD_NS;
    while (now() < until)
        ;
    drop(hold);
}

static void *run(void *argument) {
    struct thread *self = argument;
    self->tid = gettid();
    for (int round = 0; round < ROUNDS; round++) {
        struct thread *holder = &threads[round % THREADS];
        pthread_barrier_wait(&step);
        if (holder == self)
            hold_for_all(self);
        else
            contend(self, holder->tid);
        pthread_barrier_wait(&step);
        /* The holds of the two locks overlap, and are not nested. */
        if (holder == self) {
            struct stretch *first = take(self, 0, 0), *second = take(self, 1, 0);
            drop(first);
            drop(second);
        }
    }
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

static void print_stretches(const char *name, const struct stretch *stretches, int count) {
    char text[256];
    snprintf(text, sizeof text, "\"%s\":[", name);
    print_text(text);
    for (int i = 0; i < count; i++) {
        const struct stretch *stretch = &stretches[i];
        size_t used = (size_t)snprintf(text, sizeof text, "%s[\"%s\",", i ? "," : "", names[stretch->lock]);
        if (stretch->holder)
            used += (size_t)snprintf(text + used, sizeof text - used, "%d", stretch->holder);
        else
            used += (size_t)snprintf(text + used, sizeof text - used, "null");
        print_four(text, &used, sizeof text, stretch->at);
        snprintf(text + used, sizeof text - used, "]");
        print_text(text);
    }
    print_text("],");
}

static void print_threads(void) {
    char text[256];
    snprintf(text, sizeof text, "{\"table\":\"%p\",\"index\":\"%p\",\"most_waiters\":%d,\"threads\":[",
             (void *)&mutexes[0], (void *)&mutexes[1], THREADS - 1);
    print_text(text);
    for (int i = 0; i < THREADS; i++) {
        const struct thread *thread = &threads[i];
        snprintf(text, sizeof text, "%s{\"tid\":%d,", i ? "," : "", thread->tid);
        print_text(text);
        print_stretches("waits", thread->wait, thread->waits);
        print_stretches("holds", thread->hold, thread->holds);
        print_text("\"sleeps\":[");
        for (int j = 0; j < thread->sleeps; j++) {
            const struct sleep *sleep = &thread->sleep[j];
            snprintf(text, sizeof text, "%s[%d,%lu,%lu]", j ? "," : "", sleep->holder, sleep->least, sleep->most);
            print_text(text);
        }
        print_text("]}");
    }
    print_text("]}\n");
}

int main(void) {
    pthread_t all[THREADS];
    pthread_barrier_init(&step, NULL, THREADS);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    ledger_start();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&all[i], NULL, run, &threads[i]) != 0)
            return 3;
    pthread_barrier_wait(&end);
    print_threads();
    int status = wait_for_harness() ? 0 : 1;
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    return status;
}
