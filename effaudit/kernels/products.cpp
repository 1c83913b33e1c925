// Linear layers of chosen rows on one thread of a CPU: a vector lane a row, so that any number of rows costs its share.
// Rows are read where they lie and turned into columns, go through one layer or two while they are in the cache, and
// are written or added where they belong.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "activations.h"
#include "layer.h"
#include "operands.h"
#include "turned.h"

namespace {

constexpr int64_t INPUTS = 256, BLOCK = 256;  // of a layer, whose weights stay in the cache while all rows pass
constexpr int64_t CACHED = 192 * 1024, MOST = 6 * TOGETHER;  // floats of a layer, and rows, that are held at once
constexpr int64_t NARROW = 128, PART = 2048;  // outputs of a first layer, and rows of them that are held at once

// Where each `step` of the outputs or inputs of chosen `heads` (k,) of `dim` lies, in `parts` of `whole` heads each.
inline std::vector<int64_t> places(
    const int64_t* heads, int64_t k, int64_t dim, int64_t step, int64_t parts, int64_t whole) {
    std::vector<int64_t> found;
    for (int64_t part = 0; part < parts; part++)
        for (int64_t h = 0; h < k; h++)
            for (int64_t i = 0; i < dim; i += step) found.push_back((part * whole + heads[h]) * dim + i);
    return found;
}

// A layer's inputs `start` to `stop`: what is summed before the next ones come from the cache.
struct Span {
    int64_t start, stop;
    bool is_first, is_last;
};

// `V` vectors of rows times `O` outputs from `first` on. Columns of such rows lie together, `V` vectors each.
template <int V, int O, int ACTIVATION>
inline void tile(const float* columns, const Layer& layer, const Span& span, int64_t first, float* out) {
    const int64_t row = layer.row, run = layer.columns ? layer.run : span.stop - span.start;
    const float* weight = layer.of(first);
    const float* rows[O];
    Lanes sums[O][V] = {};
    UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++)
        if (!span.is_first) sums[o][v] = load(out + (o * V + v) * LANES);
    columns += span.start * V * LANES;
    const int64_t* next = layer.columns;
    for (int64_t start = span.start; start < span.stop; start += run) {
        const int64_t place = next ? *next++ : start;
        UNROLL for (int o = 0; o < O; o++) rows[o] = weight + o * row + place;
        multiply<V, O>(columns, rows, run, sums);
        columns += run * V * LANES;
    }
    UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) {
        if (span.is_last) sums[o][v] = activated<ACTIVATION>(sums[o][v] + (layer.bias ? layer.bias[first + o] : 0.0f));
        store(out + (o * V + v) * LANES, sums[o][v]);
    }
}

// Up to LANES outputs from `first` on, of `V` vectors of rows, as many at once as fit.
template <int V, int ACTIVATION, int O = OUTPUTS>
inline void tiles(const float* columns, const Layer& layer, const Span& span, int64_t first, int64_t n, float* out) {
    for (; n >= O; first += O, n -= O, out += O * V * LANES) tile<V, O, ACTIVATION>(columns, layer, span, first, out);
    if constexpr (O > 1)
        if (n) tiles<V, ACTIVATION, O / 2>(columns, layer, span, first, n, out);
}

// `n` of `n_rows` rows, held as columns, through one layer. The last one's outputs are written as soon as they are
// there; while the first one runs, the rows after these come into the cache.
template <int ACTIVATION>
void apply(
    const Layer& layer, const float* in, float* out, const Input* input, const Output* output, int64_t first_row,
    int64_t n, int64_t n_rows) {
    const int64_t step = layer.columns ? layer.inputs : INPUTS;
    const bool is_kept = !output || step < layer.inputs;
    for (int64_t start = 0; start < layer.inputs; start += step) {
        const Span span{start, std::min(start + step, layer.inputs), start == 0, start + step >= layer.inputs};
        for (int64_t block = 0; block < layer.outputs; block += BLOCK)
            for (int64_t row = 0; row < n; row += TOGETHER) {
                const float* columns = in + row * layer.inputs;
                float* to = out + row * layer.outputs;
                const int64_t n_vectors = vectors(n - row);
                for (int64_t o = block; o < std::min(block + BLOCK, layer.outputs); o += LANES) {
                    const int64_t n_outputs = std::min<int64_t>(LANES, layer.outputs - o);
                    auto sum = n_vectors == VECTORS ? tiles<VECTORS, ACTIVATION> : tiles<1, ACTIVATION>;
                    float* sums = is_kept ? to + o * n_vectors * LANES : out;
                    if (output && span.is_last)
                        output->expect(first_row + row, std::min(n - row, TOGETHER), o, o + n_outputs);
                    if (input && span.is_first) {
                        const int64_t from = first_row + n + row, k = o * layer.inputs / layer.outputs / LANES * LANES;
                        const int64_t stop = (o + LANES) * layer.inputs / layer.outputs / LANES * LANES;
                        input->expect(from, std::min(from + TOGETHER, n_rows), k, std::min(stop, layer.inputs));
                    }
                    sum(columns, layer, span, o, n_outputs, sums);
                    if (!output || !span.is_last) continue;
                    for (int64_t v = 0; v < n_vectors; v++) {
                        const float* done = sums + v * LANES;
                        const int64_t at = row + v * LANES;
                        output->write(first_row + at, n - at, done, n_vectors * LANES, o, n_outputs);
                    }
                }
            }
    }
}

