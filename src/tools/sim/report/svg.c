/*
 * Owns the picture of a run: the load over time above, the shares of TTFT and TBT below. Numbers only, no text of the
 * user, so nothing needs escaping but the policy.
 */
#include "config.h"
#include "tools/sim/report/report.h"
#include "tools/svg.h"

#include <math.h>
#include <string.h>

enum { LEFT = 70, WIDTH = 700, HEIGHT = 200, TOP = 50, GAP = 70, KEY = 190 };

/* Where a panel is, and what its axes end at. */
typedef struct panel {
    FILE   *file;
    int    top;
    int    left;
    int    width;
    double x_most;
    double y_most;
} panel_t;

static void put_panel(const panel_t *p, const char *title, const char *x_name)
{
    const double step  = svg_axis_step(p->x_most);
    const int    lines = svg_axis_lines(p->x_most);
    int          i;

    fprintf(p->file, "<text x=\"%d\" y=\"%d\">%s</text>\n", p->left, p->top - 10, title);
    svg_axis(p->file, p->left, p->top, p->width, HEIGHT, p->y_most);
    for (i = 0; i <= lines; ++i) {
        fprintf(p->file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g%s</text>\n",
                p->left + (p->width * i * step / p->x_most), p->top + HEIGHT + 16, i * step,
                (i == lines) ? x_name : "");
    }
}

static void begin_curve(const panel_t *p, const char *colour)
{
    fprintf(p->file, "<path fill=\"none\" stroke-width=\"1.5\" stroke=\"%s\" d=\"", colour);
}

static void put_point(const panel_t *p, bool first, double x, double y)
{
    fprintf(p->file, "%c%.1f %.1f", first ? 'M' : 'L', p->left + (p->width * x / p->x_most),
            p->top + HEIGHT - (HEIGHT * fmin(y / p->y_most, 1)));
}

static void end_curve(const panel_t *p, const char *colour, unsigned row, const char *name)
{
    fprintf(p->file, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT + WIDTH + 14,
            p->top + 12 + (18 * (int)row), colour, name);
}

static void put_load(FILE *file, const sim_t *sim)
{
    panel_t  p = {file, TOP, LEFT, WIDTH, 1, 1};
    double   queue = 0, running = 0;
    uint32_t i;

    for (i = 0; i < sim->n_samples; ++i) {
        queue   = fmax(queue, sim->samples[i].queue);
        running = fmax(running, sim->samples[i].running);
        p.x_most = fmax(p.x_most, sim->samples[i].at);
    }
    p.y_most = svg_axis_end(queue);
    put_panel(&p, "Load over time: mean queue of a prefill instance, s", " s");
    begin_curve(&p, "#c33");
    for (i = 0; i < sim->n_samples; ++i) {
        put_point(&p, i == 0, sim->samples[i].at, sim->samples[i].queue);
    }
    end_curve(&p, "#c33", 0, "prefill queue");
    p.y_most = svg_axis_end(running);
    begin_curve(&p, "#36c");
    for (i = 0; i < sim->n_samples; ++i) {
        put_point(&p, i == 0, sim->samples[i].at, sim->samples[i].running);
    }
    end_curve(&p, "#36c", 1, "requests that decode");
    fprintf(file, "<text x=\"%d\" y=\"%d\" fill=\"#36c\">of an instance: top %.4g</text>\n", LEFT + WIDTH + 14,
            TOP + 48, p.y_most);
}

static void put_shares(FILE *file, int left, const char *title, const char *x_name, const double *values, size_t n,
                       double unit)
{
    panel_t  p = {file, TOP + HEIGHT + GAP, left, (WIDTH / 2) - 40, 1, 1};
    unsigned i;

    p.x_most = svg_axis_end(stats_quantile(values, n, 0.99) * unit);
    if ((n == 0) || !isfinite(p.x_most)) {
        return;
    }
    put_panel(&p, title, x_name);
    begin_curve(&p, "#282");
    for (i = 0; i <= 99; ++i) {
        put_point(&p, i == 0, stats_quantile(values, n, i / 100.0) * unit, i / 100.0);
    }
    fprintf(file, "\"/>\n");
}

static void put_title(FILE *file, const char *text)
{
    fprintf(file, "<text x=\"%d\" y=\"20\">", LEFT);
    for (; *text != '\0'; ++text) {
        fputs((*text == '<') ? "&lt;" : (*text == '&') ? "&amp;" : "", file);
        if ((*text != '<') && (*text != '&')) {
            fputc(*text, file);
        }
    }
    fprintf(file, "</text>\n");
}

bool report_svg(const char *path, const sim_t *sim, const sim_stats_t *stats)
{
    static const char what[] = "kvcl_sim: --svg";
    FILE              *file  = svg_open(what, path, LEFT + WIDTH + KEY, TOP + (2 * HEIGHT) + GAP + 40);

    if (file == NULL) {
        return false;
    }
    put_title(file, sim->config->policy);
    put_load(file, sim);
    put_shares(file, LEFT, "Share of requests by TTFT", " s", stats->ttft, stats->n_ttft, 1);
    put_shares(file, LEFT + (WIDTH / 2) + 20, "Share of requests by TBT", " ms", stats->tbt, stats->n_tbt, 1e3);
    return svg_close(file, what, path);
}
