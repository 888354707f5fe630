/* text_form.c: names in Unicode's forms C and D, and in either case. */
#include "base/text_form.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Letters of Latin, Greek and Cyrillic scripts and kana, each with what it is made of: a letter, which may be
 * made of two itself, and a combining mark. */
static const char letters[] =
    "ÀÀÁÁÂÂÃÃÄÄÅÅÇÇÈÈÉÉÊÊËËÌÌÍÍÎÎÏÏÑÑÒÒÓÓÔÔÕÕ"
    "ÖÖÙÙÚÚÛÛÜÜÝÝààááââããääååççèèééêêëëììííîî"
    "ïïññòòóóôôõõööùùúúûûüüýýÿÿĀĀāāĂĂăăĄĄąąĆĆ"
    "ććĈĈĉĉĊĊċċČČččĎĎďďĒĒēēĔĔĕĕĖĖėėĘĘęęĚĚěěĜĜ"
    "ĝĝĞĞğğĠĠġġĢĢģģĤĤĥĥĨĨĩĩĪĪīīĬĬĭĭĮĮįįİİĴĴĵĵ"
    "ĶĶķķĹĹĺĺĻĻļļĽĽľľŃŃńńŅŅņņŇŇňňŌŌōōŎŎŏŏŐŐőő"
    "ŔŔŕŕŖŖŗŗŘŘřřŚŚśśŜŜŝŝŞŞşşŠŠššŢŢţţŤŤťťŨŨũũ"
    "ŪŪūūŬŬŭŭŮŮůůŰŰűűŲŲųųŴŴŵŵŶŶŷŷŸŸŹŹźźŻŻżżŽŽ"
    "žžƠƠơơƯƯưưǍǍǎǎǏǏǐǐǑǑǒǒǓǓǔǔǕǕǖǖǗǗǘǘǙǙǚǚ"
    "ǛǛǜǜǞǞǟǟǠǠǡǡǢǢǣǣǦǦǧǧǨǨǩǩǪǪǫǫǬǬǭǭǮǮǯǯ"
    "ǰǰǴǴǵǵǸǸǹǹǺǺǻǻǼǼǽǽǾǾǿǿȀȀȁȁȂȂȃȃȄȄȅȅȆȆȇȇ"
    "ȈȈȉȉȊȊȋȋȌȌȍȍȎȎȏȏȐȐȑȑȒȒȓȓȔȔȕȕȖȖȗȗȘȘșșȚȚțț"
    "ȞȞȟȟȦȦȧȧȨȨȩȩȪȪȫȫȬȬȭȭȮȮȯȯȰȰȱȱȲȲȳȳ΅΅ΆΆ"
    "ΈΈΉΉΊΊΌΌΎΎΏΏΐΐΪΪΫΫάάέέήήίίΰΰϊϊϋϋόό"
    "ύύώώϓϓϔϔЀЀЁЁЃЃЇЇЌЌЍЍЎЎЙЙййѐѐёёѓѓїї"
    "ќќѝѝўўѶѶѷѷӁӁӂӂӐӐӑӑӒӒӓӓӖӖӗӗӚӚӛӛӜӜӝӝ"
    "ӞӞӟӟӢӢӣӣӤӤӥӥӦӦӧӧӪӪӫӫӬӬӭӭӮӮӯӯӰӰӱӱӲӲ"
    "ӳӳӴӴӵӵӸӸӹӹḀḀḁḁḂḂḃḃḄḄḅḅḆḆḇḇḈḈḉḉḊḊ"
    "ḋḋḌḌḍḍḎḎḏḏḐḐḑḑḒḒḓḓḔḔḕḕḖḖḗḗḘḘḙḙḚḚ"
    "ḛḛḜḜḝḝḞḞḟḟḠḠḡḡḢḢḣḣḤḤḥḥḦḦḧḧḨḨḩḩḪḪ"
    "ḫḫḬḬḭḭḮḮḯḯḰḰḱḱḲḲḳḳḴḴḵḵḶḶḷḷḸḸḹḹḺḺ"
    "ḻḻḼḼḽḽḾḾḿḿṀṀṁṁṂṂṃṃṄṄṅṅṆṆṇṇṈṈṉṉṊṊṋṋ"
    "ṌṌṍṍṎṎṏṏṐṐṑṑṒṒṓṓṔṔṕṕṖṖṗṗṘṘṙṙṚṚ"
    "ṛṛṜṜṝṝṞṞṟṟṠṠṡṡṢṢṣṣṤṤṥṥṦṦṧṧṨṨṩṩ"
    "ṪṪṫṫṬṬṭṭṮṮṯṯṰṰṱṱṲṲṳṳṴṴṵṵṶṶṷṷṸṸṹṹ"
    "ṺṺṻṻṼṼṽṽṾṾṿṿẀẀẁẁẂẂẃẃẄẄẅẅẆẆẇẇẈẈẉẉ"
    "ẊẊẋẋẌẌẍẍẎẎẏẏẐẐẑẑẒẒẓẓẔẔẕẕẖẖẗẗẘẘẙẙẛẛ"
    "ẠẠạạẢẢảảẤẤấấẦẦầầẨẨẩẩẪẪẫẫẬẬậậẮẮ"
    "ắắẰẰằằẲẲẳẳẴẴẵẵẶẶặặẸẸẹẹẺẺẻẻẼẼẽẽ"
    "ẾẾếếỀỀềềỂỂểểỄỄễễỆỆệệỈỈỉỉỊỊịịỌỌ"
    "ọọỎỎỏỏỐỐốốỒỒồồỔỔổổỖỖỗỗỘỘộộỚỚ"
    "ớớỜỜờờỞỞởởỠỠỡỡỢỢợợỤỤụụỦỦủủỨỨứứ"
    "ỪỪừừỬỬửửỮỮữữỰỰựựỲỲỳỳỴỴỵỵỶỶỷỷỸỸ"
    "ỹỹががぎぎぐぐげげごござざじじずずぜぜぞぞ"
    "だだぢぢづづででどどばばぱぱびびぴぴぶぶぷぷ"
    "べべぺぺぼぼぽぽゔゔゞゞガガギギググゲゲゴゴ"
    "ザザジジズズゼゼゾゾダダヂヂヅヅデデドドババ"
    "パパビビピピブブププベベペペボボポポヴヴヷヷ"
    "ヸヸヹヹヺヺヾヾ";

