/*
 * What the kernel does differently for a connection between two processes of one host.
 */
#ifndef KVCL_SOCK_SOCK_NEAR_H
#define KVCL_SOCK_SOCK_NEAR_H

#include "sock/sock_hs.h"

/** A socket before it connects or listens: it does not pace until kvcl_sock_near_open(). */
void kvcl_sock_near_begin(int fd);
/** A connection that has become open: bounds its queues if it leads to this host, and lets it pace if it does not. */
void kvcl_sock_near_open(int fd, kvcl_sock_purpose_t purpose);

#endif
