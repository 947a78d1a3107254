/*
 * Processes of this host by name: each listens at an abstract unix socket, whose name is made from 16 bytes that no
 * other one has. The kernel says who listens there, and ends the connection with it. Any other process that can bind
 * the name is of another user, and is refused. No call blocks.
 */
#ifndef KVCL_LIFE_NAMED_H
#define KVCL_LIFE_NAMED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** This process listens under that name. @return a descriptor, to be closed; -1 with errno. */
int kvcl_named_listen(const uint8_t name[16]);

/** A connection to the process of this user that has the name. @return a descriptor, to be closed; -1 with errno. */
int kvcl_named_connect(const uint8_t name[16]);

/** A pidfd of the process at the other end (fd -1: of none).
 * @return -1: it is not visible here, has ended, or the kernel is too old. */
int kvcl_named_pidfd(int fd, pid_t *pid_p);

/** Is the process at the other end of this user? */
bool kvcl_named_is_own(int fd);

/** Has the process of this connection, or pidfd, ended? False for -1. */
bool kvcl_named_is_over(int fd);

#endif
