/*
 * The command line of a tool: a table of long options, --help and --version, and errors that name the wrong argument.
 * Owns nothing: values are written to the variables that the table points at, strings remain argv's. Used before any
 * thread starts.
 */
#ifndef KVCL_TOOLS_CLI_H
#define KVCL_TOOLS_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
    CLI_FLAG,   /* bool: no argument, sets true */
    CLI_STRING, /* const char * */
    CLI_COUNT,  /* uint64_t: a plain decimal number within min..max */
    CLI_SIZE,   /* uint64_t: a number with K, M, G or T (powers of 1,024) within min..max */
    CLI_SIZES,  /* cli_sizes_t: different sizes within min..max, with commas between them */
    CLI_REAL    /* double: not negative */
} cli_kind_t;

enum { CLI_SIZES_MAX = 8 };

typedef struct cli_sizes {
    size_t   n; /* 0: not given */
    uint64_t sizes[CLI_SIZES_MAX];
} cli_sizes_t;

typedef struct cli_option {
    const char *name; /* without the dashes */
    cli_kind_t kind;
    void       *value;
    const char *arg;  /* the argument's name in --help; NULL for a flag */
    const char *help;
    uint64_t   min;
    uint64_t   max;   /* 0: no limit */
} cli_option_t;

typedef struct cli_spec {
    const char         *tool;  /* "kvcl_replay" */
    const char         *usage; /* the usage line after the tool's name */
    const char         *about; /* a few sentences, lines broken by hand */
    const cli_option_t *options;
    size_t             n_options;
} cli_spec_t;

typedef enum cli_result {
    CLI_GO,   /* run */
    CLI_DONE, /* --help or --version was printed: exit 0 */
    CLI_BAD   /* the error was printed to stderr: exit 2 */
} cli_result_t;

/* Parse argv. Arguments that are not options go to positional (more than cap is an error) and *n_p. */
cli_result_t cli_parse(const cli_spec_t *spec, int argc, char **argv, const char **positional, size_t cap, size_t *n_p);

/* "64K" -> 65536. False if the text is not a size or does not fit 64 bits. */
bool cli_parse_size(const char *text, uint64_t *value_p);

/* Print "tool: message" and a pointer to --help to stderr. @return CLI_BAD. */
cli_result_t cli_error(const cli_spec_t *spec, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The exit status of a tool that ends with `result`; 1 instead of 0, with a sentence to stderr, if output was lost. */
int cli_finish(const char *tool, int result);

#endif
