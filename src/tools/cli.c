/*
 * Owns the parsing of command lines: "--name value" and "--name=value", "--" ends the options. An unknown option is
 * reported with the nearest name of the table.
 */
#include "config.h"
#include "tools/cli.h"

#include <kvcl/kvcl.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLI_NAME_MAX  32
#define CLI_ERROR_MAX 1024

cli_result_t cli_error(const cli_spec_t *spec, const char *format, ...)
{
    char    text[CLI_ERROR_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s: %s; see '%s --help'\n", spec->tool, text, spec->tool); /* one write: ranks share stderr */
    return CLI_BAD;
}

int cli_finish(const char *tool, int result)
{
    const bool lost = (ferror(stdout) != 0);

    errno = 0;
    if ((fflush(stdout) == 0) && !lost) {
        return result;
    }
    fprintf(stderr, "%s: the standard output could not be written%s%s\n", tool, (errno != 0) ? ": " : "",
            (errno != 0) ? strerror(errno) : "");
    return (result != EXIT_SUCCESS) ? result : EXIT_FAILURE;
}

static void print_help(const cli_spec_t *spec)
{
    const cli_option_t *opt;
    char               left[64];
    size_t             i;

    printf("usage: %s %s\n%s\n\noptions:\n", spec->tool, spec->usage, spec->about);
    for (i = 0; i < spec->n_options; ++i) {
        opt = &spec->options[i];
        snprintf(left, sizeof(left), "--%s%s%s", opt->name, (opt->arg != NULL) ? " " : "",
                 (opt->arg != NULL) ? opt->arg : "");
        printf("  %-22s %s\n", left, opt->help);
    }
    printf("  %-22s %s\n  %-22s %s\n", "--help", "print this and exit", "--version", "print the version and exit");
}

/* The edit distance of a and b (Levenshtein); the maximum for names longer than the table allows. */
static size_t distance(const char *a, const char *b)
{
    size_t row[CLI_NAME_MAX + 1], len = strlen(b), i, j, diagonal, above;

    if ((len > CLI_NAME_MAX) || (strlen(a) > CLI_NAME_MAX)) {
        return SIZE_MAX;
    }
    for (j = 0; j <= len; ++j) {
        row[j] = j;
    }
    for (i = 1; a[i - 1] != '\0'; ++i) {
        diagonal = row[0];
        row[0]   = i;
        for (j = 1; j <= len; ++j) {
            above    = row[j];
            row[j]   = (a[i - 1] == b[j - 1]) ? diagonal : 1 + ((diagonal < above) ? diagonal : above);
            row[j]   = (row[j - 1] + 1 < row[j]) ? row[j - 1] + 1 : row[j];
            diagonal = above;
        }
    }
    return row[len];
}

static cli_result_t unknown_option(const cli_spec_t *spec, const char *name)
{
    size_t i, d, best = 3;
    size_t at = spec->n_options;

    for (i = 0; i < spec->n_options; ++i) {
        d = distance(name, spec->options[i].name);
        if (d < best) {
            best = d;
            at   = i;
        }
    }
    if (at < spec->n_options) {
        return cli_error(spec, "unknown option --%s (did you mean --%s?)", name, spec->options[at].name);
    }
    return cli_error(spec, "unknown option --%s", name);
}

static bool parse_count(const char *text, uint64_t *value_p, const char **end_p)
{
    char *end;

    if ((text[0] < '0') || (text[0] > '9')) {
        return false;
    }
    errno    = 0;
    *value_p = strtoull(text, &end, 10);
    *end_p   = end;
    return errno == 0;
}

bool cli_parse_size(const char *text, uint64_t *value_p)
{
    static const char letters[] = "KMGT";
    const char        *end, *letter;
    uint64_t          value;
    unsigned          shift;

    if (!parse_count(text, &value, &end)) {
        return false;
    }
    if (*end == '\0') {
        *value_p = value;
        return true;
    }
    letter = strchr(letters, (*end >= 'a') ? *end - ('a' - 'A') : *end);
    if (letter == NULL) {
        return false;
    }
    /* K, KB and KiB mean the same. */
    ++end;
    end += (strncmp(end, "iB", 2) == 0) ? 2 : ((*end == 'B') ? 1 : 0);
    shift = 10 * (unsigned)(letter - letters + 1);
    if ((*end != '\0') || (value > (UINT64_MAX >> shift))) {
        return false;
    }
    *value_p = value << shift;
    return true;
}

static bool parse_real(const char *text, double *value_p)
{
    char *end;

    *value_p = strtod(text, &end);
    return (end != text) && (*end == '\0') && isfinite(*value_p) && (*value_p >= 0);
}

static cli_result_t read_number(const cli_spec_t *spec, const cli_option_t *opt, const char *text, uint64_t *value_p)
{
    uint64_t   value = 0;
    const char *end  = "";
    bool       size  = (opt->kind != CLI_COUNT);

    if (!(size ? cli_parse_size(text, &value) : (parse_count(text, &value, &end) && (*end == '\0')))) {
        return cli_error(spec, "--%s: \"%s\" is not a %s", opt->name, text,
                         !size ? "number of 0 or more"
                               : (strcmp(opt->arg, "N") == 0) ? "number of 0 or more (K, M, G or T may follow)"
                                                              : "size (a number with K, M, G or T)");
    }
    if ((value < opt->min) || ((opt->max != 0) && (value > opt->max))) {
        return cli_error(spec, "--%s: %s is not within %llu..%llu", opt->name, text, (unsigned long long)opt->min,
                         (opt->max != 0) ? (unsigned long long)opt->max : ~0ull);
    }
    *value_p = value;
    return CLI_GO;
}

static cli_result_t add_size(const cli_spec_t *spec, const cli_option_t *opt, const char *text)
{
    cli_sizes_t  *list = opt->value;
    uint64_t     size;
    cli_result_t result = read_number(spec, opt, text, &size);
    size_t       i;

    if (result != CLI_GO) {
        return result;
    }
    for (i = 0; i < list->n; ++i) {
        if (list->sizes[i] == size) {
            return cli_error(spec, "--%s: %s is given twice", opt->name, text);
        }
    }
    if (list->n == CLI_SIZES_MAX) {
        return cli_error(spec, "--%s: more than %d sizes", opt->name, CLI_SIZES_MAX);
    }
    list->sizes[list->n++] = size;
    return CLI_GO;
}

static cli_result_t set_sizes(const cli_spec_t *spec, const cli_option_t *opt, const char *text)
{
    cli_result_t result;
    char         one[CLI_NAME_MAX];
    size_t       len;

    ((cli_sizes_t *)opt->value)->n = 0; /* the last of several options counts, as with the others */
    do {
        len = strcspn(text, ",");
        snprintf(one, sizeof(one), "%.*s", (len < sizeof(one)) ? (int)len : (int)sizeof(one), text);
        result = (len < sizeof(one)) ? add_size(spec, opt, one) /* else one is a part of it: a smaller number */
                                     : cli_error(spec, "--%s: \"%s\" is not a size (a number with K, M, G or T)",
                                                 opt->name, one);
        text += len + 1;
    } while ((result == CLI_GO) && (text[-1] == ','));
    return result;
}

static cli_result_t set_value(const cli_spec_t *spec, const cli_option_t *opt, const char *text)
{
    switch (opt->kind) {
    case CLI_STRING:
        *(const char **)opt->value = text;
        return CLI_GO;
    case CLI_COUNT:
    case CLI_SIZE:
        return read_number(spec, opt, text, opt->value);
    case CLI_SIZES:
        return set_sizes(spec, opt, text);
    case CLI_REAL:
        if (!parse_real(text, (double *)opt->value)) {
            return cli_error(spec, "--%s: \"%s\" is not a number of 0 or more", opt->name, text);
        }
        return CLI_GO;
    case CLI_FLAG:
        break;
    }
    *(bool *)opt->value = true;
    return CLI_GO;
}

/* One option at argv[*i_p]; moves *i_p when the value is the next word. */
static cli_result_t parse_option(const cli_spec_t *spec, int argc, char **argv, int *i_p)
{
    const char         *name  = argv[*i_p] + 2;
    const char         *equal = strchr(name, '=');
    const size_t       len    = (equal != NULL) ? (size_t)(equal - name) : strlen(name);
    const cli_option_t *opt   = NULL;
    size_t             i;

    for (i = 0; (i < spec->n_options) && (opt == NULL); ++i) {
        if ((strlen(spec->options[i].name) == len) && (strncmp(spec->options[i].name, name, len) == 0)) {
            opt = &spec->options[i];
        }
    }
    if (opt == NULL) {
        return unknown_option(spec, name);
    }
    if (opt->kind == CLI_FLAG) {
        return (equal == NULL) ? set_value(spec, opt, NULL) : cli_error(spec, "--%s takes no value", opt->name);
    }
    if (equal != NULL) {
        return set_value(spec, opt, equal + 1);
    }
    if (*i_p + 1 >= argc) {
        return cli_error(spec, "--%s needs a value: %s", opt->name, opt->arg);
    }
    return set_value(spec, opt, argv[++*i_p]);
}

cli_result_t cli_parse(const cli_spec_t *spec, int argc, char **argv, const char **positional, size_t cap, size_t *n_p)
{
    cli_result_t result  = CLI_GO;
    bool         options = true;
    int          i;

    *n_p = 0;
    for (i = 1; (i < argc) && (result == CLI_GO); ++i) {
        if (options && (strcmp(argv[i], "--") == 0)) {
            options = false;
        } else if (options && ((strcmp(argv[i], "--help") == 0) || (strcmp(argv[i], "-h") == 0))) {
            print_help(spec);
            result = CLI_DONE;
        } else if (options && ((strcmp(argv[i], "--version") == 0) || (strcmp(argv[i], "-V") == 0))) {
            printf("%s (KVCL) %s\n", spec->tool, kvcl_version_string());
            result = CLI_DONE;
        } else if (options && (strncmp(argv[i], "--", 2) == 0)) {
            result = parse_option(spec, argc, argv, &i);
        } else if (options && (argv[i][0] == '-') && (argv[i][1] != '\0')) {
            result = cli_error(spec, "unknown option %s", argv[i]);
        } else if (*n_p == cap) {
            result = cli_error(spec, "unexpected argument \"%s\"", argv[i]);
        } else {
            positional[(*n_p)++] = argv[i];
        }
    }
    return result;
}
