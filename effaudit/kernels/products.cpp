// Linear layers of chosen rows on one thread of a CPU: a vector lane a row, so that any number of rows costs its share.
// Rows are read where they lie and turned into columns, go through one layer or two while they are in the cache, and
// are written or added where they belong. Many rows and few outputs go the other way round: a lane an output. Either
// way the same sums are taken in the same order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lanes.h"

namespace {

constexpr int VECTORS = 2;  // of rows whose sums are in registers at once,
constexpr int OUTPUTS = LANES == 16 ? 8 : 4;  // with as many outputs
constexpr int64_t TOGETHER = VECTORS * LANES;  // rows whose columns lie together
constexpr int64_t INPUTS = 256, BLOCK = 256;  // of a layer, whose weights stay in the cache while all rows pass
constexpr int64_t ROWS = 512, HELD = 64 * 1024;  // rows, and floats of them, that are held while all weights pass
constexpr int64_t NARROW = 128;  // outputs of a first layer
constexpr int64_t CACHED = 192 * 1024;  // floats of a layer's inputs or outputs that are held at once

enum Activation { NONE, GELU, RELU };

// `n` floats at the start of a cache line, kept from call to call.
struct Buffer {
    ~Buffer() { std::free(data); }
    float* of(int64_t n) {
        if (n > size) {
            std::free(data);
            data = (float*)std::aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
            size = n;
        }
        return data;
    }
    float* data = nullptr;
    int64_t size = 0;
};

// The error function to 3e-7: beyond END it is 1, within x times a polynomial in t, which x^2 is stretched to on
// [-1, 1] (fitted to it by least squares at Chebyshev's nodes).
inline Lanes error_function(Lanes x) {
    constexpr float END = 3.92f;
    constexpr float TERMS[] = {
        3.607368171e-01f, -1.801086515e-01f, 1.340842247e-01f, -1.091779247e-01f, 9.060313553e-02f, -7.403659075e-02f,
        5.835359544e-02f, -4.334324971e-02f, 2.983444370e-02f, -2.025861852e-02f, 1.398590393e-02f, -7.268768735e-03f,
        2.099951729e-03f, -1.687437296e-03f, 2.042456297e-03f, -7.572448812e-04f};
    x = x > END ? Lanes{} + END : x < -END ? Lanes{} - END : x;
    const Lanes t = x * x * (2 / (END * END)) - 1.0f;
    Lanes sum = Lanes{} + TERMS[15];
    UNROLL for (int i = 14; i >= 0; i--) sum = sum * t + TERMS[i];
    return x * sum;
}

template <int ACTIVATION>
inline Lanes activated(Lanes x) {
    if constexpr (ACTIVATION == GELU) {
        const Lanes share = 1.0f + error_function(x * 0.70710678f);
        return x * 0.5f * (share < 0.0f ? Lanes{} : share);
    }
    if constexpr (ACTIVATION == RELU) return x < 0.0f ? Lanes{} : x;
    return x;
}

// Rows and columns of a (LANES, LANES) block exchanged.
template <int HALF = LANES / 2>
inline void transpose(Lanes* rows) {
    Ints low, high;
    for (int j = 0; j < LANES; j++) {
        low[j] = j & HALF ? LANES + j - HALF : j;
        high[j] = j & HALF ? LANES + j : j + HALF;
    }
    for (int i = 0; i < LANES; i++)
        if (!(i & HALF)) {
            const Lanes a = rows[i], b = rows[i + HALF];
            rows[i] = shuffled(a, b, low);
            rows[i + HALF] = shuffled(a, b, high);
        }
    if constexpr (HALF > 1) transpose<HALF / 2>(rows);
}

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

// Vectors of rows that lie together, of `n` rows that are left.
inline int64_t vectors(int64_t n) { return std::min<int64_t>(VECTORS, (n + LANES - 1) / LANES); }

// Adds `n` of `V` vectors of columns, which lie together, times as many values of each of `O` rows.
template <int V, int O>
inline void multiply(const float* columns, const float* const (&rows)[O], int64_t n, Lanes (&sums)[O][V]) {
    for (int64_t k = 0; k < n; k++, columns += V * LANES) {
        Lanes x[V];
        UNROLL for (int v = 0; v < V; v++) x[v] = load(columns + v * LANES);
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) sums[o][v] += rows[o][k] * x[v];
    }
}

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
    const int64_t* places = layer.columns;
    for (int64_t start = span.start; start < span.stop; start += run) {
        const int64_t place = places ? *places++ : start;
        UNROLL for (int o = 0; o < O; o++) rows[o] = weight + o * row + place;
        multiply<V, O>(columns, rows, run, sums);
        columns += run * V * LANES;
    }
    UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) {
        if (span.is_last) sums[o][v] = activated<ACTIVATION>(sums[o][v] + (layer.bias ? layer.bias[first + o] : 0.0f));
        store(out + (o * V + v) * LANES, sums[o][v]);
    }
}

struct Input {
    const float* x;
    int64_t row;  // from one to the next
    const int64_t* index;  // (n,) rows, or null for the first n
    const float* scale = nullptr;  // (width,) of a layer norm before the first layer, or null
    const float* shift = nullptr;
    float epsilon = 0;

    const float* at(int64_t i) const { return x + (index ? index[i] : i) * row; }

    // Rows `first` to `first + n` as columns.
    void read(int64_t first, int64_t n, int64_t width, float* columns) const {
        for (int64_t start = 0; start < n; start += TOGETHER, columns += TOGETHER * width) {
            const int64_t n_vectors = vectors(n - start);
            for (int64_t v = 0; v < n_vectors; v++)
                read(first + start + v * LANES, n - start - v * LANES, width, columns + v * LANES, n_vectors * LANES);
        }
    }

