/* Functions that end with a jump to another function. Prints the spans as JSON: see spans.h.
 *
 * With WHOLE, the program has no tables of exceptions. Then a span lasts until control returns to the caller. Otherwise, a jump
 * to another object, or by a pointer, ends the span. */
#include "spans.h"

#define NOIPA __attribute__((noipa))
enum { ROUNDS = 40 };

#ifdef WHOLE
#define UNTIL_TAIL_CALL(name) name
#else
#define UNTIL_TAIL_CALL(name) name " [until its tail call]"
#endif

static struct record record;

/* A function with a variable that the clock writes cannot end with a jump, so these are not inlined. */
NOIPA static void entered(int span) { span_entered(span); }
NOIPA static void leaves(int span) { span_leave(span); }

/* Steps of a call that ends with a jump: before the jump, at the begin and the end of the other function, and after the return
 * to the caller. */
#ifdef WHOLE
NOIPA static void before_jump(int) {}
static void jumped(int) {}
static void returns(int span) { span_leave(span); }
static void returned(int span) { span_left(span); }
#else
NOIPA static void before_jump(int span) { span_leave(span); }
static void jumped(int span) { span_left(span); }
static void returns(int) {}
static void returned(int) {}
#endif

/* Ends a span of a function that reads no clock itself: only the time of its end is known. */
static void end_of_bare(int span) {
    span_left(span);
    record.spans[span].at[1] = record.spans[span].at[2] = record.spans[span].at[3];
}

NOIPA static void pause_for(long ns) {
    struct timespec time = {};
    time.tv_nsec = ns;
    nanosleep(&time, nullptr);
}

extern "C" {

/* In another object. Calls the two functions at its begin and at its end. */
void foreign(int span, void (*begin)(int), void (*end)(int));

NOIPA void rest_of_within(int span) {
    free(malloc(3000));
    own->allocated += 3000;
    pause_for(1000000);
    leaves(span);
}

/* Jumps to a function of this object. */
NOIPA void within(int span) {
    entered(span);
    rest_of_within(span);
}

/* Jumps to another object, or returns. */
NOIPA void to_library(int way, int span) {
    entered(span);
    if (way % 3 == 0) {
        pause_for(300000);
        leaves(span);
        return;
    }
    before_jump(span);
    foreign(span, jumped, returns);
}

/* Jumps to another object if the last argument is not 0. */
void conditional(int span, void (*begin)(int), void (*end)(int), int jumps);

#ifdef __x86_64__
__asm__(".text\n"
        ".globl conditional\n"
        ".type conditional, @function\n"
        "conditional:\n"
        "    .cfi_startproc\n"
        "    test %ecx, %ecx\n"
        "    jne foreign@PLT\n"
        "    ret\n"
        "    .cfi_endproc\n"
        "    .size conditional, .-conditional\n");
#else
NOIPA void conditional(int span, void (*begin)(int), void (*end)(int), int jumps) {
    if (jumps)
        foreign(span, begin, end);
}
#endif
}

namespace server {

static volatile int released;

NOIPA static void release() { released++; }

struct Guard {
    ~Guard() { release(); }
};

NOIPA static void may_throw(int value) {
#ifndef WHOLE
    if (value < 0)
        throw value;
#endif
    released += value;
}

struct Handler {
    virtual void run(int span) = 0;
};

struct Short : Handler {
    NOIPA void run(int span) override {
        jumped(span);
        pause_for(500000);
        returns(span);
    }
};

struct Long : Handler {
    NOIPA void run(int span) override {
        jumped(span);
        pause_for(900000);
        returns(span);
    }
};

/* Jumps by a pointer. An exception would enter it too. */
NOIPA void by_method(Handler *handler, int span) {
    entered(span);
    {
        Guard guard;
        may_throw(span);
    }
    before_jump(span);
    handler->run(span);
}

} // namespace server

static void call_within() {
    int span = span_enter("function", "within", NO_LABEL, nullptr);
    within(span);
    span_left(span);
}

static void call_to_library(int way) {
    bool is_returning = way % 3 == 0;
    const char *name = is_returning ? "to_library" : UNTIL_TAIL_CALL("to_library");
    int span = span_enter("function", name, NO_LABEL, nullptr);
    to_library(way, span);
    if (is_returning)
        span_left(span);
    else
        returned(span);
}

static void call_conditional(int jumps) {
    const char *name = jumps ? UNTIL_TAIL_CALL("conditional") : "conditional";
    int span = span_enter("function", name, NO_LABEL, nullptr);
#ifdef WHOLE
    conditional(span, span_entered, span_leave, jumps);
    if (jumps)
        span_left(span);
#else
    conditional(span, end_of_bare, returns, jumps);
#endif
    if (!jumps)
        end_of_bare(span);
}

static void call_by_method(server::Handler *handler) {
    const char *name = UNTIL_TAIL_CALL("server::by_method(server::Handler*, int)");
    int span = span_enter("function", name, NO_LABEL, nullptr);
    server::by_method(handler, span);
    returned(span);
}

/* The program has a table of exceptions. */
static int catches(int value) {
#ifdef WHOLE
    return value;
#else
    try {
        throw value;
    } catch (int thrown) {
        return thrown;
    }
#endif
}

int main() {
    struct record *all[] = {&record};
    server::Short first;
    server::Long second;
    int sum = catches(1);
    ledger_start();
    start_record(&record);
    for (int i = 0; i < ROUNDS; i++) {
        call_within();
        call_to_library(i);
        call_conditional(i % 2);
        call_by_method(i % 4 == 1 ? static_cast<server::Handler *>(&first) : &second);
        sum += catches(i) == i;
    }
    print_records(all, 1);
    return wait_for_harness() && sum == ROUNDS + 1 ? 0 : 1;
}
