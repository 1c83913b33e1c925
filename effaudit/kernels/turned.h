// A layer of many rows and few outputs the other way round: a vector lane an output. The sums are the same, in the same
// order, but fewer weights than rows become columns.
#pragma once
#include <algorithm>
#include <cstdint>

#include "activations.h"
#include "layer.h"
#include "operands.h"

constexpr int64_t ROWS = 512, HELD = 64 * 1024;  // rows, and floats of them, that are held while all weights pass

// `V` vectors of outputs, whose weights are columns, of OUTPUTS `rows`; the first `n` of them are written from row
// `first` and column `start` on, `n_columns` of each.
template <int V>
inline void turned(
    const float* columns, const float* const* rows, int64_t inputs, const float* biases, int activation,
    const Output& output, int64_t first, int64_t n, int64_t start, int64_t n_columns) {
    const float* own[OUTPUTS];
    UNROLL for (int o = 0; o < OUTPUTS; o++) own[o] = rows[o];
    Lanes sums[OUTPUTS][V] = {};
    multiply<V, OUTPUTS>(columns, own, inputs, sums);
    UNROLL for (int o = 0; o < OUTPUTS; o++) UNROLL for (int v = 0; v < V; v++) {
        sums[o][v] += load(biases + v * LANES);
        if (activation == GELU) sums[o][v] = activated<GELU>(sums[o][v]);
        if (activation == RELU) sums[o][v] = activated<RELU>(sums[o][v]);
    }
    for (int64_t o = 0; o < std::min<int64_t>(OUTPUTS, n); o++)
        for (int64_t v = 0; v < V; v++)
            output.write(first + o, sums[o][v], start + v * LANES, std::min<int64_t>(LANES, n_columns - v * LANES));
}

inline void run_turned(const Input& input, const Layer& layer, int activation, const Output& output, int64_t n) {
    static thread_local Buffer buffers[3];
    const int64_t inputs = layer.inputs, outputs = layer.outputs, n_panels = (outputs + TOGETHER - 1) / TOGETHER;
    float* panels = buffers[0].of(n_panels * TOGETHER * inputs);
    float* biases = buffers[1].of(n_panels * TOGETHER);
    const int64_t most = std::clamp(HELD / inputs / OUTPUTS * OUTPUTS, int64_t(OUTPUTS), ROWS);
    float* normed = buffers[2].of(input.scale ? most * inputs : 0);
    Input{layer.weight, layer.row, nullptr}.read(0, outputs, inputs, panels);
    for (int64_t o = 0; o < n_panels * TOGETHER; o++) biases[o] = layer.bias && o < outputs ? layer.bias[o] : 0.0f;
    for (int64_t first = 0; first < n; first += most) {
        const int64_t n_rows = std::min(most, n - first);
        const float* rows[ROWS];
        for (int64_t i = 0; i < most; i++) {  // what is beyond the last row repeats it
            rows[i] = input.at(first + std::min(i, n_rows - 1));
            if (input.scale && i < n_rows) rows[i] = input.normed(rows[i], inputs, normed + i * inputs);
        }
        for (int64_t panel = 0; panel < n_panels; panel++) {
            const int64_t start = panel * TOGETHER, n_left = std::min(TOGETHER, outputs - start);
            const float* columns = panels + start * inputs;
            const int64_t k = panel * inputs / n_panels, stop = (panel + 1) * inputs / n_panels;
            auto sum = vectors(n_left) == VECTORS ? turned<VECTORS> : turned<1>;
            for (int64_t i = 0; i < n_rows; i += OUTPUTS) {
                const int64_t next = first + most + i;
                input.expect(next, std::min(next + OUTPUTS, n), k / LANES * LANES, stop);
                output.expect(first + i, std::min<int64_t>(OUTPUTS, n_rows - i), start, start + n_left);
                const int64_t n_here = n_rows - i;
                sum(columns, rows + i, inputs, biases + start, activation, output, first + i, n_here, start, n_left);
            }
        }
    }
}
