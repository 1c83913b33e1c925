// The rows that a product reads and writes where they lie, and their columns, of which vectors are made.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "lanes.h"

constexpr int VECTORS = 2;  // of rows that lie together as columns
constexpr int64_t TOGETHER = VECTORS * LANES;  // rows of them

// Vectors of rows that lie together, of `n` rows that are left.
inline int64_t vectors(int64_t n) { return std::min<int64_t>(VECTORS, (n + LANES - 1) / LANES); }

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

struct Input {
    const float* x;
    int64_t row;  // from one to the next
    const int64_t* index;  // (n,) rows, or null for the first n
    const float* scale = nullptr;  // (width,) of a layer norm before the first layer, or null
    const float* shift = nullptr;
    float epsilon = 0;

    const float* at(int64_t i) const { return x + (index ? index[i] : i) * row; }

    // Those from row `first` on.
    Input from(int64_t first) const {
        return {index ? x : at(first), row, index ? index + first : nullptr, scale, shift, epsilon};
    }

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

    // Those from row `first` on.
    Output from(int64_t first) const {
        return {index ? out : at(first), row, index ? index + first : nullptr, is_added, gate ? gate + first : nullptr};
    }

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
