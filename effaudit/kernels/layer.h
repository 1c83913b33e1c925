// A linear layer, and the sums of products that it consists of.
#pragma once
#include <cstdint>

#include "lanes.h"

constexpr int OUTPUTS = LANES == 16 ? 8 : 4;  // whose sums are in registers at once, as many times as vectors of rows

struct Layer {
    const float* weight;  // (…, row)
    const float* bias;  // (outputs,), or null
    int64_t inputs, outputs, row;
    // Of chosen heads: where every OUTPUTS of them lie in the weight's rows, or runs of inputs in its columns.
    const int64_t* rows = nullptr;
    const int64_t* columns = nullptr;
    int64_t run = 0;

    const float* of(int64_t output) const { return weight + (rows ? rows[output / OUTPUTS] : output) * row; }
};

// Adds `n` of `V` vectors of columns, which lie together, times as many values of each of `O` rows.
template <int V, int O>
inline void multiply(const float* columns, const float* const (&rows)[O], int64_t n, Lanes (&sums)[O][V]) {
    for (int64_t k = 0; k < n; k++, columns += V * LANES) {
        Lanes x[V];
        UNROLL for (int v = 0; v < V; v++) x[v] = load(columns + v * LANES);
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) sums[o][v] += rows[o][k] * x[v];
    }
}
