/* fuzz_metadata: the metadata of checkpoints: a good one is taken apart, the input says what is changed in it
 * (metadata, entries of tensors, tensors), and it is put together again with every checksum right. Then a run
 * is resumed from it, and eval and predict begin with it, as far as the network. */
#include "fuzz.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "explain/trained_network.h"
#include "format/checksum.h"
#include "fuzz_network.h"
#include "session/session_open.h"

#define PARTS_MAX 64
#define TEXT_MAX (1 << 16)
#define DATA_MAX (1 << 20)

struct tensor_part {
    char *name;
    const char *dtype;
    int64_t dim[6], begin, end;
    int rank;
};

struct content {
    struct safetensors_pair pairs[PARTS_MAX];
    bool bare[PARTS_MAX];              /* the value is written as it is, not as a string */
    struct tensor_part tensors[PARTS_MAX];
    int pair_count, tensor_count;
    uint8_t *data;
    size_t data_bytes;
};

static struct content good;
static char *model_path;

/* Choices, a byte each; 0 when they are used up. */
struct choices {
    const uint8_t *at, *end;
};

static unsigned choose(struct choices *choices, unsigned below)
{
    return choices->at < choices->end && below > 0 ? *choices->at++ % below : 0;
}

static const char *const numbers[] = {
    "0", "1", "-1", "2", "3", "4", "5", "7", "16", "255", "256", "257", "1024", "65535", "65536", "65537",
    "1000000", "1000001", "16777216", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296",
    "1099511627776", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551615", "1e308", "-1e308", "1e999", "nan", "inf", "0.5", "1e-300", "0x10", "01", "+1", "",
};
static const char *const texts[] = {
    "", " ", "auto", "[]", "{}", "null", "[[[[[[[[", "[\"a\",1,null,{}]", "[\"\",\"\",\"\"]", "[\"one\"]",
    "\"", "\\",
    "\\xe9", "\\x00", "\x01\x1b[31m", "\xc3\xa9", "8 8 3", "65536 65536 256", "1 1 1", "2 2", "[layers]\n",
    "[layers]\nbn = relu input\n", "[input]\nchannels = 5\n", "[model]\nfile = /dev/zero\n",
    "[augment]\nval_resize = 65536\n", "[memory]\nlimit = 1M\n", "amptrain-checkpoint", "pt",
};
static const char *const types[] = {"F32", "F16", "BF16", "F64", "I64", "I32", "U8", "BOOL", "F8_E4M3", ""};
#define COUNT(list) ((unsigned)(sizeof(list) / sizeof *(list)))

static void replace(char **text, char *by)
{
    free(*text);
    *text = by;
}

/* The number in a text that comes after so many others; NULL: there are no more. */
static char *number_at(char *text, unsigned others, size_t *length)
{
    for (char *at = text; *at; at += *length ? *length : 1) {
        *length = strspn(at, "-0123456789.");
        if (*length > 0 && others-- == 0) return at;
    }
    return NULL;
}

/* One of the numbers in a text becomes another. */
static void change_number(struct choices *choices, char **text)
{
    unsigned count = 0;
    size_t length;
    while (count < 256 && number_at(*text, count, &length)) count++;
    char *at = number_at(*text, choose(choices, count), &length);
    if (!at) return;
    const char *number = numbers[choose(choices, COUNT(numbers))];
    replace(text, text_format("%.*s%s%s", (int)(at - *text), *text, number, at + length));
}

static void change_text(struct choices *choices, char **text)
{
    size_t length = strlen(*text);
    unsigned place = choose(choices, 256) * 256 + choose(choices, 256);
    size_t at = length ? place % (length + 1) : 0, rest = length - at;
    switch (choose(choices, 7)) {
    case 0: replace(text, text_copy(texts[choose(choices, COUNT(texts))])); break;
    case 1: replace(text, text_copy(numbers[choose(choices, COUNT(numbers))])); break;
    case 2: if (rest) (*text)[at] = (char)(1 + choose(choices, 255)); break;
    case 3: (*text)[at] = '\0'; break;
    case 4: {
        const char *more = texts[choose(choices, COUNT(texts))];
        replace(text, text_format("%.*s%s%s", (int)at, *text, more, *text + at));
        break;
    }
    case 5: if (rest) memmove(*text + at, *text + at + 1, rest); break;
    case 6: if (2 * length < TEXT_MAX) replace(text, text_format("%s%s", *text, *text)); break;
    }
}

static void add_pair(struct content *content, const char *key, const char *value)
{
    if (content->pair_count == PARTS_MAX) return;
    content->bare[content->pair_count] = false;
    content->pairs[content->pair_count++] = (struct safetensors_pair){text_copy(key), text_copy(value)};
}

