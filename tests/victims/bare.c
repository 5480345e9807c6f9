/* An executable without a C library, hence without an allocator. */
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

/* At the entry point the stack is not aligned as the ABI requires of a function. */
__attribute__((force_align_arg_pointer)) void _start(void) {
    char line[32] = "ready ";
    int at = 6;
    long pid = call(39, 0, 0, 0); /* getpid */
    long scale = 1;
    while (pid / scale >= 10)
        scale *= 10;
    for (; scale; scale /= 10)
        line[at++] = (char)('0' + pid / scale % 10);
    line[at++] = '\n';
    call(1, 1, (long)line, at); /* write */
    call(0, 0, (long)line, 1);  /* read: wait for the harness */
    call(60, 0, 0, 0);          /* exit */
    __builtin_unreachable();
}
