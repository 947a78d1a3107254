/*
 * Questions between contexts of one host that take another way than messages: "does your thread of views run?" A rank
 * that hears nobody asks. Who answers lives, and has sent its beats: then the rank's own ears are the fault (silent.c).
 *
 * They also ask for each other's pages (life/life.h), whose descriptors travel in such datagrams.
 *
 * Datagrams between abstract unix sockets, whose names are made from the contexts' uuids. Only processes of the same
 * user are heard. Nothing of it blocks. One thread uses an object.
 */
#ifndef KVCL_MEMBER_ASK_H
#define KVCL_MEMBER_ASK_H

#include <kvcl/kvcl_status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct kvcl_ask {
    int      fd;     /* -1: closed */
    uint8_t  uuid[16];
    uint64_t number; /* of the newest question */
    uint64_t seen;   /* of the newest that was answered */
    int      page_fd;   /* of this process, given to whoever asks for it; -1: none */
    uint32_t page_word;
    /* another's page; fd is closed after it */
    void     (*on_page)(void *arg, const uint8_t uuid[16], int fd, uint32_t word);
    void     *arg;
} kvcl_ask_t;

/** KVCL_ERR_IO: ask->fd is -1. */
kvcl_status_t kvcl_ask_open(const uint8_t uuid[16], kvcl_ask_t *ask) KVCL_MUST_CHECK;
void          kvcl_ask_close(kvcl_ask_t *ask);

/** The questions that kvcl_ask_put() puts from now on are new ones. */
void kvcl_ask_next(kvcl_ask_t *ask);

/** Ask the context of that uuid. Lost if it does not read. */
void kvcl_ask_put(const kvcl_ask_t *ask, const uint8_t uuid[16]);

/** Ask the context of that uuid for its page. Lost if it does not read. */
void kvcl_ask_page(const kvcl_ask_t *ask, const uint8_t uuid[16]);

/** Answers the questions of others, and hands their pages to on_page, if that is set.
 * @return whether a question of this context got its first answer. */
bool kvcl_ask_take(kvcl_ask_t *ask);

#endif
