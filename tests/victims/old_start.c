/* A start file for executables that must run with old versions of glibc: the usual one requires the symbol version of
 * glibc 2.34 (csu/libc-start.c). It passes no init and fini functions; glibc finds them itself or has none to call. */
__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5\n"
        ".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rdx, %r9\n"
        "    pop %rsi\n"
        "    mov %rsp, %rdx\n"
        "    and $-16, %rsp\n"
        "    push %rax\n"
        "    push %rsp\n"
        "    xor %ecx, %ecx\n"
        "    xor %r8d, %r8d\n"
        "    lea main(%rip), %rdi\n"
        "    call __libc_start_main@PLT\n"
        "    hlt\n");
