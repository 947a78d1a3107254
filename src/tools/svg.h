/*
 * What the pictures of the tools share: an SVG file on a white ground, and the axis of values of a panel.
 * Owns nothing: an open file is the caller's until svg_close. Thread-safe.
 */
#ifndef KVCL_TOOLS_SVG_H
#define KVCL_TOOLS_SVG_H

#include <stdbool.h>
#include <stdio.h>

/* what: the tool and its option, "kvcl_sim: --svg", for errors. @return NULL: the error was printed to stderr. */
FILE  *svg_open(const char *what, const char *path, int width, int height);
/* @return false: not all could be written; the error was printed to stderr. */
bool   svg_close(FILE *file, const char *what, const char *path);

/* The distance of the lines of an axis from 0 to end: 1, 2 or 5 times a power of ten, three to five lines. */
double svg_axis_step(double end);
/* How many of them are above 0. */
int    svg_axis_lines(double end);
/* What an axis ends at for values up to most: a line that is not below most; 1 if there are no values above 0. */
double svg_axis_end(double most);
/* Lines from 0, at the bottom of the panel, to end at its top, with their values on the left. */
void   svg_axis(FILE *file, int left, int top, int width, int height, double end);

#endif
