/* test_whiten: eigenvectors of symmetric matrices, which whitening filters are made of. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "transfer/whiten.h"
#include "tests/support/unit.h"

static void check(int n, const double *matrix)
{
    size_t size = (size_t)(n * n);
    double *a = memory_new(size, sizeof *a), *values = memory_new((size_t)n, sizeof *values);
    double *vectors = memory_new(size, sizeof *vectors), trace = 0, sum = 0;
    memcpy(a, matrix, size * sizeof *a);
    whiten_eigenvectors(n, a, values, vectors);
    for (int i = 0; i < n; i++) {
        const double *v = vectors + i * n;
        for (int k = 0; k < n; k++) {
            double product = 0, dot = 0;
            for (int j = 0; j < n; j++) {
                product += matrix[k * n + j] * v[j];
                dot += v[j] * vectors[k * n + j];
            }
            assert_true(fabs(product - values[i] * v[k]) < 1e-9 * fmax(1, values[0]));
            assert_true(fabs(dot - (i == k)) < 1e-12);
        }
        assert_true(i == 0 || values[i] <= values[i - 1]);
        trace += matrix[i * n + i];
        sum += values[i];
    }
    assert_true(fabs(sum - trace) < 1e-9 * fmax(1, trace));
    free(a);
    free(values);
    free(vectors);
}

/* Second moments of fewer rows than columns, so that some eigenvalues are zero, and of more. */
static void test_second_moments(void **state)
{
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    for (int n = 1; n <= 48; n = n * 2 + 1)
        for (int rows = n / 2; rows <= 2 * n; rows += n) {
            double *matrix = memory_new((size_t)(n * n), sizeof *matrix), row[48];
            for (int r = 0; r < rows; r++) {
                for (int i = 0; i < n; i++) row[i] = random_normal(&random) + 2;
                for (int i = 0; i < n * n; i++) matrix[i] += row[i / n] * row[i % n];
            }
            check(n, matrix);
            free(matrix);
        }
}

static void test_plain_matrices(void **state)
{
    check(2, (const double[]){2, 1, 1, 2});
    check(2, (const double[]){1, 0, 0, 3});
    check(3, (const double[]){0, 0, 0, 0, 0, 0, 0, 0, 0});
    check(3, (const double[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_moments),
        cmocka_unit_test(test_plain_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
