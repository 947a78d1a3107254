/*
 * SVG files and axes (svg.h).
 */
#include "config.h"
#include "tools/svg.h"

#include <errno.h>
#include <math.h>
#include <string.h>

FILE *svg_open(const char *what, const char *path, int width, int height)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
        return NULL;
    }
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", width, height);
    return file;
}

bool svg_close(FILE *file, const char *what, const char *path)
{
    bool good;

    fprintf(file, "</svg>\n");
    good = (ferror(file) == 0);
    good = (fclose(file) == 0) && good;
    if (!good) {
        fprintf(stderr, "%s %s: it could not be written\n", what, path);
    }
    return good;
}

double svg_axis_step(double end)
{
    const double least = end / 5 * (1 - 1e-9); /* an end of five steps has five lines, however it was rounded */
    const double power = pow(10, floor(log10(fmax(least, 1e-9))));
    double       step  = 10 * power;

    if (least <= power) {
        step = power;
    } else if (least <= 2 * power) {
        step = 2 * power;
    } else if (least <= 5 * power) {
        step = 5 * power;
    }
    return step;
}

double svg_axis_end(double most)
{
    const double step = svg_axis_step(most);

    return (most <= 0) ? 1 : ceil(most / step) * step;
}

int svg_axis_lines(double end)
{
    return (int)floor((end / svg_axis_step(end)) + 1e-6);
}

void svg_axis(FILE *file, int left, int top, int width, int height, double end)
{
    const double step  = svg_axis_step(end);
    const int    lines = svg_axis_lines(end);
    double       y;
    int          i;

    for (i = 0; i <= lines; ++i) {
        y = top + height - (height * i * step / end);
        fprintf(file, "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g"
                "</text>\n", left, y, width, left - 6, y + 4, i * step);
    }
}
