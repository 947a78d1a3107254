/*
 * Owns the pictures of plot.h. All text is the program's own, so nothing needs escaping.
 */
#include "config.h"
#include "tools/sim/report/plot.h"
#include "tools/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEFT = 70, WIDTH = 560, HEIGHT = 220, TOP = 60, GAP = 80, KEY = 220 };

static const char *const colours[PLOT_CURVES] = {"#36c", "#c33", "#282", "#a5a"};

void plot_init(plot_t *plot, const char *title)
{
    memset(plot, 0, sizeof(*plot));
    plot->title = title;
}

plot_panel_t *plot_panel(plot_t *plot, const char *title, unsigned n)
{
    plot_panel_t *panel = &plot->panels[plot->n_panels];

    if ((plot->n_panels == PLOT_PANELS) || (n > PLOT_POINTS)) {
        return NULL;
    }
    ++plot->n_panels;
    panel->title    = title;
    panel->n_points = n;
    return panel;
}

plot_curve_t *plot_curve(plot_panel_t *panel, const char *name)
{
    plot_curve_t *curve = &panel->curves[panel->n_curves];
    unsigned     i;

    if (panel->n_curves == PLOT_CURVES) {
        return NULL;
    }
    ++panel->n_curves;
    snprintf(curve->name, sizeof(curve->name), "%s", name);
    for (i = 0; i < PLOT_POINTS; ++i) {
        curve->paper[i] = NAN;
        curve->here[i]  = NAN;
    }
    return curve;
}

static double top_of(const plot_panel_t *panel)
{
    double   most = 0;
    unsigned c, i;

    for (c = 0; c < panel->n_curves; ++c) {
        for (i = 0; i < panel->n_points; ++i) {
            most = fmax(most, fmax(panel->curves[c].paper[i], panel->curves[c].here[i]));
        }
    }
    return svg_axis_end(most);
}

static double x_of(const plot_panel_t *panel, unsigned i)
{
    return LEFT + (WIDTH * (i + 0.5) / panel->n_points);
}

static void put_axes(FILE *file, const plot_panel_t *panel, int top, double y_most)
{
    unsigned i;

    fprintf(file, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT, top - 10, panel->title);
    svg_axis(file, LEFT, top, WIDTH, HEIGHT, y_most);
    for (i = 0; i < panel->n_points; ++i) {
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x_of(panel, i),
                top + HEIGHT + 16, panel->points[i]);
    }
}

/* A line through the points, and a mark at each. */
static void put_values(FILE *file, const plot_panel_t *panel, const double *values, int top, double y_most,
                       const char *colour, bool dotted)
{
    bool     first = true;
    unsigned i;

    fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"%s d=\"", colour,
            dotted ? " stroke-dasharray=\"2 4\"" : "");
    for (i = 0; i < panel->n_points; ++i) {
        if (isfinite(values[i])) {
            fprintf(file, "%c%.1f %.1f", first ? 'M' : 'L', x_of(panel, i),
                    top + HEIGHT - (HEIGHT * values[i] / y_most));
            first = false;
        }
    }
    fprintf(file, "\"/>\n");
    for (i = 0; i < panel->n_points; ++i) {
        if (isfinite(values[i])) {
            fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" stroke=\"%s\" fill=\"%s\"/>\n", x_of(panel, i),
                    top + HEIGHT - (HEIGHT * values[i] / y_most), colour, dotted ? "white" : colour);
        }
    }
}

static bool has_values(const plot_panel_t *panel, const double *values)
{
    unsigned i;

    for (i = 0; i < panel->n_points; ++i) {
        if (isfinite(values[i])) {
            return true;
        }
    }
    return false;
}

static void put_panel(FILE *file, const plot_panel_t *panel, int top)
{
    const double       y_most = top_of(panel);
    const plot_curve_t *curve;
    const double       *values;
    unsigned           c, k, row = 0;

    put_axes(file, panel, top, y_most);
    for (c = 0; c < panel->n_curves; ++c) {
        curve = &panel->curves[c];
        for (k = 0; k < 2; ++k) {
            values = (k == 0) ? curve->paper : curve->here;
            if (has_values(panel, values)) {
                put_values(file, panel, values, top, y_most, colours[c], k == 0);
                fprintf(file, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s%s</text>\n", LEFT + WIDTH + 14,
                        top + 12 + (18 * (int)row), colours[c], curve->name, (k == 0) ? ", paper (dotted)" : "");
                ++row;
            }
        }
    }
}

bool plot_write(const char *path, const plot_t *plot)
{
    static const char what[] = "kvcl_sim: --svg";
    FILE              *file  = svg_open(what, path, LEFT + WIDTH + KEY, TOP + ((int)plot->n_panels * (HEIGHT + GAP)));
    unsigned          i;

    if (file == NULL) {
        return false;
    }
    fprintf(file, "<text x=\"%d\" y=\"24\" font-size=\"14\">%s</text>\n", LEFT, plot->title);
    for (i = 0; i < plot->n_panels; ++i) {
        put_panel(file, &plot->panels[i], TOP + ((int)i * (HEIGHT + GAP)));
    }
    return svg_close(file, what, path);
}
