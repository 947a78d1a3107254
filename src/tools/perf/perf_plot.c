/*
 * The picture of the test "copy": GB/s over the size of the pieces, a curve for each way, as SVG. Owns the file while
 * it writes.
 */
#include "config.h"
#include "tools/perf/perf_copy.h"
#include "tools/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEFT = 70, TOP = 50, WIDTH = 700, HEIGHT = 400, KEY = 200, BOTTOM = 70 };

typedef struct scale {
    double first, last; /* log2 of the sizes */
    double most;        /* GB/s */
} scale_t;

static scale_t scale_of(const perf_copy_t *copy)
{
    scale_t scale = {log2((double)copy->rows[0].bytes), log2((double)copy->rows[copy->n_rows - 1].bytes), 1};
    size_t  i, way;

    for (i = 0; i < copy->n_rows; ++i) {
        for (way = 0; way < copy->n_ways; ++way) {
            scale.most = (copy->rows[i].gbps[way] > scale.most) ? copy->rows[i].gbps[way] : scale.most;
        }
    }
    scale.last = (scale.last > scale.first) ? scale.last : scale.first + 1;
    scale.most = ceil(scale.most);
    return scale;
}

static double x_of(const scale_t *scale, uint64_t bytes)
{
    return LEFT + (WIDTH * (log2((double)bytes) - scale->first) / (scale->last - scale->first));
}

static double y_of(const scale_t *scale, double gbps)
{
    return TOP + HEIGHT - (HEIGHT * gbps / scale->most);
}

/* Text of the machine, whose bytes may have a meaning in XML. */
static void put_text(FILE *file, const char *text)
{
    for (; *text != '\0'; ++text) {
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        default:
            fputc(*text, file);
            break;
        }
    }
}

static void put_axes(FILE *file, const perf_copy_t *copy, const scale_t *scale)
{
    const double step = (scale->most > 10) ? 2 : 1;
    double       gbps, x;
    size_t       i;

    fprintf(file, "<text x=\"%d\" y=\"24\">Copies of pieces in random order, GB/s of processor time; ", LEFT);
    put_text(file, copy->machine);
    fprintf(file, "</text>\n");
    for (gbps = 0; gbps <= scale->most; gbps += step) {
        fprintf(file, "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f"
                "</text>\n", LEFT, y_of(scale, gbps), WIDTH, LEFT - 8, y_of(scale, gbps) + 4, gbps);
    }
    for (i = 0; i < copy->n_rows; ++i) {
        x = x_of(scale, copy->rows[i].bytes);
        fprintf(file, "<text transform=\"translate(%.1f %d) rotate(60)\">%llu</text>\n", x - 4, TOP + HEIGHT + 16,
                (unsigned long long)copy->rows[i].bytes);
    }
}

static void put_curve(FILE *file, const perf_copy_t *copy, const scale_t *scale, size_t way)
{
    const double hue = 360.0 * (double)way / (double)copy->n_ways;
    char         name[PERF_WAY_NAME_MAX];
    size_t       i;

    fprintf(file, "<path fill=\"none\" stroke-width=\"%d\" stroke=\"hsl(%.0f,70%%,45%%)\" d=\"", (way == 0) ? 4 : 2,
            hue);
    for (i = 0; i < copy->n_rows; ++i) {
        fprintf(file, "%c%.1f %.1f", (i == 0) ? 'M' : 'L', x_of(scale, copy->rows[i].bytes),
                y_of(scale, copy->rows[i].gbps[way]));
    }
    fprintf(file, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"hsl(%.0f,70%%,35%%)\">%s</text>\n", LEFT + WIDTH + 16,
            TOP + 12 + (20 * (int)way), hue, perf_way_name(&copy->ways[way], name));
}

bool perf_plot(const perf_copy_t *copy, const char *path)
{
    static const char what[] = "kvcl_perf: --plot";
    const scale_t     scale  = scale_of(copy);
    FILE              *file  = svg_open(what, path, LEFT + WIDTH + KEY, TOP + HEIGHT + BOTTOM);
    size_t            way;

    if (file == NULL) {
        return false;
    }
    put_axes(file, copy, &scale);
    for (way = 0; way < copy->n_ways; ++way) {
        put_curve(file, copy, &scale, way);
    }
    return svg_close(file, what, path);
}