/* Bytes of the character; 1 where there is none of UTF-8. */
static int bytes_of(const char *at)
{
    unsigned char first = (unsigned char)*at;
    int bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    for (int i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) return 1;
    return bytes;
}

/* The parts of a letter; NULL: it is not taken apart. */
static const char *parts_of(const char *at, int bytes)
{
    const char *letter = letters, *parts = letters;
    for (; *letter; letter = parts + bytes_of(parts) + bytes_of(parts + bytes_of(parts))) {
        parts = letter + bytes_of(letter);
        if (parts - letter == bytes && memcmp(letter, at, (size_t)bytes) == 0) return parts;
    }
    return NULL;
}

enum { SYLLABLES = 0xac00, SYLLABLE_COUNT = 11172, LEADS = 0x1100, VOWELS = 0x1161, TRAILS = 0x11a7 };

/* A Hangul syllable's letters, whose codes follow from its own. */
static void add_syllable(struct text *out, int syllable)
{
    int parts[] = {LEADS + syllable / 588, VOWELS + syllable % 588 / 28, TRAILS + syllable % 28};
    for (int i = 0; i < 3 && parts[i] != TRAILS; i++)
        text_add(out, "%c%c%c", 0xe0 | parts[i] >> 12, 0x80 | (parts[i] >> 6 & 0x3f),
                 0x80 | (parts[i] & 0x3f));
}

static void add_decomposed(struct text *out, const char *at, bool fold)
{
    int bytes = bytes_of(at);
    const char *parts = bytes > 1 ? parts_of(at, bytes) : NULL;
    int syllable = bytes == 3 ? ((at[0] & 0xf) << 12 | (at[1] & 0x3f) << 6 | (at[2] & 0x3f)) - SYLLABLES : -1;
    if (parts) {
        add_decomposed(out, parts, fold);
        add_decomposed(out, parts + bytes_of(parts), fold);
    } else if (syllable >= 0 && syllable < SYLLABLE_COUNT) {
        add_syllable(out, syllable);
    } else if (bytes == 1) {
        text_add(out, "%c", fold && (*at & 0x80) == 0 ? tolower(*at) : *at);
    } else {
        text_add(out, "%.*s", bytes, at);
    }
}

char *text_decomposed(const char *name, bool fold)
{
    struct text out = {0};
    text_add(&out, "%s", "");
    for (; *name; name += bytes_of(name)) add_decomposed(&out, name, fold);
    return out.data;
}
