/* letters.c: one row a character: its width, then its strokes behind a space each, as points x y.
 *
 * x counts half units: a digit (and : ; < for 10, 11, 12) is a corner of the stroke, a letter (a for 0, b for
 * 1, and so on) a point that pulls a quadratic curve, as in TrueType: between two of those lies an unwritten
 * one, halfway, on the curve. y counts units: 0 is the lowest of g, 2 the baseline, 7 top of x, 9 of X. */
#include "letters.h"

#define BASELINE 2
#define SPACE_BEHIND 1.7
#define CURVE_LINES 6        /* that one curve is drawn as */
#define POINTS_MOST 96       /* of a stroke drawn so */

static const char *const letters[128] = {
    [' '] = "4",
    ['!'] = "0 0905 0202",
    ['"'] = "3 0907 3937",
    ['#'] = "8 1353 5379 0484 0787",
    ['$'] = "8 88h9a9a6i5i2b203 4941",
    ['%'] = "9 29a9a6e6e929 75f5f2j2j575 0289",
    ['&'] = "9 9227b939g957a5a242i295",
    ['\''] = "0 0907",
    ['('] = "3 39a7a331",
    [')'] = "3 09d7d301",
    ['*'] = "6 3834 0567 0765",
    ['+'] = "8 4347 0585",
    [','] = "1 1200",
    ['-'] = "5 0555",
    ['.'] = "2 12221312",
    ['/'] = "6 0169",
    ['0'] = "8 49a9a2i2i949",
    ['1'] = "8 174942 1272",
    ['2'] = "8 07a9i9i60282",
    ['3'] = "8 08b9h9h636i6i2a203",
    ['4'] = "8 62690484",
    ['5'] = "8 79090646i6i2a203",
    ['6'] = "8 78g9a904a2i2i6a604",
    ['7'] = "8 098922",
    ['8'] = "8 49b9b6h6h949 46a6a2i2i646",
    ['9'] = "8 13c2i287i9a9a5i587",
    [':'] = "0 0202 0606",
    [';'] = "1 1200 1616",
    ['<'] = "7 780572",
    ['='] = "8 0484 0686",
    ['>'] = "7 087502",
    ['?'] = "7 07a9h9h53534 3232",
    ['@'] = ": 57d7d4h4h757 7775h4k4k9a9a282",
    ['A'] = "8 024982 1474",
    ['B'] = "8 020949h9h646 0646i6i24202",
    ['C'] = "8 87i9a9a2i284",
    ['D'] = "8 020939i9i23202",
    ['E'] = "7 79090272 0656",
    ['F'] = "7 790902 0656",
    ['G'] = "8 87i9a9a2i28555",
    ['H'] = "8 0209 8289 0686",
    ['I'] = "0 0209",
    ['J'] = "6 6964g2a204",
    ['K'] = "8 0209 8905 2682",
    ['L'] = "7 090272",
    ['M'] = ": 020954:9:2",
    ['N'] = "8 02098289",
    ['O'] = ": 59a9a2k2k959",
    ['P'] = "8 020949i9i54505",
    ['Q'] = ": 59a9a2k2k959 64:1",
    ['R'] = "8 020949i9i54505 4582",
    ['S'] = "8 88h9a9a6i5i2b203",
    ['T'] = "8 0989 4942",
    ['U'] = "8 0904a2i28489",
    ['V'] = "8 094289",
    ['W'] = "< 09326992<9",
    ['X'] = "8 0289 0982",
    ['Y'] = "8 094589 4542",
    ['Z'] = "8 09890282",
    ['['] = "3 39090131",
    ['\\'] = "6 0961",
    [']'] = "3 09393101",
    ['^'] = "6 063966",
    ['_'] = "8 0181",
    ['`'] = "2 0927",
    ['a'] = "7 75h7a7a2h274 7772",
    ['b'] = "7 0902 05a7h7h2a204",
    ['c'] = "7 76h7a7a2h273",
    ['d'] = "7 7972 75h7a7a2h274",
    ['e'] = "7 0575h7a7a2h273",
    ['f'] = "5 59c9c72722 0757",
    ['g'] = "7 75h7a7a2h274 7772h0a001",
    ['h'] = "7 0902 05a7h77572",
    ['i'] = "0 0207 0909",
    ['j'] = "3 3732d000 3939",
    ['k'] = "7 0902 7704 2572",
    ['l'] = "2 0903a222",
    ['m'] = ": 0702 05a7f75552 55f7k7:5:2",
    ['n'] = "7 0702 05a7h77572",
    ['o'] = "7 47a7a2h2h747",
    ['p'] = "7 0700 05a7h7h2a204",
    ['q'] = "7 7770 75h7a7a2h274",
    ['r'] = "5 0702 05a757",
    ['s'] = "6 66f7a7a5g4g2b203",
    ['t'] = "5 2924c252 0757",
    ['u'] = "7 0704a2h274 7772",
    ['v'] = "8 074287",
    ['w'] = ": 07225782:7",
    ['x'] = "7 0277 0772",
    ['y'] = "8 0742 8720",
    ['z'] = "7 07770272",
    ['{'] = "4 49c9c505c5c141",
    ['|'] = "0 0901",
    ['}'] = "4 09c9c545c5c101",
    ['~'] = "8 04c7g386",
};

static const char *row_of(char character)
{
    unsigned char at = (unsigned char)character;
    return at < 128 && letters[at] ? letters[at] : letters['?'];
}

double letter_advance(char character)
{
    return 0.5 * (row_of(character)[0] - '0') + SPACE_BEHIND;
}

/* A stroke on its way from row to lines. */
struct stroke {
    struct point points[POINTS_MOST];
    int count;
    struct point pull;
    bool pulled;             /* `pull` is waiting for the point at which its curve ends */
};

static void line_to(struct stroke *stroke, struct point to)
{
    if (stroke->count < POINTS_MOST) stroke->points[stroke->count++] = to;
}

static void curve_to(struct stroke *stroke, struct point to)
{
    struct point from = stroke->points[stroke->count - 1], pull = stroke->pull;
    for (int i = 1; i <= CURVE_LINES; i++) {
        double t = (double)i / CURVE_LINES, a = (1 - t) * (1 - t), b = 2 * t * (1 - t), c = t * t;
        line_to(stroke, (struct point){a * from.x + b * pull.x + c * to.x,
                                       a * from.y + b * pull.y + c * to.y});
    }
    stroke->pulled = false;
}

static void corner(struct stroke *stroke, struct point at)
{
    if (stroke->pulled) curve_to(stroke, at);
    else line_to(stroke, at);
}

static void pull(struct stroke *stroke, struct point at)
{
    if (stroke->pulled)
        curve_to(stroke, (struct point){(stroke->pull.x + at.x) / 2, (stroke->pull.y + at.y) / 2});
    stroke->pull = at;
    stroke->pulled = true;
}

void letter_strokes(char character, void (*line)(void *context, const struct point *points, int count),
                    void *context)
{
    const char *at = row_of(character) + 1;
    while (*at == ' ') {
        struct stroke stroke = {.count = 0};
        for (at++; *at && *at != ' '; at += 2) {
            bool pulls = at[0] >= 'a';
            struct point point = {0.5 * (at[0] - (pulls ? 'a' : '0')), at[1] - '0' - BASELINE};
            if (pulls) pull(&stroke, point);
            else corner(&stroke, point);
        }
        line(context, stroke.points, stroke.count);
    }
}
