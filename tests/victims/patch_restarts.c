/* Threads in system calls that a stop by ptrace interrupts. Each call must return the result that it has without stops, and not before
 * its timeout. It may return later: the timeout of a call that is made again starts anew.
 *
 * `patch_restarts` starts the threads for a line, ends them at the next line, and prints for each call: its number, and the number of
 * wrong results with the last one. `patch_restarts loop` runs the threads until the end of its input, and prints `ok` again and
 * again. With `patch_restarts loop interrupted`, EINTR is no wrong result: a tracer that is killed cannot repeat a call. */
#define _GNU_SOURCE
#include "patch.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define MILLISECOND 1000000L
#define TIMEOUT (40 * MILLISECOND)
/* Clocks of timeouts can be coarser than the clock of the measurement: a tick of a kernel with 100 Hz. */
#define COARSE (10 * MILLISECOND)

static const struct timespec timeout = {.tv_nsec = TIMEOUT};
static const struct timeval timeout_us = {.tv_usec = TIMEOUT / 1000};

static int64_t nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000 * MILLISECOND + time.tv_nsec;
}

/* Returns the moment of the timeout on this clock. */
static struct timespec deadline(clockid_t clock) {
    int64_t end = nanoseconds(clock) + TIMEOUT;
    return (struct timespec){.tv_sec = end / (1000 * MILLISECOND), .tv_nsec = end % (1000 * MILLISECOND)};
}

/* The functions return 0 if the result is right, or else the number of the error, or -1. Descriptors and the like are made once. */

static int failed_with(int result, int expected) { return result == -1 && errno == expected ? 0 : errno ? errno : -1; }

static int returned(long result, long expected) { return result == expected ? 0 : errno ? errno : -1; }

static int call_nanosleep(void) { return returned(nanosleep(&timeout, NULL), 0); }

static int call_clock_nanosleep(void) {
    struct timespec end = deadline(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
}

static int call_poll(void) { return returned(poll(NULL, 0, TIMEOUT / MILLISECOND), 0); }

static int call_ppoll(void) { return returned(ppoll(NULL, 0, &timeout, NULL), 0); }

static int call_select(void) {
    struct timeval rest = timeout_us;
    return returned(select(0, NULL, NULL, NULL, &rest), 0);
}

static int epoll_of_nothing(void) {
    static int file;
    if (!file)
        file = epoll_create1(EPOLL_CLOEXEC);
    return file;
}

static int call_epoll_wait(void) {
    struct epoll_event event;
    return returned(epoll_wait(epoll_of_nothing(), &event, 1, TIMEOUT / MILLISECOND), 0);
}

static int call_epoll_pwait(void) {
    static int file;
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    if (!file)
        file = epoll_create1(EPOLL_CLOEXEC);
    return returned(epoll_pwait(file, &event, 1, TIMEOUT / MILLISECOND, &none), 0);
}

static int call_futex(void) {
    static int word;
    return failed_with((int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &timeout, NULL, 0), ETIMEDOUT);
}

static int call_cond_timedwait(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec end = deadline(CLOCK_REALTIME);
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_timedwait(&condition, &mutex, &end);
    pthread_mutex_unlock(&mutex);
    return result == ETIMEDOUT ? 0 : result ? result : -1;
}

static int call_sem_timedwait(void) {
    static sem_t semaphore;
    struct timespec end = deadline(CLOCK_REALTIME);
    return failed_with(sem_timedwait(&semaphore, &end), ETIMEDOUT);
}

static int call_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return failed_with(sigtimedwait(&set, NULL, &timeout), EAGAIN);
}

/* Makes a pair of sockets whose first end has timeouts. */
static void make_pair(int pair[2]) {
    if (pair[0])
        return;
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no sockets\n");
    expect(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout_us, sizeof timeout_us) == 0, "no timeout\n");
    expect(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &timeout_us, sizeof timeout_us) == 0, "no timeout\n");
}

static int call_recv(void) {
    static int pair[2];
    char byte;
    make_pair(pair);
    return failed_with((int)recv(pair[0], &byte, 1, 0), EAGAIN);
}

static int call_recvmsg(void) {
    static int pair[2];
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    make_pair(pair);
    return failed_with((int)recvmsg(pair[0], &message, 0), EAGAIN);
}

/* The buffer of the socket is full. */
static int call_send(void) {
    static int pair[2];
    static char bytes[4096];
    make_pair(pair);
    while (send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    return failed_with((int)send(pair[0], bytes, sizeof bytes, 0), EAGAIN);
}

static int call_accept(void) {
    static int file;
    if (!file) {
        /* The kernel chooses an abstract name (unix(7), "Autobind feature"). */
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        file = socket(AF_UNIX, SOCK_STREAM, 0);
        expect(bind(file, (struct sockaddr *)&address, sizeof address.sun_family) == 0 && listen(file, 1) == 0, "no socket\n");
        expect(setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &timeout_us, sizeof timeout_us) == 0, "no timeout\n");
    }
    return failed_with(accept(file, NULL, NULL), EAGAIN);
}

/* They outlive a process that does not remove them. */
static int semaphores = -1, queue = -1;