// Rows through `layers`, with the activation after the first; reading may be from where is written.
void run(const Input& input, const Layer* layers, int n_layers, int activation, const Output& output, int64_t n) {
    static thread_local Buffer buffers[4];
    const bool is_copied = input.scale || input.x != output.out;  // else what is written would be read again
    if (2 * layers[0].outputs <= n && is_copied && !layers[0].rows && !layers[0].columns) {
        if (n_layers == 1) return run_turned(input, layers[0], activation, output, n);
        if (layers[0].outputs <= NARROW && layers[0].outputs % LANES == 0) {
            const int64_t width = layers[0].outputs;
            float* hidden = buffers[3].of(std::min(PART, n) * width);
            for (int64_t first = 0; first < n; first += PART) {
                const int64_t rows = std::min(PART, n - first);
                const Output held{hidden, width, nullptr, false, nullptr};
                run_turned(input.from(first), layers[0], activation, held, rows);
                run(Input{hidden, width, nullptr}, layers + 1, 1, NONE, output.from(first), rows);
            }
            return;
        }
    }
    int64_t widest = layers[0].inputs;
    for (int i = 0; i < n_layers; i++) widest = std::max(widest, layers[i].outputs);
    const int64_t most = std::clamp(CACHED / widest / TOGETHER * TOGETHER, TOGETHER, MOST);
    float* columns = buffers[0].of(most * layers[0].inputs);
    for (int64_t first = 0; first < n; first += most) {
        const int64_t rows = std::min(most, n - first);
        input.read(first, rows, layers[0].inputs, columns);
        const float* in = columns;
        for (int i = 0; i < n_layers; i++) {
            float* out = buffers[1 + i].of(most * layers[i].outputs);
            const int then = i ? NONE : activation;
            auto through = then == GELU ? apply<GELU> : then == RELU ? apply<RELU> : apply<NONE>;
            through(layers[i], in, out, i ? nullptr : &input, i + 1 == n_layers ? &output : nullptr, first, rows, n);
            in = out;
        }
    }
}

}  // namespace

extern "C" void chain(
    const float* x, int64_t x_row, const int64_t* x_index,  // (M, inputs) rows `x_row` apart; (n,) of them, or null
    const float* scale, const float* shift, float epsilon,  // (inputs,) of a layer norm, or null
    const float* first, const float* first_bias, int64_t inputs, int64_t width, int activation,  // (width, inputs)
    const float* second, const float* second_bias, int64_t outputs,  // (outputs, width), or null
    float* out, int64_t out_row, const int64_t* out_index, int is_added, const float* gate, int64_t n) {
    const Layer layers[] = {{first, first_bias, inputs, width, inputs}, {second, second_bias, width, outputs, width}};
    const Input input{x, x_row, x_index, scale, shift, epsilon};
    run(input, layers, second ? 2 : 1, activation, Output{out, out_row, out_index, (bool)is_added, gate}, n);
}

extern "C" void from_heads(
    const float* x, const int64_t* examples, const int64_t* heads,  // (B, tokens, inputs); (b,) of them; (b, k)
    const float* weight, int64_t n_heads, int64_t dim, int64_t n_parts,  // (n_parts * n_heads * dim, inputs)
    float* out,  // (b, tokens, n_parts * k * dim)
    int64_t b, int64_t k, int64_t tokens, int64_t inputs) {
    const int64_t outputs = n_parts * k * dim;
    for (int64_t i = 0; i < b; i++) {
        const auto rows = places(heads + i * k, k, dim, OUTPUTS, n_parts, n_heads);
        const Layer layer{weight, nullptr, inputs, outputs, inputs, rows.data()};
        const Output output{out + i * tokens * outputs, outputs, nullptr, false, nullptr};
        run(Input{x + examples[i] * tokens * inputs, inputs, nullptr}, &layer, 1, NONE, output, tokens);
    }
}

extern "C" void onto_heads(
    float* onto, const int64_t* examples, const int64_t* heads,  // (B, tokens, outputs); (b,) of them; (b, k)
    const float* weight, int64_t n_heads, int64_t dim,  // (outputs, n_heads * dim)
    const float* mixed,  // (b, tokens, k * dim)
    int64_t b, int64_t k, int64_t tokens, int64_t outputs) {
    const int64_t inputs = k * dim;
    for (int64_t i = 0; i < b; i++) {
        const auto columns = places(heads + i * k, k, dim, dim, 1, n_heads);
        const Layer layer{weight, nullptr, inputs, outputs, n_heads * dim, nullptr, columns.data(), dim};
        const Output output{onto + examples[i] * tokens * outputs, outputs, nullptr, true, nullptr};
        run(Input{mixed + i * tokens * inputs, inputs, nullptr}, &layer, 1, NONE, output, tokens);
    }
}
