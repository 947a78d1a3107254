/*
 * Pictures of published results beside ours: panels of curves over named points, as SVG. A curve of the paper is
 * dotted, ours is solid, in the same colour. A plot is a plain value; titles are the caller's.
 */
#ifndef KVCL_TOOLS_SIM_PLOT_H
#define KVCL_TOOLS_SIM_PLOT_H

#include <stdbool.h>

enum { PLOT_POINTS = 10, PLOT_CURVES = 4, PLOT_PANELS = 3 };

typedef struct plot_curve {
    char   name[48];
    double paper[PLOT_POINTS]; /* NAN: not published */
    double here[PLOT_POINTS];  /* NAN: not measured */
} plot_curve_t;

typedef struct plot_panel {
    const char   *title;
    unsigned     n_points;
    char         points[PLOT_POINTS][16]; /* names below the axis */
    unsigned     n_curves;
    plot_curve_t curves[PLOT_CURVES];
} plot_panel_t;

typedef struct plot {
    const char   *title;
    unsigned     n_panels;
    plot_panel_t panels[PLOT_PANELS];
} plot_t;

/* Empty: each value is NAN. */
void plot_init(plot_t *plot, const char *title);

/* One more panel, of n points, or one more curve of the last panel. NULL: there are as many as there may be. */
plot_panel_t *plot_panel(plot_t *plot, const char *title, unsigned n);
plot_curve_t *plot_curve(plot_panel_t *panel, const char *name);

/* False after reporting. */
bool plot_write(const char *path, const plot_t *plot);

#endif
