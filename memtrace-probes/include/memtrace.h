/* memtrace.h: probes by which a program names the parts of its work for memtrace.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Copy this file into a program. It needs no other file, no library, and no installed memtrace. It is C99 and C++11 for
 * GCC and Clang. On Linux for x86-64 and aarch64, each call is one nop and the moves of its arguments; elsewhere, or with
 * MEMTRACE_NO_PROBES, it is nothing. The probes are USDT probes of the provider `memtrace`: bpftrace, perf and SystemTap
 * see them too.
 *
 *     memtrace_tag_begin("net");          memtrace::tag tag("net");        // C++: until the end of the scope
 *     ...
 *     memtrace_tag_end();
 *
 * Names and texts are C strings; memtrace reads their first 63 bytes during the call, and keeps a copy. All calls are for
 * the current thread. Begin and end must be paired, and nest. `memtrace --tag-from probes` reads the tags and claims,
 * `memtrace --span probes` the tasks, locks and events.
 *
 * If a label costs time to compute, compute it only if a tracer reads it:
 *
 *     int begun = MEMTRACE_TAG_ENABLED();
 *     if (begun) { snprintf(name, sizeof name, "user %d", id); memtrace_tag_begin(name); }
 *     ...
 *     if (begun) memtrace_tag_end();
 */
#ifndef MEMTRACE_H
#define MEMTRACE_H

#include <stdint.h>

#if !defined(MEMTRACE_NO_PROBES) && defined(__linux__) && defined(__LP64__) && defined(__GNUC__) && \
    (defined(__x86_64__) || defined(__aarch64__))
#define MEMTRACE_HAS_PROBES 1
#else
#define MEMTRACE_HAS_PROBES 0
#endif

#if defined(__GNUC__)
#define MEMTRACE_INLINE_ static __inline__ __attribute__((__always_inline__, __unused__))
#else
#define MEMTRACE_INLINE_ static inline
#endif

#if MEMTRACE_HAS_PROBES

/* One nop of one instruction: a probe on the 5-byte nop of x86-64 would write below the stack pointer on some kernels. */
#if defined(__x86_64__)
#define MEMTRACE_NOP_ ".byte 0x90"
#define MEMTRACE_ARG0_(sign) #sign "8@%%rdi"
#define MEMTRACE_ARG1_(sign) " " #sign "8@%%rsi"
#else
#define MEMTRACE_NOP_ "nop"
#define MEMTRACE_ARG0_(sign) #sign "8@x0"
#define MEMTRACE_ARG1_(sign) " " #sign "8@x1"
#endif

/* A nop, and its note: provider, name, arguments, and the semaphore of the probe. */
#define MEMTRACE_ASM_(name, args)                                                                                           \
    "990: " MEMTRACE_NOP_ "\n"                                                                                              \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                                           \
    ".balign 4\n"                                                                                                           \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                                                      \
    "991: .asciz \"stapsdt\"\n"                                                                                             \
    "992: .balign 4\n"                                                                                                      \
    "993: .8byte 990b\n"                                                                                                    \
    ".8byte _.stapsdt.base\n"                                                                                               \
    ".8byte memtrace_" name "_semaphore\n"                                                                                  \
    ".asciz \"memtrace\"\n"                                                                                                 \
    ".asciz \"" name "\"\n"                                                                                                 \
    ".asciz \"" args "\"\n"                                                                                                 \
    "994: .balign 4\n"                                                                                                      \
    ".popsection\n"                                                                                                         \
    ".ifndef _.stapsdt.base\n"                                                                                              \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                                 \
    ".weak _.stapsdt.base\n"                                                                                                \
    ".hidden _.stapsdt.base\n"                                                                                              \
    "_.stapsdt.base: .space 1\n"                                                                                            \
    ".size _.stapsdt.base, 1\n"                                                                                             \
    ".popsection\n"                                                                                                         \
    ".endif\n"

/* The "memory" clobber keeps allocations on their side of the probe, and stores a computed label before it. */
#define MEMTRACE_PROBE0_(name) __asm__ __volatile__(MEMTRACE_ASM_(name, "") : : "i"(0) : "memory")
#if defined(__x86_64__)
#define MEMTRACE_PROBE1_(name, type0, arg0)                                                                                 \
    __asm__ __volatile__(MEMTRACE_ASM_(name, MEMTRACE_ARG0_()) : : "D"(arg0) : "memory")