    // The layer norm of a row, in `out`.
    const float* normed(const float* from, int64_t width, float* out) const {
        float mean, factor;
        moments(from, width, epsilon, mean, factor);
        for (int64_t k = 0; k < width; k += LANES)
            store(out + k, (load(from + k) - mean) * factor * load(scale + k) + load(shift + k));
        return out;
    }

    // Into the cache what will be read soon: columns `start` to `stop` of the rows `first` to `stop_row`.
    void expect(int64_t first, int64_t stop_row, int64_t start, int64_t stop) const {
        for (int64_t i = first; i < stop_row; i++)
            for (int64_t k = start; k < stop; k += LANES) __builtin_prefetch(at(i) + k, 0, 2);
    }

   private:
    void read(int64_t first, int64_t n, int64_t width, float* columns, int64_t step) const {
        const float* rows[LANES];
        float means[LANES], factors[LANES];
        for (int j = 0; j < LANES; j++) {  // what is beyond the last row repeats it
            rows[j] = at(first + std::min<int64_t>(j, n - 1));
            if (scale) moments(rows[j], width, epsilon, means[j], factors[j]);
        }
        for (int64_t k = 0; k < width; k += LANES) {
            Lanes block[LANES];
            for (int j = 0; j < LANES; j++) {
                block[j] = load(rows[j] + k);
                if (scale) block[j] = (block[j] - means[j]) * factors[j] * load(scale + k) + load(shift + k);
            }
            transpose(block);
            for (int j = 0; j < LANES; j++) store(columns + (k + j) * step, block[j]);
        }
    }
};

struct Output {
    float* out;
    int64_t row;
    const int64_t* index;
    bool is_added;
    const float* gate;  // (n,), or null for 1; rows with 0 stay as they are

    float* at(int64_t i) const { return out + (index ? index[i] : i) * row; }

    // Into the cache what will be written soon.
    void expect(int64_t first, int64_t n, int64_t start, int64_t stop) const {
        for (int64_t i = first; i < first + n; i++)
            for (int64_t k = start; k < stop; k += LANES) __builtin_prefetch(at(i) + k, 1);
    }

    // `n_columns` columns of `n` rows, `step` apart, into rows from `first` and columns from `start` on.
    void write(int64_t first, int64_t n, const float* columns, int64_t step, int64_t start, int64_t n_columns) const {
        Lanes block[LANES] = {};
        for (int j = 0; j < n_columns; j++) block[j] = load(columns + j * step);
        transpose(block);
        for (int64_t j = 0; j < std::min<int64_t>(n, LANES); j++) write(first + j, block[j], start, n_columns);
    }

    // `n_columns` values into row `i` from column `start` on.
    void write(int64_t i, Lanes values, int64_t start, int64_t n_columns) const {
        const float factor = gate ? gate[i] : 1.0f;
        float* place = at(i) + start;
        if (is_added && factor == 0.0f) return;
        if (n_columns == LANES)
            store(place, is_added ? load(place) + factor * values : values);
        else
            for (int64_t c = 0; c < n_columns; c++) place[c] = is_added ? place[c] + factor * values[c] : values[c];
    }
};

// `V` vectors of outputs, whose weights are columns, of OUTPUTS `rows`; the first `n` of them are written from row
// `first` and column `start` on, `n_columns` of each.
template <int V>
void turned(
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
                    auto run = n_vectors == VECTORS ? tiles<VECTORS, ACTIVATION> : tiles<1, ACTIVATION>;
                    float* sums = is_kept ? to + o * n_vectors * LANES : out;
                    if (output && span.is_last)
                        output->expect(first_row + row, std::min(n - row, TOGETHER), o, o + n_outputs);
                    if (input && span.is_first) {
                        const int64_t from = first_row + n + row, k = o * layer.inputs / layer.outputs / LANES * LANES;
                        const int64_t stop = (o + LANES) * layer.inputs / layer.outputs / LANES * LANES;
                        input->expect(from, std::min(from + TOGETHER, n_rows), k, std::min(stop, layer.inputs));
                    }
                    run(columns, layer, span, o, n_outputs, sums);
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

// Rows through one layer the other way round, a vector lane an output: its weights become columns instead of many rows.
void run_turned(const Input& input, const Layer& layer, int activation, const Output& output, int64_t n) {
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
            auto run = vectors(n_left) == VECTORS ? turned<VECTORS> : turned<1>;
            for (int64_t i = 0; i < n_rows; i += OUTPUTS) {
                const int64_t next = first + most + i;
                input.expect(next, std::min(next + OUTPUTS, n), k / LANES * LANES, stop);
                output.expect(first + i, std::min<int64_t>(OUTPUTS, n_rows - i), start, start + n_left);
                const int64_t n_here = n_rows - i;
                run(columns, rows + i, inputs, biases + start, activation, output, first + i, n_here, start, n_left);
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
            float* hidden = buffers[3].of(n * width);
            run_turned(input, layers[0], activation, Output{hidden, width, nullptr, false, nullptr}, n);
            return run(Input{hidden, width, nullptr}, layers + 1, 1, NONE, output, n);
        }
    }
    int64_t widest = layers[0].inputs;
    for (int i = 0; i < n_layers; i++) widest = std::max(widest, layers[i].outputs);
    const int64_t most = std::clamp(CACHED / widest / TOGETHER, int64_t(1), int64_t(6)) * TOGETHER;
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
