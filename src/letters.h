/* letters.h: the shapes of ASCII's characters as strokes, for pictures that carry no font. */
#ifndef LETTERS_H
#define LETTERS_H

#include "canvas.h"

/* Units of a font's size: what one unit of height is, and the width of a stroke. */
#define LETTER_UNIT 0.1
#define LETTER_STROKE 0.085
#define LETTER_STROKE_BOLD 0.135

/* Width of a character with the space behind it, in units. */
double letter_advance(char character);

/* The strokes of a character, as lines short enough to look round: `line` is called for each with its points,
 * in units, y up from the baseline. */
void letter_strokes(char character, void (*line)(void *context, const struct point *points, int count),
                    void *context);

#endif
