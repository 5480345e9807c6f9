/* Waits until it is let go, then becomes another program: `gate PROCESSORS PROGRAM ARGUMENTS...`. */
#include "victim.h"

int main(int count, char **arguments) {
    unsigned long long ignored;
    if (count < 3)
        return 2;
    keep_to(arguments[1]);
    ready();
    if (!wait_line(&ignored))
        return 0;
    /* What the program has to say is for people. */
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 127;
}
