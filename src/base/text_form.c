/* text_form.c: names in Unicode's forms C and D, and in either case. */
#include "base/text_form.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Combining marks, and the letters from U+00C0 to U+017F: for each its base and its mark, a for the first;
 * spaces: it is not taken apart. */
static const unsigned short marks[] = {
    0x300, 0x301, 0x302, 0x303, 0x308, 0x30a, 0x327, 0x30c, 0x304, 0x306, 0x307, 0x30b, 0x328,
};
static const char letters[] =
    "AaAbAcAdAeAf  CgEaEbEcEeIaIbIcIe  NdOaObOcOdOe    UaUbUcUeYb    "
    "aaabacadaeaf  cgeaebeceeiaibicie  ndoaobocodoe    uaubucueyb  ye"
    "AiaiAjajAmamCbcbCcccCkckChchDhdh    EieiEjejEkekEmemEhehGcgcGjgj"
    "GkgkGgggHchc    IdidIiiiIjijImimIk      JcjcKgkg  LblbLglgLhlh  "
    "      NbnbNgngNhnh      OioiOjojOlol    RbrbRgrgRhrhSbsbScscSgsg"
    "ShshTgtgThth    UdudUiuiUjujUfufUlulUmumWcwcYcycYeZbzbZkzkZhzh  ";
enum { FIRST = 0xc0, LAST = 0x17f };

char *text_decomposed(const char *name, bool fold)
{
    struct text out = {0};
    text_add(&out, "%s", "");
    for (const unsigned char *s = (const unsigned char *)name; *s; s++) {
        bool two = (s[0] & 0xe0) == 0xc0 && (s[1] & 0xc0) == 0x80;
        unsigned letter = two ? (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu) : 0;
        const char *parts = letter >= FIRST && letter <= LAST ? letters + 2 * (letter - FIRST) : " ";
        unsigned char base = *parts == ' ' ? *s : (unsigned char)*parts;
        text_add(&out, "%c", fold && base < 0x80 ? tolower(base) : base);
        if (*parts == ' ') continue;
        unsigned mark = marks[parts[1] - 'a'];
        text_add(&out, "%c%c", 0xc0 | mark >> 6, 0x80 | (mark & 0x3f));
        s++;
    }
    return out.data;
}
