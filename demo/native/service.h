#ifndef SERVICE_H
#define SERVICE_H

#include <stdint.h>

/* Keeps the function and its name in stacks. */
#define NAMED __attribute__((noinline, noclone))

/* Logs a user in. The session is never freed. Returns 0 if there is no memory. */
int login_with_password(uint64_t user);
int login_with_token(uint64_t user);

/* Parses one request and frees it; returns the length of its first header. */
uint64_t serve_request(uint64_t number);

#endif
