/*
 * Drives a fuzz target without libFuzzer: random inputs, then mutations of earlier inputs. The seed is printed;
 * TEST_SEED repeats a run, FUZZ_RUNS sets its length. Without FUZZ_RUNS slow targets, and those under a sanitizer, end
 * after 30 s and print the number of runs. The target fuzz_<x> first runs the files of test/fuzz/seeds/<x>. A file
 * named on the command line is run once, as libFuzzer does, so a finding of either can be replayed.
 */
#include "config.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LEN 4096
#define POOL    64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    size_t  len;
    uint8_t bytes[MAX_LEN];
} input_t;

static input_t  pool[POOL];
static uint64_t rng_state;

static uint64_t rng(void)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Lengths near zero are the likeliest, since headers end there. */
static size_t random_len(void)
{
    return rng() % ((rng() % 4) ? 160 : MAX_LEN + 1);
}

static void randomize(input_t *in)
{
    size_t i;

    in->len = random_len();
    for (i = 0; i < in->len; ++i) {
        in->bytes[i] = (uint8_t)rng();
    }
}

static void mutate_once(input_t *in)
{
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
    size_t               at      = in->len ? rng() % in->len : 0;
    size_t               n       = 1 + (rng() % 8);

    if ((in->len == 0) || (rng() % 16 == 0)) {
        in->len = random_len(); /* bytes past the old end are those of an earlier input */
        return;
    }
    n = (n > in->len - at) ? in->len - at : n;
    switch (rng() % 4) {
    case 0:
        in->bytes[at] ^= (uint8_t)(1u << (rng() % 8));
        break;
    case 1:
        in->bytes[at] = (uint8_t)rng();
        break;
    case 2:
        memset(in->bytes + at, edges[rng() % sizeof(edges)], n);
        break;
    default:
        memmove(in->bytes + at, in->bytes + (rng() % (in->len - n + 1)), n);
        break;
    }
}

static void feed(const input_t *in)
{
    uint8_t *copy = malloc(in->len ? in->len : 1); /* of exact length: a sanitizer detects a read past it */

    if (copy == NULL) {
        abort();
    }
    memcpy(copy, in->bytes, in->len);
    (void)LLVMFuzzerTestOneInput(copy, in->len);
    free(copy);
}

static int replay(const char *path)
{
    static input_t in;
    FILE          *f = fopen(path, "rb");

    if (f == NULL) {
        perror(path);
        return 1;
    }
    in.len = fread(in.bytes, 1, sizeof(in.bytes), f);
    (void)fclose(f);
    feed(&in);
    return 0;
}

/* Replay inputs that once failed (test/fuzz/seeds). "make check" sets top_srcdir. */
static int replay_seeds(const char *program)
{
    const char    *top = getenv("top_srcdir"), *name = strstr(program, "fuzz_");
    char          folder[1024], path[2048];
    DIR           *dir;
    struct dirent *entry;
    int           rc = 0;

    for (; (name != NULL) && (strstr(name + 1, "fuzz_") != NULL); name = strstr(name + 1, "fuzz_")) {
    }
    if ((top == NULL) || (name == NULL)) {
        return 0;
    }
    (void)snprintf(folder, sizeof(folder), "%s/test/fuzz/seeds/%s", top, name + 5);
    dir = opendir(folder);
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            printf("seed %s\n", entry->d_name);
            rc |= replay(path);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return rc;
}

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return ((text != NULL) && (*text != '\0')) ? strtoull(text, NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
    uint64_t runs = from_env("FUZZ_RUNS", 200000);
    uint64_t seed = from_env("TEST_SEED", (uint64_t)time(NULL));
    time_t   end  = (getenv("FUZZ_RUNS") == NULL) ? time(NULL) + 30 : 0;
    uint64_t i, changes;
    int      arg, rc = 0;

    for (arg = 1; arg < argc; ++arg) {
        rc |= replay(argv[arg]);
    }
    if (argc > 1) {
        return rc;
    }
    if (replay_seeds(argv[0]) != 0) {
        return 1;
    }

    printf("TEST_SEED=%" PRIu64 " FUZZ_RUNS=%" PRIu64 "\n", seed, runs);
    (void)fflush(stdout);
    rng_state = seed;
    for (i = 0; i < runs; ++i) {
        input_t *in = &pool[i % POOL];

        if ((i < POOL) || (rng() % 8 == 0)) {
            randomize(in);
        }
        for (changes = rng() % 6; changes > 0; --changes) {
            mutate_once(in);
        }
        feed(in);
        if ((end != 0) && (i % 256 == 0) && (time(NULL) >= end)) {
            printf("time is up after FUZZ_RUNS=%" PRIu64 "\n", i + 1);
            break;
        }
    }
    return 0;
}
