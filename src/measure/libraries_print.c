#include <math.h>
#include <stdio.h>

#include "base/members.h"
#include "measure/libraries.h"

static double tflops(double flops, double ms)
{
    return 1e-9 * flops / ms;
}

/* Text. */

static void print_heading(const struct libraries *libraries)
{
    printf("\n%-28s %3s %-15s %9s %10s %10s", "layer", "n", "phase", "GFLOP", "weights", "activation");
    for (int l = 0; l < libraries->count; l++) printf(" %9s %6s", libraries->names[l], "% peak");
    printf("  algorithm\n");
}

static void print_row(const struct libraries *libraries, const struct library_row *row)
{
    char name[64], weights[TEXT_BYTES], activation[TEXT_BYTES];
    printf("%-28s %3d %-15s %9.3f %10s %10s", text_visible(row->name, name, sizeof name), row->layers,
           row->phase, 1e-9 * row->flops, text_bytes((uint64_t)row->weight_bytes, weights),
           text_bytes((uint64_t)row->activation_bytes, activation));
    for (int l = 0; l < libraries->count; l++) {
        double ms = row->of[l].ms;
        if (isnan(ms)) printf(" %9s %6s", "-", "-");
        else printf(" %9.4f %6.1f", ms, 100 * tflops(row->flops, ms) / libraries->peaks.tflops);
    }
    printf("  %.40s\n", row->of[libraries->count - 1].algorithm);
}

static void print_sum(const struct libraries *libraries, const char *op, int library)
{
    struct library_sum sum = libraries_sum(libraries, op, library, library);
    if (sum.rows == 0) return;
    printf("%-8s by %-8s %9.3f ms, %8.3f TFLOP/s, %5.1f %% of the peak, in %d of its phases\n", op,
           libraries->names[library], sum.ms, tflops(sum.flops, sum.ms),
           100 * tflops(sum.flops, sum.ms) / libraries->peaks.tflops, sum.rows);
}

/* For layers that both support. */
static void print_ratio(const struct libraries *libraries)
{
    struct library_sum first = libraries_sum(libraries, "conv", 0, 1);
    struct library_sum second = libraries_sum(libraries, "conv", 1, 0);
    if (first.rows > 0)
        printf("%s is %.2f times as fast as %s\n", libraries->names[0], second.ms / first.ms,
               libraries->names[1]);
}

static void print_memory(const struct libraries *libraries)
{
    int64_t weights = 0, activations = 0;
    for (int i = 0; i < libraries->row_count; i++) {
        const struct library_row *row = &libraries->rows[i];
        if (row->phase != libraries->rows[0].phase) continue;
        weights += row->layers * row->weight_bytes;
        activations += row->layers * row->activation_bytes;
    }
    char text[3][TEXT_BYTES];
    printf("weights %s, activations %s: %.2f %% of %s\n", text_bytes((uint64_t)weights, text[0]),
           text_bytes((uint64_t)activations, text[1]),
           100 * (double)(weights + activations) / (double)libraries->card_bytes,
           text_bytes((uint64_t)libraries->card_bytes, text[2]));
}

void libraries_print(const struct libraries *libraries)
{
    printf("batch %d in %s on %s; peak %.3f TFLOP/s; milliseconds of one layer, of n with this shape\n",
           libraries->batch, libraries->precision, libraries->device, libraries->peaks.tflops);
    print_heading(libraries);
    for (int i = 0; i < libraries->row_count; i++) print_row(libraries, &libraries->rows[i]);
    printf("\n");
    for (int l = 0; l < libraries->count; l++) print_sum(libraries, "conv", l);
    print_sum(libraries, "linear", libraries->count - 1);
    print_ratio(libraries);
    print_memory(libraries);
}

/* JSON. */

static void add_time(const struct libraries *libraries, const struct library_row *row, int library,
                     struct text *out)
{
    const struct library_time *time = &row->of[library];
    member_key(out, libraries->names[library]);
    text_add(out, "{");
    member_number(out, "ms", time->ms);
    member_number(out, "share_of_peak", tflops(row->flops, time->ms) / libraries->peaks.tflops);
    member_integer(out, "workspace_bytes", time->workspace_bytes);
    member_string(out, "algorithm", time->algorithm);
    text_add(out, "}");
}

static void add_row(const struct libraries *libraries, const struct library_row *row, struct text *out)
{
    text_add(out, "{");
    member_string(out, "name", row->name);
    member_integer(out, "layers", row->layers);
    member_string(out, "op", row->op);
    member_string(out, "phase", row->phase);
    member_number(out, "flops", row->flops);
    member_integer(out, "weight_bytes", row->weight_bytes);
    member_integer(out, "activation_bytes", row->activation_bytes);
    text_add(out, ",\"libraries\":{");
    for (int l = 0; l < libraries->count; l++) add_time(libraries, row, l, out);
    text_add(out, "}}");
}

void libraries_json(const struct libraries *libraries, struct text *out)
{
    text_add(out, "{");
    member_integer(out, "batch", libraries->batch);
    member_string(out, "precision", libraries->precision);
    member_string(out, "device", libraries->device);
    member_integer(out, "card_bytes", libraries->card_bytes);
    text_add(out, ",\"peaks\":{\"tflops\":%.9g,\"gbps\":%.9g},\"rows\":[", libraries->peaks.tflops,
             libraries->peaks.gbps);
    for (int i = 0; i < libraries->row_count; i++) {
        text_add(out, i ? ",\n" : "");
        add_row(libraries, &libraries->rows[i], out);
    }
    text_add(out, "]}");
}
