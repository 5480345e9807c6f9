/* Processes with a known rusage: one that keeps running, one that started earlier and exits, one that exits with
 * running threads, and one that calls exec. Prints the rusage that wait4 returned for each child. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define THREADS 4

static char line[1024];
static pthread_barrier_t touched;

static void touch(size_t pages) {
    char *all = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || madvise(all, pages * PAGE, MADV_NOHUGEPAGE))
        abort();
    for (size_t page = 0; page < pages; page++)
        all[page * PAGE] = 1;
}

static void *touch_and_stay(void *pages) {
    touch((size_t)pages);
    pthread_barrier_wait(&touched);
    while (pause())
        continue;
    return NULL;
}

/* Exits while its other threads are still running. */
static void with_threads(void) {
    if (pthread_barrier_init(&touched, NULL, THREADS + 1))
        abort();
    touch(300);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, touch_and_stay, (void *)(100 * (i + 1))))
            abort();
    }
    pthread_barrier_wait(&touched);
    _exit(0);
}

/* A thread that exits before the process calls exec. */
static void *touch_and_end(void *pages) {
    touch((size_t)pages);
    return NULL;
}

static void with_exec(char *program) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, touch_and_end, (void *)80) || pthread_join(thread, NULL))
        abort();
    touch(200);
    execl(program, program, "second", (char *)NULL);
    abort();
}

/* Waits for the process and appends its rusage to the output line. */
static void wait_for(const char *name, pid_t pid) {
    struct rusage usage;
    int status = 0;
    if (wait4(pid, &status, 0, &usage) != pid || status != 0)
        abort();
    size_t length = strlen(line);
    snprintf(line + length, sizeof line - length,
             "%s\"%s\":{\"pid\":%d,\"minor\":%ld,\"major\":%ld,\"peak\":%ld}", length ? "," : "", name, (int)pid,
             usage.ru_minflt, usage.ru_majflt, usage.ru_maxrss * 1024);
}

static pid_t forked(void) {
    pid_t pid = fork();
    if (pid < 0)
        abort();
    return pid;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "second") == 0) {
        touch(150);
        return 0;
    }
    int start[2];
    if (pipe(start))
        abort();
    pid_t early = forked();
    if (early == 0) {
        char any;
        if (dup2(start[0], STDIN_FILENO) < 0 || read(STDIN_FILENO, &any, 1) != 1)
            abort();
        touch(700);
        _exit(0);
    }
    print_ready();
    static char output[sizeof line + 64];
    snprintf(output, sizeof output, "{\"early\":%d}\n", (int)early);
    print_text(output);
    if (!wait_for_harness())
        return 1;
    touch(1000);
    if (write(start[1], "", 1) != 1)
        abort();
    wait_for("early", early);
    pid_t pid = forked();
    if (pid == 0)
        with_threads();
    wait_for("threads", pid);
    pid = forked();
    if (pid == 0)
        with_exec(arguments[0]);
    wait_for("programs", pid);
    snprintf(output, sizeof output, "{%s}\n", line);
    print_text(output);
    return wait_for_harness() ? 0 : 1;
}
