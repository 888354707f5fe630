#include <inttypes.h>
#include <stdio.h>

#include "base/members.h"
#include "cmd/cmd.h"
#include "compile/time/cost.h"
#include "graph/graph_text.h"

/* Figures of a layer, or of all: multiply-adds of one image's forward, bytes of its output in fp32. */
struct totals {
    int64_t params, trained, bytes;
    double macs;               /* may exceed 2^63 for hundreds of layers */
};

static struct totals totals_of(const struct graph *graph, int node)
{
    const struct node *at = &graph->nodes[node];
    struct totals totals = {
        .macs = cost_node_flops(graph, node, 1) / 2,
        .bytes = shape_count(at->shape) * (int64_t)dtype_bytes(F32),
    };
    for (int i = 0; i < at->param_count; i++) {
        const struct parameter *parameter = &graph->params[at->param_first + i];
        if (parameter->spec.role == ROLE_STATISTIC) continue;
        totals.params += shape_count(parameter->spec.shape);
        if (!parameter->frozen) totals.trained += shape_count(parameter->spec.shape);
    }
    return totals;
}

/* The input is not a layer. */
static struct totals totals_of_all(const struct graph *graph)
{
    struct totals all = {0};
    for (int i = 1; i < graph->count; i++) {
        struct totals layer = totals_of(graph, i);
        all.params += layer.params;
        all.trained += layer.trained;
        all.macs += layer.macs;
        all.bytes += layer.bytes;
    }
    return all;
}

static void print(const struct graph *graph)
{
    char shape[SHAPE_TEXT], bytes[TEXT_BYTES];
    struct totals all = totals_of_all(graph);
    printf("%s, one image of %s\n\n", graph->arch, shape_text(graph->nodes[0].shape, shape));
    printf("%-28s %-18s %-18s %12s %14s %12s\n", "layer", "op", "output", "parameters", "MACs", "activation");
    for (int i = 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        struct totals layer = totals_of(graph, i);
        printf("%-28s %-18s %-18s %12" PRId64 " %14.0f %12s\n", node->name, node->op->name,
               shape_text(node->shape, shape), layer.params, layer.macs,
               text_bytes((uint64_t)layer.bytes, bytes));
    }
    printf("\nparameters   %" PRId64 "\n", all.params);
    if (all.trained < all.params) printf("  trained    %" PRId64 "\n", all.trained);
    bool large = all.macs >= 1e9;
    printf("MACs         %.0f (%.2f %s)\n", all.macs, all.macs / (large ? 1e9 : 1e6), large ? "G" : "M");
    printf("activations  %s in fp32\n", text_bytes((uint64_t)all.bytes, bytes));
    struct text outputs = {0};
    graph_text_outputs(graph, &outputs);
    if (outputs.data) fputs(outputs.data, stdout);
    text_free(&outputs);
}

static void add_totals(const struct totals *totals, struct text *out)
{
    member_integer(out, "params", totals->params);
    member_integer(out, "trained_params", totals->trained);
    text_add(out, ",\"macs\":%.0f", totals->macs);
    member_integer(out, "activation_bytes", totals->bytes);
}

static void print_json(const struct graph *graph)
{
    struct totals all = totals_of_all(graph);
    struct text out = {0};
    text_add(&out, "{");
    add_totals(&all, &out);
    text_add(&out, ",\"layers\":[");
    for (int i = 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        struct totals layer = totals_of(graph, i);
        text_add(&out, i > 1 ? ",{" : "{");
        member_string(&out, "name", node->name);
        member_string(&out, "op", node->op->name);
        text_add(&out, ",\"output\":[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", node->shape.n,
                 node->shape.h, node->shape.w, node->shape.c);
        add_totals(&layer, &out);
        text_add(&out, "}");
    }
    text_add(&out, "]");
    graph_text_outputs_json(graph, 1, &out);
    printf("%s}\n", out.data);
    text_free(&out);
}

/* Without a session, so that settings for another machine do not matter. Image size and classes come from the
 * data if available. */
static enum status summary_run(struct cmd *cmd)
{
    const struct data_options options = {
        .file = cmd->config, .wanted = cmd->settings.data.format ? DATA_TRAIN | DATA_OPTIONAL : DATA_NONE,
    };
    struct data data;
    struct graphs graphs = {0};
    const struct graphs_options network = {.settings = &cmd->settings, .file = cmd->config, .data = &data,
                                           .any_outputs = true};
    enum status status = data_open(&cmd->settings, &options, &data);
    if (status == OK) status = graphs_open(&network, &graphs);
    if (status == OK && cmd_value(cmd, "json")) print_json(&graphs.training);
    else if (status == OK) print(&graphs.training);
    graphs_close(&graphs);
    data_close(&data);
    return status;
}

static const struct cmd_option options[] = {
    {"json", NULL, "print the layers and totals as JSON"},
    {0},
};

const struct command cmd_summary = {
    .name = "summary",
    .usage = "-c FILE [--json]",
    .help = "Lists a network's layers: shapes, parameters, multiply-adds, bytes.",
    .takes = TAKES_CONFIG,
    .options = options,
    .run = summary_run,
};
