/* A library for dlopen. PLUGIN, DEPTH and ROOM set its function names, recursion depth and frame size. */
#include <stdlib.h>

#define NOIPA __attribute__((noipa))
#define JOIN(one, other) one##other
#define NAMED(one, other) JOIN(one, other)

NOIPA static void *NAMED(PLUGIN, _leaf)(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

NOIPA static void *NAMED(PLUGIN, _descend)(int depth, size_t size) {
    volatile char room[ROOM];
    room[depth] = (char)depth;
    void *block = depth == 0 ? NAMED(PLUGIN, _leaf)(size) : NAMED(PLUGIN, _descend)(depth - 1, size);
    return room[depth] == (char)depth ? block : NULL;
}

void *take(size_t size);
void *take(size_t size) {
    void *block = NAMED(PLUGIN, _descend)(DEPTH, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}
