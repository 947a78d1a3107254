/*
 * Owns the drawing of the bar and the detection of the user's terminal. Open MPI gives each rank a pseudo-terminal as
 * stdout even when its own output goes to a file, so isatty(1) is not sufficient: the parent's stdout, which /proc
 * names, must be a terminal as well.
 */
#include "config.h"
#include "tools/progress_bar.h"

#include "tools/clock.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH  40
#define BAR_GAP_NS 100000000u

static bool parent_has_terminal(void)
{
    char    link[64], target[PATH_MAX];
    ssize_t len;

    snprintf(link, sizeof(link), "/proc/%ld/fd/1", (long)getppid());
    len = readlink(link, target, sizeof(target) - 1);
    if (len <= 0) {
        return false;
    }
    target[len] = '\0';
    return (strncmp(target, "/dev/pts/", 9) == 0) || (strncmp(target, "/dev/tty", 8) == 0);
}

void progress_bar_start(progress_bar_t *bar, const char *label, uint64_t total, bool wanted)
{
    bar->file = isatty(STDERR_FILENO) ? stderr : stdout;
    bar->on   = wanted && (total != 0) &&
              (isatty(STDERR_FILENO) || (isatty(STDOUT_FILENO) && parent_has_terminal()));
    bar->total   = total;
    bar->next_ns = 0;
    snprintf(bar->label, sizeof(bar->label), "%s", label);
}

void progress_bar_update(progress_bar_t *bar, uint64_t done)
{
    char     marks[BAR_WIDTH + 1];
    uint64_t now;
    size_t   full;

    if (!bar->on) {
        return;
    }
    now = clock_ns();
    if (now < bar->next_ns) {
        return;
    }
    bar->next_ns = now + BAR_GAP_NS;
    done         = (done > bar->total) ? bar->total : done;
    full         = (size_t)((done * BAR_WIDTH) / bar->total);
    memset(marks, '.', BAR_WIDTH);
    memset(marks, '#', full);
    marks[BAR_WIDTH] = '\0';
    fprintf(bar->file, "\r%s [%s] %3u%%", bar->label, marks, (unsigned)((done * 100) / bar->total));
    fflush(bar->file);
}

void progress_bar_end(progress_bar_t *bar)
{
    if (bar->on && (bar->next_ns != 0)) {
        fprintf(bar->file, "\r%*s\r", BAR_WIDTH + (int)strlen(bar->label) + 8, "");
        fflush(bar->file);
    }
    bar->on = false;
}