static void change_pair(struct choices *choices, struct content *content)
{
    if (content->pair_count == 0) return;
    int which = (int)choose(choices, (unsigned)content->pair_count);
    struct safetensors_pair *pair = &content->pairs[which];
    switch (choose(choices, 8)) {
    case 0: case 1: case 2: change_number(choices, &pair->value); break;
    case 3: case 4: change_text(choices, &pair->value); break;
    case 5:
        which = (int)choose(choices, (unsigned)content->pair_count);
        replace(&pair->value, text_copy(content->pairs[which].value));
        break;
    case 6: content->bare[which] = true; break;
    case 7:
        if (choose(choices, 2)) {
            add_pair(content, pair->key, numbers[choose(choices, COUNT(numbers))]);
        } else {
            free(pair->key), free(pair->value);
            content->bare[which] = content->bare[--content->pair_count];
            *pair = content->pairs[content->pair_count];
        }
        break;
    }
}

static void change_tensor(struct choices *choices, struct content *content)
{
    if (content->tensor_count == 0) return;
    struct tensor_part *tensor = &content->tensors[choose(choices, (unsigned)content->tensor_count)];
    int64_t number = strtoll(numbers[choose(choices, COUNT(numbers))], NULL, 10);
    switch (choose(choices, 8)) {
    case 0: tensor->dtype = types[choose(choices, COUNT(types))]; break;
    case 1: if (tensor->rank) tensor->dim[choose(choices, (unsigned)tensor->rank)] = number; break;
    case 2: if (tensor->rank < 6) tensor->dim[tensor->rank++] = choose(choices, 2) ? 1 : number; break;
    case 3: if (tensor->rank) tensor->rank--; break;
    case 4: change_text(choices, &tensor->name); break;
    case 5: *(choose(choices, 2) ? &tensor->begin : &tensor->end) = number; break;
    case 6:
        replace(&tensor->name,
                text_copy(content->tensors[choose(choices, (unsigned)content->tensor_count)].name));
        break;
    case 7:
        free(tensor->name);
        *tensor = content->tensors[--content->tensor_count];
        break;
    }
}

static size_t bytes_of_type(const char *dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_table[i].safetensors && strcmp(dtype_table[i].safetensors, dtype) == 0)
            return dtype_bytes((enum dtype)i);
    return 1;
}

/* Tensors lie one after the other, each as large as its shape says, if that is not absurd. */
static void lay_out(struct content *content)
{
    int64_t at = 0;
    for (int i = 0; i < content->tensor_count; i++) {
        struct tensor_part *tensor = &content->tensors[i];
        int64_t bytes = (int64_t)bytes_of_type(tensor->dtype);
        for (int k = 0; k < tensor->rank && bytes <= DATA_MAX; k++)
            bytes = tensor->dim[k] < 0 || tensor->dim[k] > DATA_MAX ? DATA_MAX + 1 : bytes * tensor->dim[k];
        if (bytes > DATA_MAX - at) return;
        tensor->begin = at;
        tensor->end = at += bytes;
    }
    if ((size_t)at > content->data_bytes) {
        content->data = memory_resize(content->data, (size_t)at, 1);
        memset(content->data + content->data_bytes, 0x3e, (size_t)at - content->data_bytes);
    }
    content->data_bytes = (size_t)at;
}

static void change_values(struct choices *choices, struct content *content)
{
    static const uint8_t fills[] = {0, 0xff, 0x7f, 0x80, 0x3f};
    if (content->data_bytes == 0) return;
    size_t at = (choose(choices, 256) * 256u + choose(choices, 256)) % content->data_bytes;
    size_t left = content->data_bytes - at;
    size_t count = 1 + choose(choices, 16);
    memset(content->data + at, fills[choose(choices, COUNT(fills))], count < left ? count : left);
}

static struct content copy_good(void)
{
    struct content content = good;
    for (int i = 0; i < good.pair_count; i++) {
        content.pairs[i].key = text_copy(good.pairs[i].key);
        content.pairs[i].value = text_copy(good.pairs[i].value);
    }
    for (int i = 0; i < good.tensor_count; i++) content.tensors[i].name = text_copy(good.tensors[i].name);
    content.data = memory_new(good.data_bytes, 1);
    memcpy(content.data, good.data, good.data_bytes);
    return content;
}

static void content_free(struct content *content)
{
    for (int i = 0; i < content->pair_count; i++) {
        free(content->pairs[i].key);
        free(content->pairs[i].value);
    }
    for (int i = 0; i < content->tensor_count; i++) free(content->tensors[i].name);
    free(content->data);
}

static void print_pair(const struct content *content, int i, struct text *header)
{
    text_add(header, ",");
    text_json_string(header, content->pairs[i].key);
    text_add(header, ":");
    if (content->bare[i]) text_add(header, "%s", content->pairs[i].value);
    else text_json_string(header, content->pairs[i].value);
}

static void print_checksum(const struct content *content, const struct tensor_part *tensor,
                           struct text *header)
{
    char digits[CHECKSUM_TEXT], *key = checksum_key(tensor->name);
    bool there = tensor->begin >= 0 && tensor->begin <= tensor->end &&
                 (uint64_t)tensor->end <= content->data_bytes;
    const uint8_t *from = there ? content->data + tensor->begin : NULL;
    checksum_text(there ? crc32c(0, from, (size_t)(tensor->end - tensor->begin)) : 0, digits);
    text_add(header, ",");
    text_json_string(header, key);
    text_add(header, ":\"%s\"", digits);
    free(key);
}

