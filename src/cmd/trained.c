#include "cmd/trained.h"

#include <string.h>

static enum status source_of(struct cmd *cmd, struct trained_source *source)
{
    *source = (struct trained_source){.config = cmd->config, .comm = cmd->comm, .settings = &cmd->settings};
    return cmd_weights(cmd, &source->path);
}

enum status trained_settings_of(struct cmd *cmd, const char *path)
{
    const struct settings_sources given = {
        .file = cmd->config, .overrides = cmd->sets, .override_count = cmd->set_count,
    };
    return trained_network_settings(path, &given, &cmd->settings);
}

enum status trained_settings(struct cmd *cmd)
{
    const char *path;
    TRY(cmd_weights(cmd, &path));
    return trained_settings_of(cmd, path);
}

enum status trained_session(struct cmd *cmd, const char *path, struct session *session)
{
    const struct trained_source source = {path, cmd->config, cmd->comm, &cmd->settings};
    return trained_network_session(&source, session);
}

enum status trained_load(struct cmd *cmd, unsigned data, struct trained *trained)
{
    struct trained_source source;
    TRY(source_of(cmd, &source));
    return trained_network_load(&source, data, trained);
}

enum status trained_open(struct cmd *cmd, unsigned data, struct trained *trained)
{
    struct trained_source source;
    TRY(source_of(cmd, &source));
    return trained_network_open(&source, data, trained);
}

enum status trained_check(struct cmd *cmd)
{
    struct trained trained;
    bool images = strcmp(cmd->command->name, "eval") == 0;
    TRY(trained_open(cmd, images ? DATA_VAL : DATA_NONE, &trained));
    trained_close(&trained);
    return OK;
}