static void remove_ipc(void) {
    semctl(semaphores, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
}

static void make_ipc(void) {
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    expect(semaphores >= 0 && queue >= 0, "no semaphores\n");
    atexit(remove_ipc);
}

static int call_semtimedop(void) {
    struct sembuf operation = {.sem_op = -1};
    return failed_with(semtimedop(semaphores, &operation, 1, &timeout), EAGAIN);
}

/* A call without a timeout. Another thread sends a message after the timeout. */
static int call_msgrcv(void) {
    struct {
        long type;
        char byte;
    } message;
    return returned(msgrcv(queue, &message, 1, 0, 0), 1);
}

static int call_msgsnd(void) {
    struct {
        long type;
        char byte;
    } message = {.type = 1};
    nanosleep(&timeout, NULL);
    return returned(msgsnd(queue, &message, 1, 0), 0);
}

static int feed[2];

static int call_read(void) {
    char byte;
    return returned(read(feed[0], &byte, 1), 1);
}

static int call_write(void) {
    nanosleep(&timeout, NULL);
    return returned(write(feed[1], "x", 1), 1);
}

static int call_waitpid(void) {
    pid_t pid = fork();
    if (pid == 0) {
        free(malloc(100));
        nanosleep(&timeout, NULL);
        _exit(7);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return errno ? errno : -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : -1;
}

/* A computation without system calls: its registers must survive. */
static int call_nothing(void) {
    volatile double sum = 0;
    for (int i = 1; i < 200000; i++)
        sum += 1.0 / i;
    return sum > 12.783284 && sum < 12.783288 ? 0 : -1;
}

struct call {
    const char *name;
    int (*function)(void);
    /* True if the call lasts for the timeout at least. */
    int is_timed;
    uint64_t calls, wrong;
    int last;
};

static struct call calls[] = {
    {"nanosleep", call_nanosleep, 1, 0, 0, 0},
    {"clock_nanosleep", call_clock_nanosleep, 1, 0, 0, 0},
    {"poll", call_poll, 1, 0, 0, 0},
    {"ppoll", call_ppoll, 1, 0, 0, 0},
    {"select", call_select, 1, 0, 0, 0},
    {"epoll_wait", call_epoll_wait, 1, 0, 0, 0},
    {"epoll_pwait", call_epoll_pwait, 1, 0, 0, 0},
    {"futex", call_futex, 1, 0, 0, 0},
    {"pthread_cond_timedwait", call_cond_timedwait, 1, 0, 0, 0},
    {"sem_timedwait", call_sem_timedwait, 1, 0, 0, 0},
    {"sigtimedwait", call_sigtimedwait, 1, 0, 0, 0},
    {"recv", call_recv, 1, 0, 0, 0},
    {"recvmsg", call_recvmsg, 1, 0, 0, 0},
    {"send", call_send, 1, 0, 0, 0},
    {"accept", call_accept, 1, 0, 0, 0},
    {"semtimedop", call_semtimedop, 1, 0, 0, 0},
    {"msgrcv", call_msgrcv, 0, 0, 0, 0},
    {"msgsnd", call_msgsnd, 1, 0, 0, 0},
    {"read", call_read, 0, 0, 0, 0},
    {"write", call_write, 1, 0, 0, 0},
    {"waitpid", call_waitpid, 1, 0, 0, 0},
    {"nothing", call_nothing, 0, 0, 0, 0},
};

#define CALLS (sizeof calls / sizeof *calls)

static int is_ending, permits_interruptions;

static void *run(void *argument) {
    struct call *call = argument;
    while (!__atomic_load_n(&is_ending, __ATOMIC_ACQUIRE)) {
        int64_t begin = nanoseconds(CLOCK_MONOTONIC);
        errno = 0;
        int result = call->function();
        if (result == EINTR && permits_interruptions)
            result = 0;
        else if (result == 0 && call->is_timed && nanoseconds(CLOCK_MONOTONIC) - begin < TIMEOUT - COARSE)
            result = ETIME;
        call->calls++;
        if (result != 0) {
            call->wrong++;
            call->last = result;
        }
    }
    return NULL;
}

static void start(pthread_t threads[CALLS]) {
    __atomic_store_n(&is_ending, 0, __ATOMIC_RELEASE);
    for (size_t i = 0; i < CALLS; i++)
        expect(pthread_create(&threads[i], NULL, run, &calls[i]) == 0, "no thread\n");
}

/* Ends the threads. Those that wait for another thread get what they wait for. */
static void end(pthread_t threads[CALLS]) {
    __atomic_store_n(&is_ending, 1, __ATOMIC_RELEASE);
    call_write();
    call_msgsnd();
    for (size_t i = 0; i < CALLS; i++)
        pthread_join(threads[i], NULL);
}

static void print_calls(void) {
    char text[200];
    for (size_t i = 0; i < CALLS; i++) {
        snprintf(text, sizeof text, "%s{\"name\":\"%s\",\"calls\":%lu,\"wrong\":%lu,\"last\":%d}", i ? "," : "[", calls[i].name,
                 calls[i].calls, calls[i].wrong, calls[i].last);
        print_text(text);
    }
    print_text("]\n");
}

int main(int count, char **arguments) {
    pthread_t threads[CALLS];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    expect(pipe(feed) == 0, "no pipe\n");
    make_ipc();
    if (count > 1 && strcmp(arguments[1], "loop") == 0) {
        permits_interruptions = count > 2 && strcmp(arguments[2], "interrupted") == 0;
        start(threads);
        for (;;) {
            nanosleep(&timeout, NULL);
            for (size_t i = 0; i < CALLS; i++)
                expect(__atomic_load_n(&calls[i].wrong, __ATOMIC_RELAXED) == 0, calls[i].name);
            if (has_line())
                return 0;
            print_text("ok\n");
        }
    }
    print_ready();
    char line[LINE_SIZE];
    while (read_line(line)) {
        start(threads);
        if (!read_line(line))
            return 0;
        end(threads);
        print_calls();
    }
    return 0;
}