static void print_tensor(const struct tensor_part *tensor, struct text *header)
{
    text_add(header, ",");
    text_json_string(header, tensor->name);
    text_add(header, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype);
    for (int i = 0; i < tensor->rank; i++) text_add(header, "%s%" PRId64, i ? "," : "", tensor->dim[i]);
    text_add(header, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", tensor->begin, tensor->end);
}

static const char *write_content(const struct content *content)
{
    struct text header = {0};
    char digits[CHECKSUM_TEXT];
    text_add(&header, "{\"__metadata__\":{\"" CHECKSUM_HEADER_KEY "\":\"00000000\"");
    for (int i = 0; i < content->pair_count; i++) print_pair(content, i, &header);
    for (int i = 0; i < content->tensor_count; i++) print_checksum(content, &content->tensors[i], &header);
    text_add(&header, "}");
    for (int i = 0; i < content->tensor_count; i++) print_tensor(&content->tensors[i], &header);
    text_add(&header, "}");
    while (header.length % 8) text_add(&header, " ");
    if (checksum_header(header.data, header.length, digits))
        memcpy(checksum_place(header.data), digits, strlen(digits));
    size_t size = 8 + header.length + content->data_bytes;
    uint8_t *bytes = memory_new(size, 1);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(header.length >> (8 * i));
    memcpy(bytes + 8, header.data, header.length);
    memcpy(bytes + 8 + header.length, content->data, content->data_bytes);
    const char *path = fuzz_write("checkpoint-fuzz.safetensors", bytes, size);
    free(bytes);
    text_free(&header);
    return path;
}

static void take_apart(const struct safetensors *file)
{
    struct reason reason;
    for (int i = 0; i < file->metadata_count; i++) {
        const struct safetensors_pair *pair = &file->metadata[i];
        if (strcmp(pair->key, CHECKSUM_HEADER_KEY) != 0 && strncmp(pair->key, "crc32c:", 7) != 0)
            add_pair(&good, pair->key, pair->value);
    }
    for (int i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        struct tensor_part *tensor = &good.tensors[good.tensor_count++];
        *tensor = (struct tensor_part){
            .name = text_copy(entry->name),
            .begin = entry->begin,
            .end = entry->end,
            .dtype = dtype_table[entry->dtype].safetensors,
            .rank = entry->shape.rank,
        };
        for (int k = 0; k < tensor->rank; k++) tensor->dim[k] = entry->shape.dim[k];
        if ((size_t)entry->end > good.data_bytes) good.data_bytes = (size_t)entry->end;
    }
    good.data = memory_new(good.data_bytes, 1);
    for (int i = 0; i < file->count; i++)
        fuzz_must(safetensors_read(file, i, good.data + file->entries[i].begin, &reason));
}

static bool predict(const char *path)
{
    char *model = text_format("model.file=%s", model_path);
    const char *const sets[] = {
        model, "run.device=cpu", "run.threads=1", "train.batch=1", "memory.limit=64M",
    };
    const struct settings_sources given = {.overrides = sets, .override_count = COUNT(sets)};
    struct settings settings;
    const struct trained_source source = {.path = path, .settings = &settings};
    struct trained trained;
    bool opened = fuzz_good(trained_network_settings(path, &given, &settings), "");
    if (opened) {
        opened = fuzz_good(trained_network_open(&source, DATA_NONE, &trained), "");
        if (opened) trained_close(&trained);
        settings_free(&settings);
    }
    free(model);
    return opened;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    const struct checkpoint_source source = fuzz_source();
    const struct position position = {.epoch = 1, .batch = 3, .best = 0.5, .best_epoch = 1};
    struct directory folder;
    struct safetensors file;
    fuzz_must(directory_open(fuzz_folder(), &folder) == OK);
    fuzz_must(checkpoint_save(&source, &position, &folder, NULL) == OK);
    fuzz_must(checkpoint_open_newest(&folder, &file) == OK);
    take_apart(&file);
    safetensors_close(&file);
    directory_close(&folder);
    model_path = text_copy(fuzz_write("fuzz.ini", fuzz_model, strlen(fuzz_model)));
    /* An unchanged checkpoint is good to the end. */
    fuzz_must(predict(write_content(&good)));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices choices = {data, data + size};
    struct content content = copy_good();
    bool fits = choose(&choices, 4) != 0;
    while (choices.at < choices.end) {
        unsigned what = choose(&choices, 8);
        if (what < 5) change_pair(&choices, &content);
        else if (what < 7) change_tensor(&choices, &content);
        else change_values(&choices, &content);
    }
    if (fits) lay_out(&content);
    const char *path = write_content(&content);
    fuzz_resume(path);
    predict(path);
    content_free(&content);
    return 0;
}
