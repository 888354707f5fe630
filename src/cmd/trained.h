/* trained.h: opens the trained network that a command names with --weights. */
#pragma once

#include "cmd/cmd.h"
#include "explain/trained_network.h"

/* Loads the command's settings: those stored in the weights file, overridden by the configuration. */
enum status trained_settings(struct cmd *cmd);

/* Takes the settings of the weights file at `path`. */
enum status trained_settings_of(struct cmd *cmd, const char *path);

/* Does what trained_network_session does, for the weights file at `path`. */
enum status trained_session(struct cmd *cmd, const char *path, struct session *session);

/* Opens and loads the network with the weights of --weights. trained_close frees it. */
enum status trained_open(struct cmd *cmd, unsigned data, struct trained *trained);
enum status trained_load(struct cmd *cmd, unsigned data, struct trained *trained);

/* --check without a configuration: checks that everything can be opened. */
enum status trained_check(struct cmd *cmd);
