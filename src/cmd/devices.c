#include <stdio.h>

#include "cmd/cmd.h"
#include "device/device.h"

static void print_device(const struct device_backend *backend, int index, int count)
{
    struct text line = {0};
    backend->describe(index, &line);
    if (count > 1)
        printf("%s:%d  %s\n", backend->name, index, line.data);
    else
        printf("%s  %s\n", backend->name, line.data);
    text_free(&line);
}

static enum status devices_run(struct cmd *cmd)
{
    for (int i = 0; device_backends[i]; i++) {
        struct reason reason = {0};
        int count = device_backends[i]->count(&reason);
        for (int index = 0; index < count; index++) print_device(device_backends[i], index, count);
        if (count == 0) printf("%s  none: %s\n", device_backends[i]->name, reason.text);
    }
    return OK;
}

const struct command cmd_devices = {
    .name = "devices",
    .usage = "",
    .help = "Lists the devices.",
    .run = devices_run,
};