#define MEMTRACE_PROBE2_(name, type0, arg0, sign, type1, arg1)                                                              \
    __asm__ __volatile__(MEMTRACE_ASM_(name, MEMTRACE_ARG0_() MEMTRACE_ARG1_(sign)) : : "D"(arg0), "S"(arg1) : "memory")
#else
#define MEMTRACE_PROBE1_(name, type0, arg0)                                                                                 \
    do {                                                                                                                    \
        register type0 in_x0_ __asm__("x0") = (arg0);                                                                       \
        __asm__ __volatile__(MEMTRACE_ASM_(name, MEMTRACE_ARG0_()) : : "r"(in_x0_) : "memory");                             \
    } while (0)
#define MEMTRACE_PROBE2_(name, type0, arg0, sign, type1, arg1)                                                              \
    do {                                                                                                                    \
        register type0 in_x0_ __asm__("x0") = (arg0);                                                                       \
        register type1 in_x1_ __asm__("x1") = (arg1);                                                                       \
        __asm__ __volatile__(MEMTRACE_ASM_(name, MEMTRACE_ARG0_() MEMTRACE_ARG1_(sign))                                     \
                             : : "r"(in_x0_), "r"(in_x1_) : "memory");                                                      \
    } while (0)
#endif

/* Semaphores: a tracer counts itself in the one of each probe that it uses. The linker keeps one of each. */
#ifdef __cplusplus
#define MEMTRACE_SEMAPHORE_(name)                                                                                           \
    extern "C" {                                                                                                            \
    __attribute__((__weak__, __used__, __visibility__("hidden"), __section__(".probes")))                                   \
    volatile unsigned short memtrace_##name##_semaphore = 0;                                                                \
    }
#else
#define MEMTRACE_SEMAPHORE_(name)                                                                                           \
    __attribute__((__weak__, __used__, __visibility__("hidden"), __section__(".probes")))                                   \
    volatile unsigned short memtrace_##name##_semaphore = 0;
#endif
MEMTRACE_SEMAPHORE_(tag_begin)
MEMTRACE_SEMAPHORE_(tag_begin_id)
MEMTRACE_SEMAPHORE_(tag_end)
MEMTRACE_SEMAPHORE_(task_begin)
MEMTRACE_SEMAPHORE_(task_end)
MEMTRACE_SEMAPHORE_(lock_wait)
MEMTRACE_SEMAPHORE_(lock_acquire)
MEMTRACE_SEMAPHORE_(lock_release)
MEMTRACE_SEMAPHORE_(event_number)
MEMTRACE_SEMAPHORE_(event_text)
MEMTRACE_SEMAPHORE_(claim)
#undef MEMTRACE_SEMAPHORE_
#define MEMTRACE_IS_ENABLED_(name) (memtrace_##name##_semaphore != 0)

#else

#define MEMTRACE_PROBE0_(name) ((void)0)
#define MEMTRACE_PROBE1_(name, type0, arg0) ((void)(arg0))
#define MEMTRACE_PROBE2_(name, type0, arg0, sign, type1, arg1) ((void)(arg0), (void)(arg1))
#define MEMTRACE_IS_ENABLED_(name) 0

#endif

/* True while a tracer reads the names of tags, the names of tasks or locks, or the events. */
#define MEMTRACE_TAG_ENABLED() MEMTRACE_IS_ENABLED_(tag_begin)
#define MEMTRACE_TASK_ENABLED() MEMTRACE_IS_ENABLED_(task_begin)
#define MEMTRACE_LOCK_ENABLED() MEMTRACE_IS_ENABLED_(lock_wait)
#define MEMTRACE_EVENT_NUMBER_ENABLED() MEMTRACE_IS_ENABLED_(event_number)
#define MEMTRACE_EVENT_TEXT_ENABLED() MEMTRACE_IS_ENABLED_(event_text)

/* Blocks that the thread allocates from now on have the tag `name`, until the matching memtrace_tag_end. */
MEMTRACE_INLINE_ void memtrace_tag_begin(const char *name) { MEMTRACE_PROBE1_("tag_begin", const char *, name); }

/* As memtrace_tag_begin, with a number. */
MEMTRACE_INLINE_ void memtrace_tag_begin_id(uint64_t number) { MEMTRACE_PROBE1_("tag_begin_id", uint64_t, number); }

/* Restores the tag before the last memtrace_tag_begin or memtrace_tag_begin_id of the thread. */
MEMTRACE_INLINE_ void memtrace_tag_end(void) { MEMTRACE_PROBE0_("tag_end"); }

