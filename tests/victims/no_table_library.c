/* Calls its argument through two functions. The library is compiled without call frame information. */
#define NOIPA __attribute__((noipa))

void twice(void (*function)(void));

NOIPA static void once(void (*function)(void)) {
    function();
    __asm__ volatile("");
}

NOIPA void twice(void (*function)(void)) {
    once(function);
    __asm__ volatile("");
}
