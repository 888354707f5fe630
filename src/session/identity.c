#include "config.h"

#include "session/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "graph/graph_text.h"

/* "[train]" and "batch = 64" become "train.batch = 64". */
static void add_settings(const struct settings *settings, struct text *out)
{
    struct text ini = {0};
    settings_print(settings, false, &ini);
    char *rest = ini.data, *line, section[64] = "";
    while (rest && (line = strsep(&rest, "\n"))) {
        if (line[0] == '[')
            snprintf(section, sizeof section, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        else if (*line)
            text_add(out, "%s%s%s\n", *line == ' ' ? "" : section, *line == ' ' ? "" : ".", line);
    }
    text_free(&ini);
}

static void add_images(const char *split, const struct images *images,
                       const struct dataset_identity *identity, struct text *out)
{
    struct text all = {0};
    if (identity) dataset_identity_print(identity, &all);
    text_add(out, "data.%s: %" PRId64 " images with the hash %016" PRIx64 "\n", split, images->count,
             hash_bytes(0, all.data, all.length));
    text_free(&all);
}

void identity_text(const struct session *session, struct text *out)
{
    const struct data *data = &session->data;
    text_add(out, "amptrain " PACKAGE_VERSION "\n");
    add_settings(session->settings, out);
    add_images("train", &data->train, data->identities[SPLIT_TRAIN], out);
    add_images("val", &data->val, data->identities[SPLIT_VAL], out);
    for (int i = 0; i < data->classes; i++) text_add(out, "class %d: %s\n", i, data->class_names[i]);
    graph_text(&session->graphs.training, out);
}