/* The thread works on the task `name`, such as a request, until the matching memtrace_task_end. */
MEMTRACE_INLINE_ void memtrace_task_begin(const char *name) { MEMTRACE_PROBE1_("task_begin", const char *, name); }

/* Ends the task that the thread has begun last. */
MEMTRACE_INLINE_ void memtrace_task_end(void) { MEMTRACE_PROBE0_("task_end"); }

/* The thread is about to wait for a lock, which its address identifies. */
MEMTRACE_INLINE_ void memtrace_lock_wait(const volatile void *lock, const char *name) {
    MEMTRACE_PROBE2_("lock_wait", const volatile void *, lock, , const char *, name);
}

/* The thread has the lock. */
MEMTRACE_INLINE_ void memtrace_lock_acquire(const volatile void *lock) {
    MEMTRACE_PROBE1_("lock_acquire", const volatile void *, lock);
}

/* The thread has released the lock. */
MEMTRACE_INLINE_ void memtrace_lock_release(const volatile void *lock) {
    MEMTRACE_PROBE1_("lock_release", const volatile void *, lock);
}

/* An event with a number, in a unit of the program's choice. */
MEMTRACE_INLINE_ void memtrace_event_number(const char *name, int64_t value) {
    MEMTRACE_PROBE2_("event_number", const char *, name, -, int64_t, value);
}

/* An event with a text. */
MEMTRACE_INLINE_ void memtrace_event_text(const char *name, const char *text) {
    MEMTRACE_PROBE2_("event_text", const char *, name, , const char *, text);
}

/* Moves a live block to the current thread and tag: it counts as freed where it was, and as allocated here. `block` is the
 * address that the allocator returned. For a consumer that takes over what another thread has allocated. */
MEMTRACE_INLINE_ void memtrace_claim(const volatile void *block) {
    MEMTRACE_PROBE1_("claim", const volatile void *, block);
}

#ifdef __cplusplus

namespace memtrace {

/* Tag of the blocks that the thread allocates until the end of the scope. */
class tag {
  public:
    explicit tag(const char *name) { memtrace_tag_begin(name); }
    explicit tag(uint64_t number) { memtrace_tag_begin_id(number); }
    ~tag() { memtrace_tag_end(); }
    tag(const tag &) = delete;
    tag &operator=(const tag &) = delete;
};

/* As tag, with a name that is computed only if a tracer reads it: `label()` returns a string with c_str(). */
class computed_tag {
    bool begun_;

  public:
    template <class Label> explicit computed_tag(Label &&label) : begun_(MEMTRACE_TAG_ENABLED()) {
        if (begun_)
            memtrace_tag_begin(label().c_str());
    }
    ~computed_tag() {
        if (begun_)
            memtrace_tag_end();
    }
    computed_tag(const computed_tag &) = delete;
    computed_tag &operator=(const computed_tag &) = delete;
};

/* Task of the thread until the end of the scope. */
class task {
  public:
    explicit task(const char *name) { memtrace_task_begin(name); }
    ~task() { memtrace_task_end(); }
    task(const task &) = delete;
    task &operator=(const task &) = delete;
};

/* Waits for a mutex, and holds it until the end of the scope. */
template <class Mutex> class lock {
    Mutex &mutex_;

  public:
    lock(Mutex &mutex, const char *name) : mutex_(mutex) {
        memtrace_lock_wait(&mutex, name);
        mutex_.lock();
        memtrace_lock_acquire(&mutex);
    }
    ~lock() {
        mutex_.unlock();
        memtrace_lock_release(&mutex_);
    }
    lock(const lock &) = delete;
    lock &operator=(const lock &) = delete;
};

/* Event at the end of the scope, with the number that `value` has then. */
class number_at_end {
    const char *name_;

  public:
    int64_t value;
    explicit number_at_end(const char *name, int64_t initial = 0) : name_(name), value(initial) {}
    ~number_at_end() { memtrace_event_number(name_, value); }
    number_at_end(const number_at_end &) = delete;
    number_at_end &operator=(const number_at_end &) = delete;
};

/* Event at the end of the scope, with the text that `text` is then. */
class text_at_end {
    const char *name_;

  public:
    const char *text;
    explicit text_at_end(const char *name, const char *initial = "") : name_(name), text(initial) {}
    ~text_at_end() { memtrace_event_text(name_, text); }
    text_at_end(const text_at_end &) = delete;
    text_at_end &operator=(const text_at_end &) = delete;
};

} // namespace memtrace

#endif

#endif
